"""The options of one ``load`` as a value, and how they become the parameters of functions.

A new option is a field here: ``load`` and ``distribute`` have it as a parameter.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeAlias, TypeVar, get_args

from tfshards.loader.options.boxes import Boxes, Keypoints
from tfshards.loader.options.image import Image, check_images
from tfshards.loader.options.order_options import OrderOptions, Remainder
from tfshards.loader.options.selection import (
    Mix,
    Position,
    Shuffle,
    Tracker,
    check_classes,
    check_ratios,
    check_take,
)
from tfshards.loader.options.validation import (
    check_choice,
    check_integer,
    check_least,
    check_type,
    is_integer,
)
from tfshards.loader.options.worker import Worker
from tfshards.schemas import OptionsError
from tfshards.schemas.errors import check_path, parse_size
from tfshards.schemas.storage.any_path import local_path

OnDamage: TypeAlias = Literal["raise", "skip"]
SampleWeights: TypeAlias = "str | Mapping[str, float] | Mapping[int, float]"

P = ParamSpec("P")
Options = TypeVar("Options")
Result = TypeVar("Result")
Self = TypeVar("Self")

# The name under which weights are delivered.
WEIGHT = "sample_weight"
BALANCED = "balanced"

_DISK = "disk:"
_LEAST_BUDGET = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ReadOptions(OrderOptions):
    """What the functions that deliver batches have in common: a field here is a parameter of each.

    Attributes:
        epochs: the epoch to stop before, or None for no end. With the default, one epoch, each iteration
            of the result is the next epoch if epochs differ in anything, as ``model.fit(dataset, epochs=90)``
            expects and ``tf.data``'s own ``shuffle`` does; otherwise every iteration gives the same batches.
        select: names of features; the result is then a tuple of them, also for one name.
        image: how to decode the features of kind ``image`` and ``mask``, or some of them by name; the others
            come as encoded bytes. Masks are cut, resized and mirrored as their images are.
        boxes: the feature that holds the boxes of an image, which are moved as the image is cropped, resized
            and flipped; they come as a ``tf.RaggedTensor`` of shape ``(batch_size, None, 4)``, float32.
        keypoints: the feature that holds the keypoints of an image, which are moved in the same way.
        sample_weights: the weight of each example: "balanced" as in ``class_weights``, weights by name or
            number of the class, or the name of a feature that holds one number for each example.
        map_fn: called in the graph for each example before batches are made, as ``map_fn(example, seed)``: a
            dict of the selected features, images decoded, and an int64 tensor of shape ``(2,)`` for
            ``tf.random.stateless_*``. The seed is a pure function of ``Shuffle``'s seed (0 without), the
            epoch and the example. The result, a tensor or dicts and tuples of tensors, is put into batches.
            A tensor that it captures is held once by the graph, and by no batch.
        on_damage: "raise" ends the run at a damaged record, with an error that names it; "skip", which
            requires ``remainder="pad"``, reads all of the split before the first step and delivers the
            split's first good record, with weight 0, instead of each damaged one.
        cache: "disk:PATH", a folder on a local disk (or in ``/dev/shm``) to which the split's shards are
            copied before the first step, each checked by its digest; its parent must exist. Later runs and
            other processes find the copies. Stored bytes are copied: order, decoding and augmentation do not
            change. "disk:PATH, 200GiB" has at most that many bytes of blocks, about 1 MiB each, which are
            fetched in the order of the run, checked, and kept by when that order needs them next; processes
            that use it at the same time divide the bytes. None reads local files as they are; blocks of a
            bucket are then in memory only, until they are read.
        memory_budget: the memory that reading, decoding and batches ahead may use in addition to TensorFlow
            and the model, as "2GiB" or in bytes. It decides how far ahead is worked, never the order, and
            is an error where the least does not fit.
    """

    epochs: int | None = 1
    select: Sequence[str] | None = None
    image: Image | Mapping[str, Image] | None = None
    boxes: Boxes | None = None
    keypoints: Keypoints | None = None
    sample_weights: SampleWeights | None = None
    map_fn: Callable[..., object] | None = None
    on_damage: OnDamage = "raise"
    cache: str | None = None
    memory_budget: str | int | None = None

    def read_options(self) -> dict[str, Any]:
        """Return these options by name, as parameters of ``LoadOptions``."""
        return {field.name: getattr(self, field.name) for field in fields(ReadOptions)}


@dataclass(frozen=True)
class LoadOptions(ReadOptions):
    """The parameters of ``load``, checked as far as no file is needed for it.

    Attributes:
        path: the directory with ``dataset.json``, ``s3://BUCKET/FOLDER``, ``gs://`` or ``az://``; or a
            ``Mix`` of several local ones. From a bucket, what the order needs next is fetched ahead.
        split: its name; may be left out if there is only one.
        batch_size: the number of examples in each batch of this worker.
        worker: which of several processes this is; each example goes to one of them. If left out, this is the
            only one, with a warning where ``TF_CONFIG`` or the strategy in scope names several, or where the
            replicas of the strategy in scope do not divide ``batch_size``.

    Raises:
        OptionsError: a value is not allowed, or contradicts another one.
    """

    path: str | os.PathLike[str] | Mix
    split: str | None = None
    _: KW_ONLY
    batch_size: int
    worker: Worker | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.path, Mix):
            check_path("path", self.path)
        check_least("batch_size", self.batch_size, 1)
        check_type("worker", self.worker, Worker)
        check_type("shuffle", self.shuffle, Shuffle)
        if self.epochs is not None:
            check_integer("epochs", self.epochs)
        check_choice("remainder", self.remainder, get_args(Remainder))
        check_take(self.take)
        check_classes(self.classes)
        check_images(self.image)
        check_type("boxes", self.boxes, Boxes)
        check_type("keypoints", self.keypoints, Keypoints)
        if not isinstance(self.start, (Position, Tracker, type(None))):
            raise OptionsError("start-type", start=self.start)
        _check_sample_weights(self.sample_weights)
        if self.map_fn is not None and not callable(self.map_fn):
            raise OptionsError("map-fn-type", map_fn=self.map_fn)
        check_choice("on_damage", self.on_damage, get_args(OnDamage))
        cache_of(self.cache)
        _budget_bytes(self.memory_budget)
        self._check_together()

    def _check_together(self) -> None:
        """Raise if options contradict each other."""
        if self.boxes is not None and self.image is None:
            raise OptionsError("boxes-no-image")
        if self.keypoints is not None and self.image is None:
            raise OptionsError("keypoints-no-image")
        if self.on_damage == "skip" and self.remainder != "pad":
            raise OptionsError("skip-without-pad", remainder=self.remainder)
        if isinstance(self.path, Mix):
            if self.classes is not None:
                raise OptionsError("classes-with-mix")
            if self.memory_budget is not None:
                raise OptionsError("budget-with-mix")
        if self.resamples and self.sample_weights == BALANCED:
            raise OptionsError("balanced-with-ratios")

    @property
    def this_worker(self) -> Worker:
        """The worker; the only one if none was given."""
        return self.worker or Worker()

    @property
    def begin(self) -> Position:
        """The position of the first batch."""
        return self.start.position if isinstance(self.start, Tracker) else self.start or Position()

    @property
    def tracker(self) -> Tracker | None:
        """The object that tracks the run; None if none does."""
        return self.start if isinstance(self.start, Tracker) else None

    @property
    def adds_weight(self) -> bool:
        """Whether batches have a weight for each example."""
        return self.remainder == "pad" or self.sample_weights is not None

    @property
    def resamples(self) -> bool:
        """Whether ratios decide how often an example occurs in an epoch."""
        return isinstance(self.path, Mix) or isinstance(self.classes, Mapping)

    @property
    def is_augmented(self) -> bool:
        """Whether crops or flips of the images are random."""
        images = self.image.values() if isinstance(self.image, Mapping) else [self.image]
        return any(image is not None and image.is_random for image in images)

    @property
    def is_one_pass(self) -> bool:
        """Whether the dataset is one epoch that may be iterated again for the next one."""
        return self.start is None and self.epochs == 1

    @property
    def differs_by_epoch(self) -> bool:
        """Whether two epochs differ in anything.

        Groups continue in each epoch where the previous one ended, even in stored order.
        """
        return self.shuffle is not None or self.is_augmented or self.map_fn is not None or self.resamples

    @property
    def cache_folder(self) -> Path | None:
        """The folder of the copies; None without a cache."""
        return cache_of(self.cache)[0]

    @property
    def cache_bytes(self) -> int | None:
        """The bytes that the cache may have; None for no limit, or without a cache."""
        return cache_of(self.cache)[1]

    @property
    def budget_bytes(self) -> int | None:
        """The memory budget in bytes; None for no limit."""
        return _budget_bytes(self.memory_budget)


def takes(
    options: Callable[P, Options],
) -> Callable[[Callable[[Options], Result]], Callable[P, Result]]:
    """Return a decorator that gives a function the fields of its options as parameters.

    A type checker, ``inspect.signature`` and ``help`` see the parameters, their defaults and documentation
    as if the function listed them.
    """

    def decorate(function: Callable[[Options], Result]) -> Callable[P, Result]:
        own = _signature(options)
        name = function.__qualname__.removesuffix(".__init__")
        # self, if it is a constructor
        *before, _ = inspect.signature(function).parameters.values()

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            given = args[len(before) :]
            try:
                # an unknown name first, since it may be a missing one that is misspelled
                own.bind_partial(*given, **kwargs)
                own.bind(*given, **kwargs)
            except TypeError as error:
                raise TypeError(f"{name}() {error}") from None
            chosen = options(*given, **kwargs)  # type: ignore[arg-type]
            return function(*args[: len(before)], chosen)  # type: ignore[arg-type,call-arg]

        returned = inspect.signature(function).return_annotation
        call.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[*before, *own.parameters.values()], return_annotation=returned
        )
        call.__annotations__ = {each.name: each.annotation for each in own.parameters.values()}
        if function.__doc__ is not None:
            call.__doc__ = function.__doc__.replace("{options}", _documented(options).strip())
        return call

    return decorate


def constructor(
    options: Callable[P, Options],
) -> Callable[[Callable[[Self, Options], None]], Callable[Concatenate[Self, P], None]]:
    """Return the decorator of ``takes`` for an ``__init__``."""
    return takes(options)  # type: ignore[arg-type,return-value]


def _signature(options: Callable[..., object]) -> inspect.Signature:
    """Return the signature of a dataclass: its own fields, then those of its bases, the deepest first."""
    parameters = inspect.signature(options).parameters
    names = [name for each in _in_order(options) for name in each.__annotations__ if name in parameters]
    # sorted: a base may have positional ones
    return inspect.Signature(sorted((parameters[name] for name in names), key=lambda each: each.kind))


def _in_order(options: object) -> list[type]:
    own, *bases = (each for each in getattr(options, "__mro__", ()) if hasattr(each, "__dataclass_fields__"))
    return [own, *reversed(bases)]


def _documented(options: object) -> str:
    """Return the documentation of the fields of a dataclass, in the order of its signature."""
    sections = ((each.__doc__ or "").partition("    Attributes:\n")[2] for each in _in_order(options))
    return "\n".join(section.partition("\n\n")[0].rstrip() for section in sections)


def _check_sample_weights(sample_weights: object) -> None:
    if sample_weights is None or isinstance(sample_weights, str):
        return
    if not isinstance(sample_weights, Mapping):
        raise OptionsError("weights-type", sample_weights=sample_weights)
    check_ratios("sample_weights", sample_weights, may_be_zero=True)


def cache_of(cache: object) -> tuple[Path | None, int | None]:
    """Return the folder of a cache, None without one, and the bytes that it may have, None for no limit."""
    if cache is None:
        return None, None
    if not isinstance(cache, str) or not cache.startswith(_DISK):
        raise OptionsError("cache-form", cache=cache)
    path, comma, given = (part.strip() for part in cache.removeprefix(_DISK).partition(","))
    if not path:
        raise OptionsError("cache-form", cache=cache)
    try:
        folder = local_path(path).expanduser().absolute()
    except (OSError, RuntimeError):
        # of a user, or of this process, who has no folder
        raise OptionsError("cache-form", cache=cache) from None
    if not comma:
        return folder, None
    try:
        return folder, parse_size(given, "cache")
    except OptionsError:
        raise OptionsError("cache-size-form", cache=cache, given=given) from None


def _budget_bytes(memory_budget: str | int | None) -> int | None:
    if memory_budget is None:
        return None
    if not isinstance(memory_budget, str) and not is_integer(memory_budget):
        raise OptionsError("budget-type", memory_budget=memory_budget)
    num_bytes = (
        parse_size(memory_budget, "memory_budget") if isinstance(memory_budget, str) else int(memory_budget)
    )
    if num_bytes < _LEAST_BUDGET:
        raise OptionsError("budget-range", memory_budget=memory_budget)
    return num_bytes
