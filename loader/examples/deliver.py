"""The last stages of a batch: remove padding, or add weights."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from tfshards.loader.examples.content import Batch, Content, Nest, with_elements
from tfshards.loader.options.load_options import WEIGHT


def without_padding(values: Nest, extra: Mapping[str, tf.Tensor]) -> Batch:
    """Return a batch without padding, which only the last batches of an epoch have."""
    real = extra["real"]
    everything = (values, {name: value for name, value in extra.items() if name != "real"})
    kept: Batch = tf.cond(
        tf.reduce_all(real),
        lambda: everything,
        lambda: tf.nest.map_structure(lambda value: _masked(value, real), everything),
    )
    return kept


def delivered(content: Content, values: Nest, extra: Mapping[str, tf.Tensor]) -> Nest:
    """Return a batch as it is delivered to the user."""
    batch = _features(content, values) if content.user_map is None else values
    if not content.adds_weight:
        return batch
    weights = _weights(extra)
    # check_returned() has rejected anything else.
    return {**batch, WEIGHT: weights} if isinstance(batch, dict) else (*batch, weights)


def _features(content: Content, values: Mapping[str, tf.Tensor]) -> Nest:
    """Return the features as a dict or a tuple."""
    batch = with_elements(content, values)
    return tuple(batch.values()) if content.as_tuple else batch


def _weights(extra: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Return the weights of a batch; padding has weight 0."""
    if "real" not in extra:
        return extra["weight"]
    weights = extra.get("weight", tf.ones_like(extra["real"], tf.float32))
    return tf.where(extra["real"], weights, 0)


def _masked(value: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
    mask = tf.ragged.boolean_mask if isinstance(value, tf.RaggedTensor) else tf.boolean_mask
    return mask(value, real)
