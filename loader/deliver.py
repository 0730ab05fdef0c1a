"""A batch as the user gets it: without its padding, or with weights."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from tfshards.loader.options import WEIGHT
from tfshards.loader.reading import Batch, Nest, Reading, with_elements
from tfshards.loader.targets import one_hot_vectors


def without_padding(values: Nest, beside: Mapping[str, tf.Tensor]) -> Batch:
    """Return a batch less its padding, which only the last ones of an epoch have."""
    real = beside["real"]
    everything = (values, {name: value for name, value in beside.items() if name != "real"})
    kept: Batch = tf.cond(
        tf.reduce_all(real),
        lambda: everything,
        lambda: tf.nest.map_structure(lambda value: _masked(value, real), everything),
    )
    return kept


def delivered(reading: Reading, values: Nest, beside: Mapping[str, tf.Tensor]) -> Nest:
    """Return a batch as the user gets it."""
    batch = _features(reading, values) if reading.user_map is None else values
    if reading.lists == "padded":
        batch = tf.nest.map_structure(_padded, batch)
    if not reading.adds_weight:
        return batch
    weights = _weights(beside)
    # load() has refused what is neither
    return {**batch, WEIGHT: weights} if isinstance(batch, dict) else (*batch, weights)


def _features(reading: Reading, values: Mapping[str, tf.Tensor]) -> Nest:
    """Return the features as a dict or a tuple."""
    batch = with_elements(reading, values)
    for feature in reading.features:
        if feature.name in reading.one_hot:
            depth = reading.one_hot[feature.name]
            batch[feature.name] = one_hot_vectors(batch[feature.name], feature, depth)
    return tuple(batch.values()) if reading.as_tuple else batch


def _weights(beside: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Return the weights of a batch, 0 for padding whatever it would weigh."""
    if "real" not in beside:
        return beside["weight"]
    weights = beside.get("weight", tf.ones_like(beside["real"], tf.float32))
    return tf.where(beside["real"], weights, 0)


def _padded(value: tf.Tensor) -> tf.Tensor:
    return value.to_tensor() if isinstance(value, tf.RaggedTensor) else value


def _masked(value: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
    mask = tf.ragged.boolean_mask if isinstance(value, tf.RaggedTensor) else tf.boolean_mask
    return mask(value, real)
