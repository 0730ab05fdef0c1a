"""The options of one ``load`` as a value, checked as far as no file is needed for it.

A new option is a field and a keyword here, and a parameter of ``load``.
"""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict, get_args

import numpy as np

from tfshards.loader.options.image import Boxes, Image, check_images
from tfshards.loader.options.position import Position, Shuffle, Tracker
from tfshards.loader.options.selection import Classes, Mix, Part, check_classes, check_take
from tfshards.loader.options.validation import (
    check_choice,
    check_integer,
    check_least,
    check_names,
    check_type,
)
from tfshards.loader.options.worker import Worker
from tfshards.schemas import OptionsError
from tfshards.schemas.files import local_path
from tfshards.schemas.option import check_path
from tfshards.schemas.sizes import parse_size

Remainder: TypeAlias = Literal["drop", "pad", "keep"]
Check: TypeAlias = Literal["files", "headers"]
OnDamage: TypeAlias = Literal["raise", "skip"]
SampleWeights: TypeAlias = "str | Mapping[str, float] | Mapping[int, float]"

# The name under which weights are delivered.
WEIGHT = "sample_weight"
BALANCED = "balanced"

_DISK = "disk:"
# a path whose end was meant as a size: "/nvme/cache 200GiB", "/nvme/cache;200GiB"
_SIZE_IN_PATH = re.compile(r"(?:;\s*[\d.]+\s*[A-Za-z]*|\s[\d.]+\s*[KMGT]i?B?)", re.IGNORECASE)
_LEAST_BUDGET = 1 << 20


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """The options of one ``load``; its documentation describes what each one does.

    Attributes:
        path: a dataset's directory, or several datasets with weights.
        split: None for the only one.
        batch_size: batch size of one worker, at least 1.
        worker: index and count; None for the only one.
        shuffle: the order of each epoch; None for the stored order.
        epochs: the epoch to stop before; None for no end.
        remainder: what happens to examples that do not fill a global batch.
        take: the number of examples, or which part of them; None for all.
        classes: the classes to read, or their ratios; None for all.
        select: the features to deliver, in order; None for all, by name.
        image: how all images are decoded, or some by name; None leaves them encoded.
        boxes: the boxes that move with an image; None for no boxes.
        start: the position at which the run begins, or an object that tracks it; None for the first batch.
        sample_weights: "balanced", weights by class, or the name of a feature; None for no weights.
        map_fn: function called with each example and its seed; None for no function.
        class_names: the classes that the dataset must have, in order; None for any.
        check: how the shards are compared with the manifest.
        on_damage: what happens at a damaged record.
        cache: ``"disk:PATH"`` or ``"disk:PATH, SIZE"``; None reads the dataset's own files.
        memory_budget: a size with a unit, or bytes; None for no limit.

    Raises:
        OptionsError: a value is not allowed, or contradicts another one.
    """

    path: str | os.PathLike[str] | Mix
    split: str | None = None
    batch_size: int
    worker: Worker | None = None
    shuffle: Shuffle | None = None
    epochs: int | None = 1
    remainder: Remainder = "drop"
    take: int | Part | None = None
    classes: Classes | None = None
    select: Sequence[str] | None = None
    image: Image | Mapping[str, Image] | None = None
    boxes: Boxes | None = None
    start: Position | Tracker | None = None
    sample_weights: SampleWeights | None = None
    map_fn: Callable[..., object] | None = None
    class_names: Sequence[str] | None = None
    check: Check = "files"
    on_damage: OnDamage = "raise"
    cache: str | None = None
    memory_budget: str | int | None = None

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
        if not isinstance(self.start, (Position, Tracker, type(None))):
            raise OptionsError("start-type", start=self.start)
        _check_sample_weights(self.sample_weights)
        _check_map_fn(self.map_fn)
        check_names("class_names", self.class_names)
        check_choice("check", self.check, get_args(Check))
        check_choice("on_damage", self.on_damage, get_args(OnDamage))
        _check_cache(self.cache)
        _budget_bytes(self.memory_budget)
        self._check_together()

    def _check_together(self) -> None:
        """Raise if options contradict each other."""
        if self.boxes is not None and self.image is None:
            raise OptionsError("boxes-no-image")
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
        return None if self.cache is None else Path(_cache_parts(self.cache)[0]).expanduser().absolute()

    @property
    def cache_bytes(self) -> int | None:
        """The bytes that the cache may have; None for no limit, or without a cache."""
        return None if self.cache is None else _cache_parts(self.cache)[1]

    @property
    def budget_bytes(self) -> int | None:
        """The memory budget in bytes; None for no limit."""
        return _budget_bytes(self.memory_budget)


class LoadKeywords(TypedDict, total=False):
    """The options that ``distribute`` and ``per_device`` pass on to ``load``, which documents them."""

    shuffle: Shuffle | None
    epochs: int | None
    remainder: Remainder
    take: int | Part | None
    classes: Classes | None
    select: Sequence[str] | None
    image: Image | Mapping[str, Image] | None
    boxes: Boxes | None
    start: Position | Tracker | None
    sample_weights: SampleWeights | None
    map_fn: Callable[..., object] | None
    class_names: Sequence[str] | None
    check: Check
    on_damage: OnDamage
    cache: str | None
    memory_budget: str | int | None


def _check_sample_weights(sample_weights: object) -> None:
    if sample_weights is None or isinstance(sample_weights, str):
        return
    if not isinstance(sample_weights, Mapping):
        raise OptionsError("weights-type", sample_weights=sample_weights)
    for name, weight in sample_weights.items():
        try:
            is_allowed = math.isfinite(weight) and weight >= 0
        except TypeError:
            is_allowed = False
        if not is_allowed:
            raise OptionsError("weight-range", name=name, weight=weight)


def _check_map_fn(map_fn: object) -> None:
    if map_fn is None:
        return
    if not callable(map_fn):
        raise OptionsError("map-fn-type", map_fn=map_fn)
    try:
        signature = inspect.signature(map_fn)
    except (TypeError, ValueError):
        return  # some callables of C have none; the call raises then
    try:
        signature.bind("example", "seed")
    except TypeError as error:
        raise OptionsError("map-fn-signature", signature=signature, error=error) from None


def _check_cache(cache: object) -> None:
    if cache is None:
        return
    if not isinstance(cache, str) or not cache.startswith(_DISK) or not _cache_parts(cache)[0]:
        raise OptionsError("cache-form", cache=cache)
    path = _cache_parts(cache)[0]
    local_path(path)
    found = _SIZE_IN_PATH.search(path)
    if found and found.end() == len(path):
        raise OptionsError(
            "cache-size-in-path",
            cache=cache,
            disk=_DISK,
            path=path[: found.start()],
            lstrip=found[0].lstrip("; "),
        )


def _cache_parts(cache: str) -> tuple[str, int | None]:
    """Return the path of a cache, and its size or None.

    Raises:
        OptionsError: what follows the first comma is not a size.
    """
    path, comma, given = (part.strip() for part in cache.removeprefix(_DISK).partition(","))
    if not comma:
        return path, None
    try:
        return path, parse_size(given, "cache")
    except OptionsError:
        raise OptionsError("cache-size-form", cache=cache, given=given) from None


def _budget_bytes(memory_budget: str | int | None) -> int | None:
    if memory_budget is None:
        return None
    if isinstance(memory_budget, str):
        num_bytes = parse_size(memory_budget, "memory_budget")
    elif isinstance(memory_budget, (int, np.integer)) and not isinstance(memory_budget, bool):
        num_bytes = int(memory_budget)
    else:
        raise OptionsError("budget-type", memory_budget=memory_budget)
    if num_bytes < _LEAST_BUDGET:
        raise OptionsError("budget-range", memory_budget=memory_budget)
    return num_bytes
