"""The user's function on each example: how it is called, its seed, and what it may return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import tensorflow as tf

from tfshards.loader.options import WEIGHT
from tfshards.loader.order import MAP, random_bits
from tfshards.loader.static import static_tensors
from tfshards.schemas import OptionsError

_NO_MAP = (
    "static= is what map_fn= is given beside each example, but there is no map_fn=; add "
    "map_fn=lambda example, seed, static: ..., or use loader.replicate(strategy, static) in your own loop"
)


@dataclass(frozen=True)
class UserMap:
    """The user's function with what it is called with besides an example.

    Attributes:
        function: takes the example, its seed, and ``static`` if there is any.
        seed: of its seeds.
        static: no element, or the one nest of tensors.
    """

    function: Callable[..., object]
    seed: int
    static: tuple[object, ...] = ()

    def __call__(self, example: Mapping[str, tf.Tensor], seed: tf.Tensor) -> object:
        """Return what the function makes of an example; AutoGraph rewrites it, as in ``tf.data``'s map."""
        return self.function(example, seed, *self.static)


def user_map(map_fn: Callable[..., object] | None, static: object, seed: int) -> UserMap | None:
    """Return the function of ``load``'s options, None where there is none.

    Raises:
        OptionsError: a value in ``static`` is no tensor.
    """
    if map_fn is None:
        return None
    return UserMap(map_fn, seed, () if static is None else (static_tensors(static),))


def check_map_fn(map_fn: object, static: object) -> None:
    """Raise unless ``map_fn`` is None or a function that takes an example, a seed and, if given, ``static``.

    Raises:
        OptionsError: it is not, or there is ``static`` without it.
    """
    if map_fn is None:
        if static is not None:
            raise OptionsError(_NO_MAP)
        return
    if not callable(map_fn):
        raise OptionsError(f"map_fn={map_fn!r} must be a function of an example and its seed")
    given = ("example", "seed") if static is None else ("example", "seed", "static")
    try:
        signature = inspect.signature(map_fn)
    except (TypeError, ValueError):
        return  # some callables of C have none; the call will tell
    try:
        signature.bind(*given)
    except TypeError as error:
        raise OptionsError(f"map_fn{signature} is called as map_fn({', '.join(given)}): {error}") from None


def map_seeds(seed: int, epoch: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Return the seeds of the examples ``numbers`` (int64) in an epoch: shape ``(*numbers, 2)`` int64."""
    return random_bits(seed, MAP, epoch, numbers[..., tf.newaxis], tf.range(2, dtype=tf.int64))


def check_returned(spec: object, adds_weight: bool) -> None:
    """Raise unless what ``map_fn`` returns, of this ``element_spec``, can be put into batches.

    Raises:
        OptionsError: it cannot, or there is no place for the weight that is to be added to it.
    """
    leaves = list(_leaves(spec, ""))
    if not leaves:
        raise OptionsError(f"map_fn returns {spec!r}; it must return the tensors that go into a batch")
    for place, leaf in leaves:
        value = f"map_fn returns {place and repr(place) + ' as '}"
        if isinstance(leaf, tf.RaggedTensorSpec):
            continue
        if not isinstance(leaf, tf.TensorSpec):
            kind = type(leaf).__name__.removesuffix("Spec").replace("NoneTensor", "None")
            raise OptionsError(f"{value}{kind}; return tensors, alone or in dicts and tuples")
        shape = leaf.shape
        if shape.rank is None or (None in shape.as_list() and shape.as_list() != [None]):
            raise OptionsError(
                f"{value}a tensor of shape {shape}: examples whose shapes may differ cannot be batched; give "
                "each the same size, as by tf.image.resize, or say its shape by tf.ensure_shape(value, shape)"
            )
    if not adds_weight:
        return
    if isinstance(spec, dict):
        if WEIGHT in spec:
            raise OptionsError(
                f"map_fn returns {WEIGHT!r}, which remainder='pad' and sample_weights= add; "
                "call it otherwise, or store the weights as a feature and name that in sample_weights="
            )
    elif type(spec) is not tuple:
        kind = "a tensor" if isinstance(spec, tf.TypeSpec) else f"a {type(spec).__name__}"
        raise OptionsError(
            f"map_fn returns {kind}, which has no place for the weights that remainder='pad' and "
            "sample_weights= add; return a dict or a tuple, such as (value,)"
        )


def _leaves(spec: object, place: str) -> Iterator[tuple[str, object]]:
    if isinstance(spec, Mapping):
        parts = [(str(key), value) for key, value in spec.items()]
    elif isinstance(spec, tuple):
        names = getattr(spec, "_fields", range(len(spec)))
        parts = [(str(name), value) for name, value in zip(names, spec, strict=True)]
    else:
        yield place, spec
        return
    for name, value in parts:
        yield from _leaves(value, f"{place}/{name}" if place else name)
