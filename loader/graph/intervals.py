"""Arithmetic in the graph on intervals ``[start, start + count)``, given as vectors of starts and counts.

Each operation delays the first batch by about a millisecond, so this file uses as few as possible.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.loader.graph.raw_ops import gather, upper_bound


def split(
    ends: npt.NDArray[np.int64], starts: tf.Tensor, counts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
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
    first, last = found(ends, starts), found(ends, stops - 1)
    # An interval has at most as many pieces as elements; an empty one has none.
    interval, within = repeated(tf.minimum(last - first + 1, counts))
    row = gather(first, interval) + within
    low = tf.maximum(gather(starts, interval), gather(np.append(0, ends[:-1]), row))
    high = tf.minimum(gather(stops, interval), gather(ends, row))
    return interval, row, low, high - low


def cut_at_multiples(starts: tf.Tensor, counts: tf.Tensor, unit: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Split intervals at the multiples of ``unit``; return starts and counts, shape ``(pieces,)`` int64."""
    first, ends = starts // unit, starts + counts
    pieces = tf.minimum((ends + (unit - 1)) // unit - first, counts)
    if starts.shape[0] == 1:
        units = first + tf.range(tf.squeeze(pieces, 0), dtype=tf.int64)
    else:
        interval, within = repeated(pieces)
        units = gather(first, interval) + within
        starts, ends = gather(starts, interval), gather(ends, interval)
    begins = units * unit
    low = tf.maximum(starts, begins)
    return low, tf.minimum(ends, begins + unit) - low


def repeated(counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return each index ``counts[index]`` times, and the number of its earlier occurrences: both int64."""
    # tf.repeat() consists of fifty operations.
    ends = tf.cumsum(counts)
    times = tf.range(tf.reduce_sum(counts), dtype=tf.int64)
    index = found(ends, times)
    return index, times - gather(ends - counts, index)


def found(ends: npt.NDArray[np.int64] | tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Return the first row that ends after each of ``values``, shape ``(n,)`` int64."""
    rows = ends[np.newaxis] if isinstance(ends, np.ndarray) else tf.expand_dims(ends, 0)
    index = upper_bound(rows, tf.expand_dims(values, 0))
    return tf.squeeze(index, 0)
