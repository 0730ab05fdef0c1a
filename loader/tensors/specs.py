"""The specifications of examples in the graph, and the function of the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import tensorflow as tf

from tfshards.loader.examples.content import Content, check_takes_weight, without_elements
from tfshards.schemas import OptionsError

# The result of the user's function for an example: a tensor, or dicts and tuples of tensors.
Nest: TypeAlias = "tf.Tensor"
# The features by name, and the tensors that accompany them until batches are made, by name: "real", "weight",
# and the random draws for an example.
Values: TypeAlias = "tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]"
Batch: TypeAlias = "tuple[Nest, dict[str, tf.Tensor]]"


def check_returned(spec: object, adds_weight: bool) -> None:
    """Raise unless results of ``map_fn`` with this ``element_spec`` can be batched."""
    leaves = tf.nest.flatten(spec)
    if not leaves:
        raise OptionsError(f"map_fn returns {spec!r}; it must return the tensors that go into a batch")
    for leaf in leaves:
        if not isinstance(leaf, (tf.TensorSpec, tf.RaggedTensorSpec)):
            kind = type(leaf).__name__.removesuffix("Spec").replace("NoneTensor", "None")
            raise OptionsError(f"map_fn returns {kind}; return tensors, alone or in dicts and tuples")
        is_whole = leaf.shape.rank is not None and None not in leaf.shape.as_list()
        if isinstance(leaf, tf.TensorSpec) and not is_whole and not is_list(leaf.shape):
            raise OptionsError(
                f"map_fn returns a tensor of shape {leaf.shape}: examples whose shapes may differ cannot be "
                "batched; give each the same size, for example with tf.image.resize, or state its shape "
                "with tf.ensure_shape"
            )
    if adds_weight:
        check_takes_weight(spec, "a tensor" if isinstance(spec, tf.TypeSpec) else f"a {type(spec).__name__}")


def is_list(shape: tf.TensorShape) -> bool:
    """Whether an example's tensor is a list of any length, of values, rows or images of one shape."""
    sides = [] if shape.rank is None else shape.as_list()
    return sides[:1] == [None] and None not in sides[1:]


def with_elements(content: Content, values: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return the features of a batch or an example by name, in order, including those without elements."""
    whole = {feature.name: values[feature.name] for feature in content.features}
    for feature in without_elements(content.features):
        dtype = tf.string if feature.dtype == "bytes" else feature.dtype
        replaced = whole[feature.name]
        empty = tf.zeros(tf.concat([tf.shape(replaced), feature.shape], axis=0), dtype)
        whole[feature.name] = tf.ensure_shape(empty, [*replaced.shape, *feature.shape])
    return whole
