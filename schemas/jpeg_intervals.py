"""JPEG files that are cut without decoding: restart intervals, an index of them, and the file of a box.

Restart markers (ITU-T T.81, B.2.1) end an interval after the same number of minimum coded units (MCUs) each,
from which decoding may begin. If a row of MCUs is a number of intervals, those that touch a box are, with
their markers renumbered and the sides in the header replaced, a JPEG file themselves. Chroma that is
subsampled is interpolated from the neighbors (libjpeg: fancy upsampling), so that a margin is cut out, too.

The index is an APP9 segment, which decoders skip, at byte 20, after the segment of JFIF. Integers are
little-endian unless they belong to JPEG:

    FF E9, length (2 bytes, big-endian), "tfshards", bytes of the whole file (4), offset of the height in the
    frame header (4), offset of the first interval (4), height and width of the image (2 each), height and
    width in pixels of an interval (2 each), and the bytes of each interval without its marker (2 each)
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

AT = 20
MAGIC = b"tfshards"
# Offsets of the magic bytes, of the three numbers of 4 bytes, of the four of 2 bytes, and of the lengths.
MAGIC_AT = AT + 4
LONG_AT = MAGIC_AT + len(MAGIC)
SHORT_AT = LONG_AT + 12
LENGTHS_AT = SHORT_AT + 8
START, END = b"\xff\xd8", b"\xff\xd9"
MARKERS = tuple(bytes([0xFF, 0xD0 + number]) for number in range(8))
# Interpolated chroma depends on one sample around it, which are two pixels.
MARGIN = 2

# Smaller images are decoded whole in less time than it takes to cut them.
LEAST_PIXELS = 1 << 19
# A crop is cut if the image has so many more pixels: decoding these takes as long as cutting.
LEAST_SPARED = 1 << 18
APP9 = 0xE9


class Intervals(NamedTuple):
    """The index of a file; see the module.

    Attributes:
        frame: the offset of the height in the frame header; the width follows.
        data: the offset of the first interval.
        lengths: the bytes of each interval, row by row, shape ``(n,)`` int64.
    """

    frame: int
    data: int
    height: int
    width: int
    interval_height: int
    interval_width: int
    lengths: npt.NDArray[np.int64]


def intervals_of(data: bytes) -> Intervals | None:
    """Return the index of a file; None if it has none, or one of another file."""
    if data[MAGIC_AT:LONG_AT] != MAGIC or len(data) < LENGTHS_AT or not data.startswith(START):
        return None
    prefix, marker, length = struct.unpack_from(">BBH", data, AT)
    num_bytes, frame, start = struct.unpack_from("<III", data, LONG_AT)
    height, width, down, across = struct.unpack_from("<HHHH", data, SHORT_AT)
    if (prefix, marker, num_bytes) != (0xFF, APP9, len(data)) or not down or not across:
        return None
    count = -(-height // down) * -(-width // across)
    end = LENGTHS_AT + 2 * count
    if AT + 2 + length != end or not end < frame < start < num_bytes:
        return None
    lengths = np.frombuffer(data, "<u2", count, LENGTHS_AT).astype(np.int64)
    # markers between them, and the end of the file, have two bytes each
    if start + int(lengths.sum()) + 2 * count != num_bytes:
        return None
    return Intervals(frame, start, height, width, down, across, lengths)


class Cut(NamedTuple):
    """A JPEG file, and the rows and columns of the image before its first ones."""

    data: bytes
    top: int
    left: int


def cut(data: bytes, index: Intervals, box: tuple[int, int, int, int]) -> Cut:
    """Return the file of the intervals that a box ``(top, left, height, width)`` and its margin touch."""
    top, left, height, width = box
    down, across = index.interval_height, index.interval_width
    rows = range(max(0, top - MARGIN) // down, -(-min(index.height, top + height + MARGIN) // down))
    columns = range(max(0, left - MARGIN) // across, -(-min(index.width, left + width + MARGIN) // across))
    per_row = -(-index.width // across)
    # a marker of two bytes between intervals
    begins = index.data + np.cumsum(index.lengths + 2) - index.lengths - 2
    view, parts = memoryview(data), list[bytes | memoryview]()
    for number in (row * per_row + column for row in rows for column in columns):
        begin = int(begins[number])
        parts += [view[begin : begin + int(index.lengths[number])], MARKERS[len(parts) // 2 % 8]]
    parts[-1] = END
    sides = (
        min(index.height, rows.stop * down) - rows.start * down,
        min(index.width, columns.stop * across) - columns.start * across,
    )
    tables = LENGTHS_AT + 2 * len(index.lengths)
    header = (
        START,
        view[tables : index.frame],
        struct.pack(">HH", *sides),
        view[index.frame + 4 : index.data],
    )
    return Cut(b"".join((*header, *parts)), rows.start * down, columns.start * across)


def spares(index: Intervals, height: int, width: int) -> bool:
    """Return whether a box of these sides is cut, rather than decoded from the whole file."""
    return index.height * index.width - height * width >= LEAST_SPARED
