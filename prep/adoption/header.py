"""The shape of an image as its header states it, for files that are not to be decoded."""

from __future__ import annotations

import struct
from typing import TypeAlias

from tfshards.prep.formats import HEAD_BYTES, format_of

# Height, width and channels; None where the header does not tell.
HeaderShape: TypeAlias = "tuple[int | None, int | None, int]"

# The formats that the loader decodes and that have a mark of their own.
DECODED = ("JPEG", "PNG", "GIF", "WEBP")

_GREY_PNG = 0
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_SCAN = 0xDA


def image_shape(data: bytes) -> HeaderShape | None:
    """Return the shape of the pixels of an encoded image; None if ``data`` does not begin as one does.

    Grey JPEG and PNG have 1 channel, all else 3, as the loader decodes it.
    """
    found = format_of(data[:HEAD_BYTES])
    if found not in DECODED:
        return None
    if found == "PNG" and data[12:16] == b"IHDR" and len(data) >= 26:
        width, height = struct.unpack_from(">II", data, 16)
        return height, width, 1 if data[25] == _GREY_PNG else 3
    return (_jpeg_shape(data) if found == "JPEG" else None) or (None, None, 3)


def _jpeg_shape(data: bytes) -> HeaderShape | None:
    """Return what the first frame of a JPEG says (ITU-T T.81, B.2.2); None if there is none before a scan."""
    place = 2
    while place + 10 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return height, width, 1 if data[place + 9] == 1 else 3
        if marker == 0xFF:
            # a byte of padding
            place += 1
            continue
        if marker == _JPEG_SCAN:
            return None
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return None


def common_shape(one: HeaderShape, other: HeaderShape) -> HeaderShape:
    """Return the shape that images of both shapes have; of grey and colour, colour."""
    height = one[0] if one[0] == other[0] else None
    width = one[1] if one[1] == other[1] else None
    return height, width, max(one[2], other[2])
