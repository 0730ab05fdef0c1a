"""Read the shape of an image from its header without decoding it."""

from __future__ import annotations

import struct
from typing import TypeAlias

from tfshards.prep.imaging import jpeg, png
from tfshards.prep.imaging.formats import HEAD_BYTES, format_of

# Height, width and channels; None where the header does not state it.
HeaderShape: TypeAlias = "tuple[int | None, int | None, int]"

_GRAY_PNG = 0


def image_shape(data: bytes) -> HeaderShape | None:
    """Return the shape of the pixels of an encoded image, as the loader decodes it.

    Gray JPEG and PNG files have 1 channel, all others 3.

    Returns:
        None if ``data`` does not begin like a format that the loader decodes.
    """
    found = format_of(data[:HEAD_BYTES])
    if found is None or not found.is_decoded_by_loader:
        return None
    if found.name == "PNG" and data[12:16] == b"IHDR" and len(data) >= 26:
        width, height = struct.unpack_from(">II", data, 16)
        return height, width, 1 if data[25] == _GRAY_PNG else 3
    frame = jpeg.frame_header(data) if found.name == "JPEG" else None
    if frame is None:
        return None, None, 3
    height, width, num_components = frame
    return height, width, 1 if num_components == 1 else 3


def has_deep_header(data: bytes) -> bool:
    """Return whether an encoded image is a PNG with 16 bits per sample."""
    return data.startswith(png.SIGNATURE) and data[12:16] == b"IHDR" and data[24:25] == b"\x10"


def common_shape(one: HeaderShape, other: HeaderShape) -> HeaderShape:
    """Return the shape that describes images of both shapes; gray and color together are color."""
    height = one[0] if one[0] == other[0] else None
    width = one[1] if one[1] == other[1] else None
    return height, width, max(one[2], other[2])
