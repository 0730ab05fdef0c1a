"""Segments ``[start, start + count)`` in the graph: vectors of starts and counts, cut and repeated.

Each operation here delays the first batch by about a millisecond, so there are as few as can be.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import tensorflow as tf


def split(
    ends: npt.NDArray[np.int64], starts: tf.Tensor, counts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Cut segments where rows of a table end; row ``i`` is what lies between two neighbours in ``ends``.

    Args:
        ends: shape ``(rows,)``, ascending; no row is empty. The first row begins at 0.
        starts: shape ``(n,)`` int64, each in ``[0, ends[-1])``.
        counts: shape ``(n,)`` int64; no segment passes ``ends[-1]``.

    Returns:
        Of each piece that is not empty, in order, shape ``(pieces,)`` int64: the segment, the row, start and
        count.
    """
    stops = starts + counts
    first, last = found(ends, starts), found(ends, stops - 1)
    # a segment has no more pieces than elements, and an empty one has none
    segment, within = repeated(tf.minimum(last - first + 1, counts))
    row = gather(first, segment) + within
    low = tf.maximum(gather(starts, segment), gather(np.append(0, ends[:-1]), row))
    high = tf.minimum(gather(stops, segment), gather(ends, row))
    return segment, row, low, high - low


def cut_at_multiples(starts: tf.Tensor, counts: tf.Tensor, unit: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return segments cut where a multiple of ``unit`` lies inside: starts and counts, vectors int64."""
    first, ends = starts // unit, starts + counts
    pieces = tf.minimum((ends + (unit - 1)) // unit - first, counts)
    if starts.shape[0] == 1:
        units = first + tf.range(tf.squeeze(pieces, 0), dtype=tf.int64)
    else:
        segment, within = repeated(pieces)
        units = gather(first, segment) + within
        starts, ends = gather(starts, segment), gather(ends, segment)
    begins = units * unit
    low = tf.maximum(starts, begins)
    return low, tf.minimum(ends, begins + unit) - low


def repeated(counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the index of each element ``counts`` times, and which of these times it is: both int64."""
    # tf.repeat() is fifty operations
    ends = tf.cumsum(counts)
    times = tf.range(tf.reduce_sum(counts), dtype=tf.int64)
    index = found(ends, times)
    return index, times - gather(ends - counts, index)


def gather(values: npt.NDArray[np.int64] | tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Return ``tf.gather(values, indices)``, in two operations less."""
    return tf.raw_ops.Gather(params=values, indices=indices, validate_indices=False)


def found(ends: npt.NDArray[np.int64] | tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Return the first row that ends behind each of ``values``, shape ``(n,)`` int64.

    As ``tf.searchsorted`` has it, which is a dozen operations.
    """
    rows = ends[np.newaxis] if isinstance(ends, np.ndarray) else tf.expand_dims(ends, 0)
    index = tf.raw_ops.UpperBound(sorted_inputs=rows, values=tf.expand_dims(values, 0), out_type=tf.int64)
    return tf.squeeze(index, 0)
