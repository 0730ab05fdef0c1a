"""The operations of the order's arithmetic as operations in the graph.

Each operation delays the first batch by about a millisecond, so each is as few of TensorFlow's as possible.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfshards.loader.graph.raw_ops import gather, upper_bound
from tfshards.loader.order.ops import Ops


def first_after(ends: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Return the index of the first of the ascending ``ends`` after each value, shape ``(n,)`` int64."""
    rows = ends[np.newaxis] if isinstance(ends, np.ndarray) else tf.expand_dims(ends, 0)
    index = upper_bound(rows, tf.expand_dims(values, 0))
    return tf.squeeze(index, 0)


def repeated(counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return each index ``counts[index]`` times, and the number of its earlier occurrences: both int64."""
    # tf.repeat() consists of fifty operations.
    ends = tf.cumsum(counts)
    times = tf.range(tf.reduce_sum(counts), dtype=tf.int64)
    index = first_after(ends, times)
    return index, times - gather(ends - counts, index)


def _unsigned(values: tf.Tensor | np.ndarray | int) -> tf.Tensor:
    if isinstance(values, int):
        return tf.constant(values % 2**64, tf.uint64)
    return tf.cast(tf.convert_to_tensor(values), tf.uint64)


def _ascending(values: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.math.top_k(-values, tf.size(values)).indices, tf.int64)


def _checked(values: tf.Tensor, condition: tf.Tensor, message: str) -> tf.Tensor:
    with tf.control_dependencies([tf.debugging.assert_equal(condition, True, message)]):
        return tf.identity(values)


GRAPH = Ops(
    unsigned=_unsigned,
    signed=lambda values: tf.cast(values, tf.int64),
    shifted=lambda values, bits: tf.bitwise.right_shift(values, tf.constant(bits, tf.uint64)),
    gather=gather,
    first_after=first_after,
    ascending=_ascending,
    repeated=repeated,
    arange=lambda stop: tf.range(stop, dtype=tf.int64),
    minimum=tf.minimum,
    maximum=tf.maximum,
    where=tf.where,
    full=lambda length, value: tf.fill([length], value),
    concat=lambda arrays: tf.concat(arrays, axis=0),
    split=lambda values, lengths: tf.split(values, lengths),
    unstack=tf.unstack,
    columns=lambda rows: tf.unstack(rows, axis=1),
    stack=lambda arrays, axis: tf.stack(arrays, axis),
    reshape=tf.reshape,
    cast=lambda values, dtype: tf.cast(values, dtype),
    exp=tf.exp,
    sqrt=tf.sqrt,
    rint=tf.round,
    all_of=lambda rows: tf.reduce_all(rows, axis=-1),
    argmax=lambda values: tf.argmax(tf.cast(values, tf.int32)),
    kept=tf.boolean_mask,
    exchanged=lambda values, indices: tf.gather(values, indices, axis=1),
    checked=_checked,
    length=lambda rows: tf.shape(rows, tf.int64)[0],
    every=tf.reduce_all,
)
