"""Write the index of the restart intervals of a JPEG file; see ``schemas/jpeg_intervals.py``."""

from __future__ import annotations

import struct

import numpy as np

from tfshards.prep.imaging import jpeg
from tfshards.schemas import jpeg_intervals
from tfshards.schemas.jpeg_intervals import Intervals

# Intervals are about as wide, and none is narrower: of 8 MCUs, their markers are 1 % of a photo, and the
# index 0.3 %.
_WIDTH, _LEAST_WIDTH = 128, 64
# The most that the length of a segment leaves room for.
_MOST_INTERVALS = (0xFFFF - (jpeg_intervals.LENGTHS_AT - jpeg_intervals.AT - 2)) // 2
_BASELINE, _INTERVAL = (0xC0, 0xC1), 0xDD


def intervals_for(height: int, width: int, *, is_gray: bool) -> list[int]:
    """Return how many MCUs an interval may have in a file that Pillow writes with 4:2:0 or in gray.

    The best is the first. An interval of the others may fit the index where one of the first is too long.
    """
    side = 8 if is_gray else 16
    columns, rows = -(-width // side), -(-height // side)
    fitting = [
        number
        for number in range(1, columns + 1)
        if columns % number == 0 and rows * columns // number <= _MOST_INTERVALS
    ]

    def distance(number: int) -> tuple[bool, float]:
        wide = number * side
        return wide < min(_LEAST_WIDTH, width), max(wide / _WIDTH, _WIDTH / wide)

    return sorted(fitting, key=distance)


def _found_intervals(data: bytes) -> Intervals | None:
    """Return the intervals of a baseline file of one scan that divide its rows; None for other files."""
    frame, interval, at = 0, 0, 0
    for marker, start, end in jpeg.segments(data):
        if marker in jpeg.ANY_FRAME:
            if frame or marker not in _BASELINE:
                return None
            frame = start + 3
        if marker == _INTERVAL:
            (interval,) = struct.unpack_from(">H", data, start + 2)
        if marker == jpeg.SCAN:
            at = end
            break
    if not frame or not at:
        return None
    height, width, num_components = struct.unpack_from(">HHB", data, frame)
    samplings = data[frame + 6 : frame + 5 + 3 * num_components : 3]
    across, down = (8 * max((divmod(each, 16)[axis] for each in samplings), default=0) for axis in (0, 1))
    if num_components == 1:
        # a unit is a block, whatever is stated
        across, down = 8, 8
    scan = np.frombuffer(data, np.uint8, offset=at)
    codes = np.append(scan[1:], 0)
    places = np.flatnonzero((scan == 0xFF) & (codes != 0))
    # restart markers in turns, and one end
    expected = 0xD0 + np.arange(len(places)) % len(jpeg_intervals.MARKERS)
    expected[-1:] = jpeg_intervals.END[1]
    if (
        not interval
        or not across
        or not down
        or not len(places)
        or not np.array_equal(codes[places], expected)
    ):
        return None
    if places[-1] != len(scan) - len(jpeg_intervals.END) or -(-width // across) % interval:
        return None
    lengths = np.diff(places, prepend=-2) - 2
    if len(lengths) != -(-height // down) * (-(-width // across) // interval):
        return None
    return Intervals(frame, at, height, width, down, interval * across, lengths.astype(np.int64))


def with_index(data: bytes) -> bytes | None:
    """Return a file of Pillow, written with restart markers, with its index; None if it can have none."""
    found = _found_intervals(data)
    if found is None or found.lengths.max() > 0xFFFF or len(found.lengths) > _MOST_INTERVALS:
        return None
    added = jpeg_intervals.LENGTHS_AT - jpeg_intervals.AT + 2 * len(found.lengths)
    index = b"".join(
        (
            struct.pack(">BBH", 0xFF, jpeg_intervals.APP9, added - 2),
            jpeg_intervals.MAGIC,
            struct.pack("<III", len(data) + added, found.frame + added, found.data + added),
            struct.pack("<HHHH", *found[2:6]),
            found.lengths.astype("<u2").tobytes(),
        )
    )
    return data[: jpeg_intervals.AT] + index + data[jpeg_intervals.AT :]


def is_sound(data: bytes) -> bool:
    """Return whether the index of a file is that of its intervals."""
    index = jpeg_intervals.intervals_of(data)
    if index is None:
        return False
    plain = data[: jpeg_intervals.AT] + data[jpeg_intervals.LENGTHS_AT + 2 * len(index.lengths) :]
    try:
        return with_index(plain) == data
    except (struct.error, ValueError):
        # of a damaged file
        return False
