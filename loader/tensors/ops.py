"""The operations of crops and boxes as operations in the graph."""

from __future__ import annotations

import tensorflow as tf

from tfshards.loader.examples.ops import Ops


def _checked(values: tf.Tensor, condition: tf.Tensor, message: str) -> tf.Tensor:
    with tf.control_dependencies([tf.debugging.assert_equal(condition, True, message)]):
        return tf.identity(values)


GRAPH = Ops(
    arange=lambda stop: tf.range(stop, dtype=tf.int64),
    minimum=tf.minimum,
    maximum=tf.maximum,
    where=tf.where,
    concat=lambda arrays: tf.concat(arrays, axis=0),
    unstack=tf.unstack,
    stack=lambda arrays, axis: tf.stack(arrays, axis),
    reshape=tf.reshape,
    cast=lambda values, dtype: tf.cast(values, dtype),
    sqrt=tf.sqrt,
    rint=tf.round,
    all_of=lambda rows: tf.reduce_all(rows, axis=-1),
    argmax=lambda values: tf.argmax(tf.cast(values, tf.int32)),
    kept=tf.boolean_mask,
    exchanged=lambda values, indices: tf.gather(values, indices, axis=1),
    checked=_checked,
    length=lambda rows: tf.shape(rows, tf.int64)[0],
)
