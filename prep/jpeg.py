"""What a JPEG file is made of, as far as Pillow does not look: it forgives what comes behind the last row.

Format: ITU-T T.81, annex B. Pixels are not decoded here.
"""

from __future__ import annotations

import struct

_FRAMES = (0xC0, 0xC1, 0xC2)
_PROGRESSIVE = 0xC2
_END, _SCAN = 0xD9, 0xDA
# Huffman and quantisation tables, restart interval, application data, comment.
_OTHERS = (0xC4, 0xDB, 0xDD, *range(0xE0, 0xF0), 0xFE)
# Inside a scan stand the data byte 0xFF, which a zero follows, and the restarts.
_IN_SCAN = frozenset((0x00, *range(0xD0, 0xD8)))


def is_plain(data: bytes) -> bool:
    """Whether there is one frame, 8-bit baseline or progressive Huffman, and all is whole up to its end.

    Of a file whose scans leave out coefficients, two releases of libjpeg may make different pixels.
    """
    place, num_frames, in_scan = 2, 0, False
    # by component, a bit for each of the 64 coefficients of its blocks
    missing: dict[int, int] = {}
    while (place := _next_marker(data, place, in_scan=in_scan)) >= 0:
        kind, start = data[place], place + 1
        if kind == _END:
            return num_frames == 1 and not any(missing.values())
        # the length counts its own two bytes
        length = int.from_bytes(data[start : start + 2], "big")
        place = start + length
        if length < 2 or place > len(data):
            return False
        if kind in _FRAMES and data[start + 2] == 8:
            num_frames += 1
            missing = dict.fromkeys(data[start + 8 : place : 3], (1 << 64) - 1)
        elif kind == _SCAN:
            # its data have no length: they end at the next marker
            in_scan = True
            first, last, bits = data[place - 3 : place]
            if bits & 15 == 0 and last < 64:
                # with their lowest bits, these coefficients are whole
                for component in data[start + 3 : place - 3 : 2]:
                    missing[component] = missing.get(component, 0) & ~((2 << last) - (1 << first))
        elif kind not in _OTHERS:
            return False
    return False


def pixel_fault(data: bytes) -> str | None:
    """Return how the file is too short for the size in its header, or None if it is not.

    Of blocks that are missing libjpeg makes grey ones, if an end marker follows. A block takes at least a bit
    in a progressive file, else two: this finds a header that lies, not a few rows that are lost.
    """
    frame = _first_frame(data)
    if frame is None or len(data) < frame + 8 or data[frame - 1] not in _FRAMES:
        # lossless and arithmetic files need less
        return None
    height, width = struct.unpack_from(">HH", data, frame + 3)
    end = frame + int.from_bytes(data[frame : frame + 2], "big")
    samplings = [divmod(byte, 16) for byte in data[frame + 9 : end : 3]]
    widest, highest = (max((pair[axis] for pair in samplings), default=1) or 1 for axis in (0, 1))
    blocks = sum(
        -(-width * across // (8 * widest)) * -(-height * down // (8 * highest)) for across, down in samplings
    )
    needed = blocks * (1 if data[frame - 1] == _PROGRESSIVE else 2) // 8
    if len(data) >= needed:
        return None
    return f"{len(data)} bytes, where {width} x {height} pixels take at least {needed}"


def _first_frame(data: bytes) -> int | None:
    """Return the place behind the marker of the first frame."""
    place = 2
    while (place := _next_marker(data, place, in_scan=False)) >= 0:
        if 0xC0 <= data[place] <= 0xCF and data[place] not in (0xC4, 0xC8, 0xCC):
            return place + 1
        if data[place] in (_END, _SCAN):
            return None
        place += 1 + int.from_bytes(data[place + 1 : place + 3], "big")
    return None


def num_scans(data: bytes) -> int:
    """Return how often the mark of a scan stands in the file: as many scans as there are, or a few more.

    Compressed data never hold it; application data, such as a preview of its own, may.
    """
    return data.count(b"\xff\xda")


def _next_marker(data: bytes, place: int, *, in_scan: bool) -> int:
    """Return the place of the next marker's second byte from ``place`` on, or -1.

    Outside of scans markers follow each other; before each may stand any number of bytes 0xFF.
    """
    last = len(data) - 1
    # find() is quicker by far than a regular expression over the data
    while 0 <= (mark := data.find(b"\xff", place)) < last:
        if not in_scan and mark != place:
            return -1
        code = data[mark + 1]
        if code == 0xFF:
            place = mark + 1
        elif code in _IN_SCAN:
            if not in_scan:
                return -1
            place = mark + 2
        else:
            return mark + 1
    return -1
