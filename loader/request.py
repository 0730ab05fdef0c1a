"""One call of ``load`` as a value: its options under one roof, checked as far as no file is needed for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from tfshards.loader.cache import check_cache
from tfshards.loader.examples import Classes, Mix, Part, check_classes, check_take
from tfshards.loader.image_options import Image, check_images
from tfshards.loader.map_fn import check_map_fn
from tfshards.loader.memory import budget_bytes
from tfshards.loader.options import (
    Check,
    Lists,
    OnDamage,
    Position,
    Remainder,
    Shuffle,
    Worker,
    check_batch_size,
    check_damage,
    check_integer,
    check_lists,
    check_names,
    check_remainder,
    check_type,
)
from tfshards.loader.progress import Progress
from tfshards.loader.targets import check_one_hot
from tfshards.loader.weights import BALANCED, SampleWeights, check_sample_weights
from tfshards.schemas import OptionsError


class LoadOptions(TypedDict, total=False):
    """The options that ``distribute`` and ``per_device`` hand on to ``load``, which documents them."""

    shuffle: Shuffle | None
    epochs: int | None
    remainder: Remainder
    take: int | Part | None
    classes: Classes | None
    select: Sequence[str] | None
    image: Image | Mapping[str, Image] | None
    start: Position | Progress | None
    lists: Lists
    one_hot: Sequence[str] | Mapping[str, int] | None
    sample_weights: SampleWeights | None
    map_fn: Callable[..., object] | None
    static: object
    class_names: Sequence[str] | None
    check: Check
    on_damage: OnDamage
    cache: str | None
    memory_budget: str | int | None


@dataclass(frozen=True)
class Request:
    """What ``load`` was asked for; its documentation says what each attribute means."""

    path: str | os.PathLike[str] | Mix
    split: str | None
    batch_size: int
    worker: Worker
    shuffle: Shuffle | None
    epochs: int | None
    remainder: Remainder
    take: int | Part | None
    classes: Classes | None
    select: Sequence[str] | None
    image: Image | Mapping[str, Image] | None
    start: Position | Progress | None
    lists: Lists
    one_hot: Sequence[str] | Mapping[str, int] | None
    sample_weights: SampleWeights | None
    map_fn: Callable[..., object] | None
    static: object
    class_names: Sequence[str] | None
    check: Check
    on_damage: OnDamage
    cache: str | None
    memory_budget: str | int | None

    def __post_init__(self) -> None:
        check_batch_size("batch_size", self.batch_size)
        check_remainder(self.remainder)
        check_take(self.take)
        check_classes(self.classes)
        check_lists(self.lists)
        check_images(self.image)
        check_one_hot(self.one_hot)
        check_sample_weights(self.sample_weights)
        check_map_fn(self.map_fn, self.static)
        check_names("class_names", self.class_names)
        check_damage(self.check, self.on_damage, self.remainder)
        check_cache(self.cache)
        budget_bytes(self.memory_budget)
        check_type("worker", self.worker, Worker)
        check_type("shuffle", self.shuffle, Shuffle)
        check_type("start", self.start, Position, Progress)
        if self.epochs is not None:
            check_integer("epochs", self.epochs)
        resampled = isinstance(self.path, Mix) or isinstance(self.classes, Mapping)
        if resampled and self.sample_weights == BALANCED:
            raise OptionsError(
                "sample_weights='balanced' counts classes as they are stored, which ratios change; "
                "leave one of them out"
            )
        if self.memory_budget is not None and isinstance(self.path, Mix):
            raise OptionsError("memory_budget= cannot tell the images of a Mix; leave it out")

    @property
    def begin(self) -> Position:
        """The position of the first batch."""
        return self.start.position if isinstance(self.start, Progress) else self.start or Position()

    @property
    def adds_weight(self) -> bool:
        """Whether batches have a weight for each example."""
        return self.remainder == "pad" or self.sample_weights is not None

    @property
    def is_one_run(self) -> bool:
        """Whether each iteration gives the same batches, rather than those of the next epoch."""
        return self.start is not None or self.epochs != 1
