"""The options of one run as a value, checked as far as no file is needed for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, NamedTuple, TypeAlias, get_args

from tfshards.loader.options.boxes import Boxes, Keypoints
from tfshards.loader.options.image import Image
from tfshards.loader.options.position import Counter, Position
from tfshards.loader.options.selection import (
    Classes,
    Mix,
    Part,
    Shuffle,
    absolute,
    check_classes,
    check_ratios,
)
from tfshards.loader.options.validation import check_choice, check_least, check_type, invalid
from tfshards.loader.options.worker import Worker, usual_worker
from tfshards.schemas import OptionsError
from tfshards.schemas.errors import parse_size
from tfshards.schemas.storage import LocalPath
from tfshards.schemas.storage.paths import local_path

Remainder: TypeAlias = Literal["drop", "pad", "keep"]
OnDamage: TypeAlias = Literal["raise", "skip"]
SampleWeights: TypeAlias = "str | Mapping[str, float] | Mapping[int, float]"

# The name under which weights are delivered.
WEIGHT = "sample_weight"
BALANCED = "balanced"

_DISK = "disk:"
_CACHES = '"disk:PATH", "disk:PATH, SIZE" or None; "disk:/dev/shm/tfshards" is a folder in memory'


@dataclass(frozen=True)
class LoadOptions:
    """The parameters of ``load``, where they are described.

    Attributes:
        this_worker: the worker, given or found.
        cached: what ``cache`` describes.

    Raises:
        OptionsError: a value is not allowed, or contradicts another one.
    """

    path: str | os.PathLike[str] | Mix
    split: str | None = None
    _: KW_ONLY
    batch_size: int
    select: Sequence[str] | None = None
    take: int | Part | None = None
    classes: Classes | None = None
    image: Image | Mapping[str, Image] | None = None
    boxes: Boxes | None = None
    keypoints: Keypoints | None = None
    sample_weights: SampleWeights | None = None
    map_fn: Callable[..., object] | None = None
    shuffle: Shuffle | None = None
    remainder: Remainder = "drop"
    epochs: int | None = 1
    start: Position | Counter | None = None
    worker: Worker | None = None
    cache: str | None = None
    on_damage: OnDamage = "raise"
    this_worker: Worker = field(init=False)
    cached: Cache | None = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.path, Mix):
            object.__setattr__(self, "path", absolute(self.path))
        check_least("batch_size", self.batch_size, 1)
        if not isinstance(self.take, (Part, type(None))):
            check_least("take", self.take, 1)
        check_classes(self.classes)
        images = self.image if isinstance(self.image, Mapping) else {"": self.image}
        for name, image in images.items():
            check_type(f"image[{name!r}]" if name else "image", image, Image, "size=(224, 224)")
        if not images:
            raise invalid("image", self.image, "options of at least one image, or None for encoded bytes")
        check_type("boxes", self.boxes, Boxes)
        check_type("keypoints", self.keypoints, Keypoints)
        if isinstance(self.sample_weights, Mapping):
            check_ratios("sample_weights", self.sample_weights, may_be_zero=True)
        check_type("shuffle", self.shuffle, Shuffle, "seed=0")
        check_choice("remainder", self.remainder, get_args(Remainder))
        if self.epochs is not None:
            check_least("epochs", self.epochs, 1)
        if not isinstance(self.start, (Position, Counter, type(None))):
            raise invalid("start", self.start, "a loader.Position or a loader.Progress")
        check_type("worker", self.worker, Worker, "index, count")
        object.__setattr__(self, "this_worker", self.worker or usual_worker())
        object.__setattr__(self, "cached", cache_of(self.cache))
        check_choice("on_damage", self.on_damage, get_args(OnDamage))
        self._check_together()

    def _check_together(self) -> None:
        """Raise if options contradict each other."""
        if (self.boxes or self.keypoints) and self.image is None:
            raise OptionsError(
                "boxes= and keypoints= move what they name with a decoded image; give image=, too"
            )
        if self.on_damage == "skip" and self.remainder != "pad":
            raise OptionsError(
                f"on_damage='skip' gives damaged records weight 0, but remainder={self.remainder!r} "
                "delivers no weights; use remainder='pad'"
            )
        if isinstance(self.path, Mix) and self.classes is not None:
            raise OptionsError("classes= cannot be combined with a Mix; mix datasets that have these classes")
        if self.resamples and self.sample_weights == BALANCED:
            raise OptionsError(
                "sample_weights='balanced' counts classes as they are stored, which ratios change; leave one "
                "of them out"
            )

    @property
    def begin(self) -> Position:
        """The position of the first batch."""
        return self.start.position if isinstance(self.start, Counter) else self.start or Position()

    @property
    def tracker(self) -> Counter | None:
        """The object that tracks the run; None if none does."""
        return self.start if isinstance(self.start, Counter) else None

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


class Cache(NamedTuple):
    """A folder for copies of shards, or for the records that are read first.

    Attributes:
        most_bytes: the bytes that those may have; None for copies of all shards.
    """

    folder: LocalPath
    most_bytes: int | None


def whole_cache_of(cache: object) -> Cache | None:
    """Return the cache that ``cache=`` describes, which may have no limit; None without one."""
    found = cache_of(cache)
    if found is not None and found.most_bytes is not None:
        raise OptionsError(
            f"cache={cache!r} has a limit, which only load() keeps to; cache='disk:{found.folder}' copies "
            "all shards of the split"
        )
    return found


def cache_of(cache: object) -> Cache | None:
    """Return the cache that ``cache=`` describes; None without one."""
    if cache is None:
        return None
    if not isinstance(cache, str) or not cache.startswith(_DISK):
        raise invalid("cache", cache, _CACHES)
    path, comma, given = (part.strip() for part in cache.removeprefix(_DISK).partition(","))
    if not path:
        raise invalid("cache", cache, _CACHES)
    try:
        folder = local_path(path).expanduser().absolute()
    except (OSError, RuntimeError):
        # of a user, or of this process, who has no folder
        raise invalid("cache", cache, _CACHES) from None
    if not comma:
        return Cache(folder, None)
    try:
        return Cache(folder, parse_size(given, "cache"))
    except OptionsError:
        raise OptionsError(
            f"cache={cache!r} has {given!r} after its first comma, which must be a size, as in "
            '"disk:/nvme/cache, 200GiB" or "disk:/nvme/cache, 1.5TiB"; a path must not contain a comma'
        ) from None
