"""The specifications of examples in the graph, and the function of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from tfshards.loader.examples.content import Content, pixels_shape, without_elements
from tfshards.loader.examples.ops import random_bits
from tfshards.loader.options.load_options import WEIGHT
from tfshards.loader.order.epoch import MAP
from tfshards.loader.tensors.ops import GRAPH
from tfshards.schemas import OptionsError

# The result of the user's function for an example: a tensor, or dicts and tuples of tensors.
Nest: TypeAlias = "tf.Tensor"
# The features by name, and the tensors that accompany them until batches are made, by name: "real", "weight",
# and the random draws for an example.
Values: TypeAlias = "tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]"
Batch: TypeAlias = "tuple[Nest, dict[str, tf.Tensor]]"


def traced(
    user_map: Callable[..., object], example: Mapping[str, tf.TensorSpec]
) -> tuple[Callable[..., object], object]:
    """Return the user's function traced once, and the specification of its result."""

    def call(example: Mapping[str, tf.Tensor], seed: tf.Tensor) -> object:
        return user_map(example, seed)

    function = tf.function(call, input_signature=[example, tf.TensorSpec([2], tf.int64)])
    return function, function.get_concrete_function().structured_outputs


def map_seeds(seed: int, epoch: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Return the seeds of the examples ``numbers`` (int64) in an epoch: shape ``(*numbers, 2)`` int64."""
    return random_bits(GRAPH, seed, MAP, epoch, numbers[..., tf.newaxis], np.arange(2))


def check_returned(spec: object, adds_weight: bool) -> None:
    """Raise unless results of ``map_fn`` with this ``element_spec`` can be batched."""
    leaves = tf.nest.flatten(spec)
    if not leaves:
        raise OptionsError("map-fn-result", spec=spec)
    for leaf in leaves:
        if not isinstance(leaf, (tf.TensorSpec, tf.RaggedTensorSpec)):
            kind = type(leaf).__name__.removesuffix("Spec").replace("NoneTensor", "None")
            raise OptionsError("map-fn-value", kind=kind)
        is_whole = leaf.shape.rank is not None and None not in leaf.shape.as_list()
        if isinstance(leaf, tf.TensorSpec) and not is_whole and not is_list(leaf.shape):
            raise OptionsError("map-fn-shape", shape=leaf.shape)
    if not adds_weight:
        return
    if isinstance(spec, dict):
        if WEIGHT in spec:
            raise OptionsError("map-fn-weight", weight=WEIGHT)
    elif type(spec) is not tuple:
        kind = "a tensor" if isinstance(spec, tf.TypeSpec) else f"a {type(spec).__name__}"
        raise OptionsError("map-fn-kind", kind=kind)


def is_list(shape: tf.TensorShape) -> bool:
    """Whether an example's tensor is a list of any length, of values, rows or images of one shape."""
    sides = [] if shape.rank is None else shape.as_list()
    return sides[:1] == [None] and None not in sides[1:]


def example_spec(content: Content) -> dict[str, tf.TensorSpec]:
    """Return the specification of one example by feature, with decoded images, before the user's function."""
    specs = {}
    for feature in content.features:
        image = content.images.get(feature.name)
        if image is not None:
            specs[feature.name] = tf.TensorSpec(pixels_shape(feature, image), image.dtype)
        elif feature.is_encoded:
            specs[feature.name] = tf.TensorSpec([], tf.string)
        else:
            dtype = tf.string if feature.dtype == "bytes" else feature.dtype
            if feature.name in content.moved:
                dtype = tf.float32
            specs[feature.name] = tf.TensorSpec(feature.shape, dtype)
    return specs


def with_elements(content: Content, values: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return the features of a batch or an example by name, in order, including those without elements."""
    whole = {feature.name: values[feature.name] for feature in content.features}
    for feature in without_elements(content.features):
        dtype = tf.string if feature.dtype == "bytes" else feature.dtype
        replaced = whole[feature.name]
        empty = tf.zeros(tf.concat([tf.shape(replaced), feature.shape], axis=0), dtype)
        whole[feature.name] = tf.ensure_shape(empty, [*replaced.shape, *feature.shape])
    return whole
