"""What a JPEG file is made of, as far as Pillow does not look: it forgives what comes behind the last row.

Format: ITU-T T.81, annex B. Pixels are not decoded here.
"""

from __future__ import annotations

import re

# Inside a scan stand the data byte 0xFF, which a zero follows, and the restarts; before a marker, fill bytes.
_MARKER = re.compile(rb"\xff+([^\x00\xd0-\xd7\xff])", re.DOTALL)
_FRAMES = (0xC0, 0xC1, 0xC2)
_END, _SCAN = 0xD9, 0xDA
_SCAN_MARKER = b"\xff\xda"
# Huffman and quantisation tables, restart interval, application data, comment.
_OTHERS = (0xC4, 0xDB, 0xDD, *range(0xE0, 0xF0), 0xFE)


def is_plain(data: bytes) -> bool:
    """Whether there is one frame, 8-bit baseline or progressive Huffman, and all is whole up to its end."""
    place, num_frames = 2, 0
    next_marker = _MARKER.match
    while marker := next_marker(data, place):
        kind, start = marker[1][0], marker.end()
        if kind == _END:
            return num_frames == 1
        # the length counts its own two bytes
        length = int.from_bytes(data[start : start + 2], "big")
        place = start + length
        if length < 2 or place > len(data):
            return False
        if kind in _FRAMES and data[start + 2] == 8:
            num_frames += 1
        elif kind == _SCAN:
            # its data have no length: they end at the next marker
            next_marker = _MARKER.search
        elif kind not in _OTHERS:
            return False
    return False


def num_scans(data: bytes) -> int:
    """Return how often the mark of a scan stands in the file: as many scans as there are, or a few more.

    Compressed data never hold it; application data, such as a preview of its own, may.
    """
    return data.count(_SCAN_MARKER)
