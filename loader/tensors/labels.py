"""Weights of examples in the graph."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from tfshards.loader.examples.weights import Weighing
from tfshards.loader.graph.raw_ops import fail_unless


def example_weights(source: Weighing, values: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Return the weights (float32) of the examples with these parsed ``values``."""
    found = values[source.feature.name]
    if not source.classes:
        return tf.cast(found, tf.float32)
    labels = tf.cast(found, tf.int64)
    classes = tf.constant(source.classes, tf.int64)
    index = tf.minimum(tf.searchsorted(classes, labels), len(source.classes) - 1)
    wrong = tf.boolean_mask(labels, tf.gather(classes, index) != labels)
    does = ", which no example has according to the manifest; `tfshards verify DATASET --deep` lists them"
    numbers = tf.strings.as_string(wrong[:1])
    texts = tf.strings.join([f"feature {source.feature.name} holds the class ", numbers, does])
    with tf.control_dependencies([fail_unless(tf.strings.reduce_join(texts))]):
        return tf.gather(tf.constant(source.weights, tf.float32), tf.identity(index))
