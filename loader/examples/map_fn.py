"""The user's function on each example: its call, its seeds, and what it may return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import tensorflow as tf

from tfshards.loader.options.load_options import WEIGHT
from tfshards.loader.order.epoch import MAP, random_bits
from tfshards.schemas import OptionsError


@dataclass(frozen=True)
class UserMap:
    """The user's function."""

    function: Callable[..., object]
    seed: int

    def __call__(self, example: Mapping[str, tf.Tensor], seed: tf.Tensor) -> object:
        """Return the result of the function for an example; AutoGraph converts it, as in ``Dataset.map``."""
        return self.function(example, seed)


def traced(user_map: UserMap, example: Mapping[str, tf.TensorSpec]) -> tuple[UserMap, object]:
    """Return ``user_map`` with its function traced once, and the specification of its result."""

    def call(example: Mapping[str, tf.Tensor], seed: tf.Tensor) -> object:
        return user_map(example, seed)

    function = tf.function(call, input_signature=[example, tf.TensorSpec([2], tf.int64)])
    returned = function.get_concrete_function().structured_outputs
    return replace(user_map, function=function), returned


def map_seeds(seed: int, epoch: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Return the seeds of the examples ``numbers`` (int64) in an epoch: shape ``(*numbers, 2)`` int64."""
    return random_bits(seed, MAP, epoch, numbers[..., tf.newaxis], tf.range(2, dtype=tf.int64))


def check_returned(spec: object, adds_weight: bool) -> None:
    """Raise unless results of ``map_fn`` with this ``element_spec`` can be batched."""
    leaves = list(_leaves(spec, ""))
    if not leaves:
        raise OptionsError("map-fn-result", spec=spec)
    for name, leaf in leaves:
        value = f"map_fn returns {name and repr(name) + ' as '}"
        if isinstance(leaf, tf.RaggedTensorSpec):
            continue
        if not isinstance(leaf, tf.TensorSpec):
            kind = type(leaf).__name__.removesuffix("Spec").replace("NoneTensor", "None")
            raise OptionsError("map-fn-value", found=value, kind=kind)
        shape = leaf.shape
        if shape.rank is None or (None in shape.as_list() and not is_list(shape)):
            raise OptionsError("map-fn-shape", found=value, shape=shape)
    if not adds_weight:
        return
    if isinstance(spec, dict):
        if WEIGHT in spec:
            raise OptionsError("map-fn-weight", weight=WEIGHT)
    elif type(spec) is not tuple:
        kind = "a tensor" if isinstance(spec, tf.TypeSpec) else f"a {type(spec).__name__}"
        raise OptionsError("map-fn-kind", kind=kind)


def is_list(shape: tf.TensorShape) -> bool:
    """Whether an example's tensor is a list of any length, or a list of rows of one length."""
    sides = shape.as_list()
    return sides[:1] == [None] and len(sides) <= 2 and None not in sides[1:]


def _leaves(spec: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(spec, Mapping):
        parts = [(str(key), value) for key, value in spec.items()]
    elif isinstance(spec, tuple):
        names = getattr(spec, "_fields", range(len(spec)))
        parts = [(str(name), value) for name, value in zip(names, spec, strict=True)]
    else:
        yield path, spec
        return
    for name, value in parts:
        yield from _leaves(value, f"{path}/{name}" if path else name)
