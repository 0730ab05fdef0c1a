"""Images stored as their pixels: PNM files whose header has 19 bytes, so that readers find any row at once.

``P5`` for gray or ``P6`` for RGB, width and height with five digits each, and 255, with a space between them
and a line feed at the end; then the rows from the top, of uint8. Every reader of PNM decodes them
(https://netpbm.sourceforge.net/doc/ppm.html).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

HEADER_BYTES = 19
MOST_SIDE = 99_999
# Offsets of the digits of width and height.
WIDTH_AT, HEIGHT_AT, DIGITS = 3, 9, 5
PATTERN = rb"P[56] [0-9]{5} [0-9]{5} 255\n"
_HEADER = re.compile(PATTERN)


class Sides(NamedTuple):
    """Height, width and channels (1 or 3)."""

    height: int
    width: int
    channels: int


def encode(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return pixels, ``(height, width)`` or ``(height, width, 3)`` uint8, as a file."""
    kind = 5 if pixels.ndim == 2 else 6
    return b"P%d %05d %05d 255\n" % (kind, pixels.shape[1], pixels.shape[0]) + pixels.tobytes()


def sides_of(data: bytes) -> Sides | None:
    """Return the sides in the header of a file of pixels; None for other files."""
    if not _HEADER.match(data):
        return None
    width, height = (int(data[start : start + DIGITS]) for start in (WIDTH_AT, HEIGHT_AT))
    return Sides(height, width, 3 if data.startswith(b"P6") else 1)
