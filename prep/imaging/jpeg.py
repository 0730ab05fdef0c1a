"""Parse the structure of a JPEG file; Pillow ignores faults after the last row.

Format: ITU-T T.81, annex B. Pixels are not decoded here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

START = b"\xff\xd8\xff"

_FRAMES = (0xC0, 0xC1, 0xC2)
# Lossless, hierarchical and arithmetic ones as well; the markers between them are tables and a reserved one.
_ANY_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = 0xC2
# Pillow's modes by number of components.
_MODES = {1: "L", 3: "RGB"}
_END, _SCAN = 0xD9, 0xDA
# Huffman and quantization tables, restart interval, application data, comment.
_OTHERS = frozenset((0xC4, 0xDB, 0xDD, *range(0xE0, 0xF0), 0xFE))
_APPLICATION = range(0xE0, 0xF0)
# By marker and length: application data that do not change the decoded pixels.
_BARE = {(0xE0, 16): b"JFIF\0", (0xEE, 14): b"Adobe"}
_END_MARKER = b"\xff\xd9"
# A scan may contain 0xFF followed by a zero, which is a data byte, and restart markers.
_MARKER_IN_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7]", re.DOTALL)


class Structure(NamedTuple):
    """The structure of a JPEG file."""

    # One frame, 8-bit baseline or progressive Huffman, with every coefficient, and complete up to the end
    # marker. If scans lack coefficients, two releases of libjpeg may decode different pixels.
    is_plain: bool
    # if the file is not plain, including scan markers in application data
    num_scans: int
    # offset after the marker of the first frame
    frame: int | None
    # Pillow's mode, width and height of a plain file without metadata other than the usual JFIF and Adobe
    # segments and comments: no EXIF, no color profile, no second picture
    header: tuple[str, tuple[int, int]] | None = None


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the segments of a file up to its end marker or the first damage.

    Each is the second byte of its marker, and the offsets of the length after it and of the end, which may be
    beyond the end of a damaged file.
    """
    offset, has_scan = 2, False
    last_offset = len(data) - 4
    while offset <= last_offset or data[offset : offset + 2] == _END_MARKER:
        if data[offset] != 0xFF:
            return
        marker, start = data[offset + 1], offset + 2
        if marker == 0xFF:
            # any number of 0xFF bytes may precede a marker
            offset += 1
            continue
        if marker == _END:
            yield marker, start, start
            return
        # the length counts its own two bytes
        length = data[start] << 8 | data[start + 1]
        offset = start + length
        yield marker, start, offset
        if length < 2 or offset > len(data):
            return
        has_scan = has_scan or marker == _SCAN
        if has_scan:
            # the data of a scan have no stated length: they end at the next marker
            found = _MARKER_IN_SCAN.search(data, offset)
            if found is None:
                return
            offset = found.start()


def structure(data: bytes) -> Structure:
    """Return the structure of a file."""
    num_frames, num_scans = 0, 0
    frame: int | None = None
    # by component, one bit for each of the 64 coefficients of its blocks
    missing: dict[int, int] = {}
    is_bare = True
    for marker, start, end in _segments(data):
        if marker == _END:
            is_plain = num_frames == 1 and num_scans > 0 and not any(missing.values())
            header = _header(data, frame) if is_plain and is_bare and frame is not None else None
            return Structure(is_plain, num_scans, frame, header)
        if marker in _ANY_FRAME and frame is None and not num_scans:
            frame = start
        if end < start + 2 or end > len(data):
            break
        if marker in _FRAMES and data[start + 2] == 8:
            num_frames += 1
            missing = dict.fromkeys(data[start + 8 : end : 3], (1 << 64) - 1)
        elif marker == _SCAN:
            num_scans += 1
            first, last, bits = data[end - 3 : end]
            if last < 64:
                # Coefficients are complete once a scan holds their lowest bits; the last scan of each counts.
                coefficients = (2 << last) - (1 << first)
                for component in data[start + 3 : end - 3 : 2]:
                    rest = missing.get(component, 0)
                    missing[component] = rest | coefficients if bits & 15 else rest & ~coefficients
        elif marker not in _OTHERS:
            break
        elif marker in _APPLICATION:
            is_bare = is_bare and data[start + 2 : start + 7] == _BARE.get((marker, end - start))
    return Structure(False, data.count(b"\xff\xda"), frame)


def _header(data: bytes, frame: int) -> tuple[str, tuple[int, int]] | None:
    length, _, height, width, num_components = struct.unpack_from(">HBHHB", data, frame)
    mode = _MODES.get(num_components)
    is_sound = mode is not None and length == 8 + 3 * num_components and height > 0 and width > 0
    return (mode, (width, height)) if is_sound and mode else None


def pixel_fault(data: bytes, built: Structure) -> str | None:
    """Return that the file is too short for the size in its header, or None if it is not.

    libjpeg fills in missing blocks with gray if an end marker follows. A block requires at least one bit in a
    progressive file, otherwise two. This detects a false header, not the loss of a few rows.
    """
    frame = built.frame
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
