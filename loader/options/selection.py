"""Which examples are read, as values that check themselves; nothing here reads a file."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tfshards.loader.options.validation import check_flag, check_index, check_least, is_integer
from tfshards.schemas import OptionsError

Classes: TypeAlias = "Sequence[str] | Sequence[int] | Mapping[str, float] | Mapping[int, float]"


@dataclass(frozen=True)
class Part:
    """One of several equal parts of a split, or, for the training of a fold, all but that one.

    Parts are intervals of the stored order, which a build has permuted; their sizes differ by at most one.

    Attributes:
        index: from 0 to ``count - 1``.
        count: the number of parts.
        rest: whether all examples except those of the part are read.
    """

    index: int
    count: int
    rest: bool = False

    def __post_init__(self) -> None:
        check_index("Part", self.index, self.count)
        check_flag("Part.rest", self.rest)


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
            raise OptionsError("mix-weights-type", weights=self.weights)
        check_ratios("Mix.weights", self.weights)
        if len({str(path) for path in self.weights}) < len(self.weights):
            raise OptionsError("mix-weights-repeated", weights=self.weights)


def check_ratios(name: str, ratios: Mapping[Any, float]) -> None:
    """Raise unless all ``ratios`` are positive numbers."""
    for key, ratio in ratios.items():
        is_number = isinstance(ratio, (int, float, np.number)) and not isinstance(ratio, bool)
        if not is_number or not math.isfinite(ratio) or ratio <= 0:
            raise OptionsError("ratio-positive", name=name, key=key, ratio=ratio)


def check_take(take: object) -> None:
    """Raise unless ``take`` is None, a number of examples, or a ``Part``."""
    if take is None or isinstance(take, Part):
        return
    if not is_integer(take):
        raise OptionsError("take-type", take=take)
    check_least("take", take, 1)


def check_classes(classes: object) -> None:
    """Raise unless ``classes`` is None, a list of names or numbers, or their ratios."""
    if classes is None:
        return
    if isinstance(classes, (str, bytes)) or not isinstance(classes, (Sequence, Mapping)):
        raise OptionsError("classes-type", classes=classes)
    if not classes:
        raise OptionsError("classes-empty", classes=classes)
    if isinstance(classes, Mapping):
        check_ratios("classes", classes)
    elif len(set(classes)) < len(classes):
        raise OptionsError("classes-repeated", classes=classes)
