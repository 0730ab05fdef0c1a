"""Which examples are read, and in which order, as values that check themselves."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from tfshards.loader.options.validation import check_choice, check_index, check_least, check_seed, invalid
from tfshards.schemas import Feature, OptionsError, Schema
from tfshards.schemas.storage import AnyPath, any_path

Classes: TypeAlias = Sequence[str] | Sequence[int] | Mapping[str, float] | Mapping[int, float]


@dataclass(frozen=True)
class Part:
    """One of several equal parts of a split, or, for the training of a fold, all but that one.

    Parts are intervals of the stored order, which a build has permuted; their sizes differ by at most one.
    They divide a split for validation, or into folds, and no example is in both, as it would be with ``take``
    and ``skip`` of a shuffled dataset, whose iterations are different epochs:

    >>> validation = loader.load("data/photos", "train", batch_size=256, take=loader.Part(0, 10))
    >>> train = loader.load("data/photos", "train", batch_size=256, take=loader.Part(0, 10, rest=True))

    Attributes:
        index: from 0 to ``count - 1``.
        count: the number of parts.
        rest: whether the part is left out, and everything else is read.
    """

    index: int
    count: int
    rest: bool = False

    def __post_init__(self) -> None:
        check_index("Part", self.index, self.count)


@dataclass(frozen=True)
class Mix:
    """Several datasets with the same features and classes, read as one, each with its share of every epoch.

    Attributes:
        weights: weights by the dataset's directory, in any unit, relative to their sum. Each dataset has its
            share of every epoch, exact up to rounding. A dataset that has more examples than its share
            continues in the next epoch where this one ended; the examples of one that has fewer occur several
            times.
    """

    weights: Mapping[str | os.PathLike[str], float]

    def __post_init__(self) -> None:
        if not isinstance(self.weights, Mapping) or not self.weights:
            raise invalid(
                "Mix.weights", self.weights, 'by directory, as in Mix({"data/photos": 0.7, "b": 0.3})'
            )
        check_ratios("Mix.weights", self.weights)
        weights = {str(absolute(path)): weight for path, weight in self.weights.items()}
        if len(weights) < len(self.weights):
            raise invalid("Mix.weights", self.weights, "one weight for each directory")
        object.__setattr__(self, "weights", weights)


def absolute(path: str | os.PathLike[str]) -> AnyPath:
    """Return a path that stays the same if the process changes its directory."""
    return any_path(path).absolute()


def check_ratios(name: str, ratios: Mapping[Any, float], *, may_be_zero: bool = False) -> None:
    """Raise unless all ``ratios`` are positive numbers, or 0 where that is allowed."""
    allowed = "a number of at least 0" if may_be_zero else "a positive number"
    for key, ratio in ratios.items():
        is_number = isinstance(ratio, (int, float, np.number)) and not isinstance(ratio, bool)
        if not is_number or not math.isfinite(ratio) or ratio < 0 or (ratio == 0 and not may_be_zero):
            raise invalid(f"{name}[{key!r}]", ratio, allowed)


def check_classes(classes: object) -> None:
    """Raise unless ``classes`` is None, a list of names or numbers, or their ratios."""
    if classes is None:
        return
    if isinstance(classes, Mapping) and classes:
        check_ratios("classes", classes)
        return
    names = classes if isinstance(classes, Sequence) and not isinstance(classes, (str, bytes)) else ()
    if not 0 < len(names) == len({*names}):
        allowed = (
            "a list of different classes, such as ['cat', 'dog'], or ratios, such as {'cat': 0.5, 'dog': 1}"
        )
        raise invalid("classes", classes, allowed)


@dataclass(frozen=True)
class Shuffle:
    """A different order in each epoch: a pure function of dataset, seed, epoch and global batch size.

    Attributes:
        seed: any integer of 64 bits.
        how: "runs" keeps short runs of neighbors together, so that files are read in long intervals, and
            draws each batch from ``lanes`` parts of the split; "full" permutes single records, each of
            which is then looked up on its own: for local disks and small records.
        run: the number of neighbors that stay together, at least 2; None for about 1 MiB of records, and
            fewer in small splits or where the records were not permuted before they were stored.
        lanes: the number of parts of the split from which a global batch is drawn; it divides the global
            batch size and is a multiple of the number of workers. None for the largest such number up to
            256.
    """

    seed: int = 0
    how: Literal["runs", "full"] = "runs"
    run: int | None = None
    lanes: int | None = None

    def __post_init__(self) -> None:
        check_seed("Shuffle.seed", self.seed)
        check_choice("Shuffle.how", self.how, ("runs", "full"))
        if self.how == "full" and (self.run is not None or self.lanes is not None):
            raise OptionsError("Shuffle.run and Shuffle.lanes are options of how='runs'; leave them out")
        if self.run is not None:
            check_least("Shuffle.run", self.run, 2)
        if self.lanes is not None:
            check_least("Shuffle.lanes", self.lanes, 1)


def select_features(schema: Schema, select: Sequence[str] | None) -> tuple[Feature, ...]:
    """Return the features to deliver, in order: those named in ``select``, or all."""
    names = schema.names if select is None else tuple(select)
    is_list = select is None or isinstance(select, (tuple, list))
    if not is_list or not names or len({*names}) < len(names) or not {*names} <= {*schema.names}:
        raise invalid(
            "select", select, f"a list of different features of {', '.join(map(repr, schema.names))}"
        )
    return tuple(schema[name] for name in names)
