"""A batch as the user gets it: without its padding, or with weights; a dict, or a tuple."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from tfshards.loader.reading import Reading, Values, without_elements

WEIGHT = "sample_weight"


def without_padding(values: Mapping[str, tf.Tensor], beside: Mapping[str, tf.Tensor]) -> Values:
    """Return a batch less its padding, which only the last ones of an epoch have."""
    real = beside["real"]
    kept = tf.cond(
        tf.reduce_all(real),
        lambda: dict(values),
        lambda: {name: _masked(value, real) for name, value in values.items()},
    )
    return kept, {}


def _masked(value: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
    mask = tf.ragged.boolean_mask if isinstance(value, tf.RaggedTensor) else tf.boolean_mask
    return mask(value, real)


def delivered(
    reading: Reading, values: Mapping[str, tf.Tensor], beside: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor] | tuple[tf.Tensor, ...]:
    """Return a batch as the user gets it."""
    batch = {feature.name: values[feature.name] for feature in reading.features}
    for feature in without_elements(reading.features):
        dtype = tf.string if feature.dtype == "bytes" else feature.dtype
        stand_in = batch[feature.name]
        empty = tf.zeros(tf.concat([tf.shape(stand_in), feature.shape], axis=0), dtype)
        batch[feature.name] = tf.ensure_shape(empty, [*stand_in.shape, *feature.shape])
    for feature in reading.features:
        if feature.is_ragged and reading.lists == "padded":
            batch[feature.name] = batch[feature.name].to_tensor()
    delivered = tuple(batch.values())
    if reading.assignment.remainder == "pad":
        weights = tf.cast(beside["real"], tf.float32)
        return (*delivered, weights) if reading.as_tuple else {**batch, WEIGHT: weights}
    return delivered if reading.as_tuple else batch
