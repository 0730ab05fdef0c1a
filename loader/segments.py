"""Segments ``[start, start + count)`` in the graph: vectors of starts and counts, cut and repeated."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import tensorflow as tf


def split(
    ends: npt.NDArray[np.int64], starts: tf.Tensor, counts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Cut segments where rows of a table end; row ``i`` is what lies between two neighbours in ``ends``.

    Args:
        ends: shape ``(rows,)``, ascending; rows may be empty. The first row begins at 0.
        starts: shape ``(n,)`` int64, each in ``[0, ends[-1])``.
        counts: shape ``(n,)`` int64; no segment passes ``ends[-1]``.

    Returns:
        Of each piece that is not empty, in order, shape ``(pieces,)`` int64: the segment, the row, start and
        count.
    """
    begins, bounds = tf.constant(np.append(0, ends[:-1])), tf.constant(ends)
    first = tf.searchsorted(bounds, starts, side="right", out_type=tf.int64)
    last = tf.searchsorted(bounds, starts + counts - 1, side="right", out_type=tf.int64)
    segment, within = repeated(tf.where(counts > 0, last - first + 1, tf.zeros_like(first)))
    row = tf.gather(first, segment) + within
    low = tf.maximum(tf.gather(starts, segment), tf.gather(begins, row))
    high = tf.minimum(tf.gather(starts + counts, segment), tf.gather(bounds, row))
    full = tf.where(high > low)[:, 0]
    return (
        tf.gather(segment, full),
        tf.gather(row, full),
        tf.gather(low, full),
        tf.gather(high - low, full),
    )


def cut_at_multiples(starts: tf.Tensor, counts: tf.Tensor, unit: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return segments cut where a multiple of ``unit`` lies inside: starts and counts, vectors int64."""
    first, last = starts // unit, (starts + counts + unit - 1) // unit
    segment, within = repeated(tf.where(counts > 0, last - first, tf.zeros_like(first)))
    units = tf.gather(first, segment) + within
    low = tf.maximum(tf.gather(starts, segment), units * unit)
    high = tf.minimum(tf.gather(starts + counts, segment), (units + 1) * unit)
    return low, high - low


def repeated(counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the index of each element ``counts`` times, and which of these times it is: both int64."""
    # tf.repeat() is fifty operations, each of which delays the first batch
    ends = tf.cumsum(counts)
    times = tf.range(tf.reduce_sum(counts))
    index = tf.searchsorted(ends, times, side="right", out_type=tf.int64)
    return index, times - tf.gather(ends - counts, index)
