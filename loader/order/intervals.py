"""Arithmetic on intervals ``[start, start + count)``, given as vectors of starts and counts."""

from __future__ import annotations

import numpy as np

from tfshards.loader.order.ops import Array, Ints, Ops


def split(ops: Ops, ends: Ints, starts: Array, counts: Array) -> tuple[Array, Array, Array, Array]:
    """Split intervals at the ends of the rows of a table; row ``i`` is ``[ends[i - 1], ends[i])``.

    Args:
        ends: shape ``(rows,)``, ascending; no row is empty. The first row begins at 0.
        starts: shape ``(n,)`` int64, each in ``[0, ends[-1])``.
        counts: shape ``(n,)`` int64; no interval extends beyond ``ends[-1]``.

    Returns:
        For each nonempty piece, in order: the index of its interval, its row, its start and its count, each
        of shape ``(pieces,)`` int64.
    """
    stops = starts + counts
    first, last = ops.first_after(ends, starts), ops.first_after(ends, stops - 1)
    # An interval has at most as many pieces as elements; an empty one has none.
    interval, within = ops.repeated(ops.minimum(last - first + 1, counts))
    row = ops.gather(first, interval) + within
    low = ops.maximum(ops.gather(starts, interval), ops.gather(np.append(0, ends[:-1]), row))
    high = ops.minimum(ops.gather(stops, interval), ops.gather(ends, row))
    return interval, row, low, high - low


def cut_at_multiples(ops: Ops, starts: Array, counts: Array, unit: int) -> tuple[Array, Array]:
    """Split intervals at the multiples of ``unit``; return starts and counts, shape ``(pieces,)`` int64."""
    first, ends = starts // unit, starts + counts
    pieces = ops.minimum((ends + (unit - 1)) // unit - first, counts)
    if starts.shape[0] == 1:
        # fewer operations in the graph
        units = first + ops.arange(ops.reshape(pieces, []))
    else:
        interval, within = ops.repeated(pieces)
        units = ops.gather(first, interval) + within
        starts, ends = ops.gather(starts, interval), ops.gather(ends, interval)
    begins = units * unit
    low = ops.maximum(starts, begins)
    return low, ops.minimum(ends, begins + unit) - low
