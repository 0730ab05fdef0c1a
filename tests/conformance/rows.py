"""A row: inputs, the call that builds from them, and what the dataset holds or why the call is refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.conformance.calls import Call
from tfshards.schemas import TfshardsError

Splits = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Stored:
    """A dataset.

    Attributes:
        splits: values by split, key and feature, without the keys' own feature. A number in place of an
            image is the picture of that number, bytes are an encoded image as it is stored, and an array its
            pixels. A name in place of a label is that of its class.
        classes: class names in the order of labels.
        features: "KIND DTYPE SHAPE" of the features that are named.
        rejected, skipped, conversions: counts by reason.
        warns: words, of which each is in a warning.
    """

    splits: Splits
    classes: tuple[str, ...] = ()
    features: Mapping[str, str] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    conversions: Mapping[str, int] = field(default_factory=dict)
    warns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refused:
    """A refusal: its class, and parts of its message."""

    error: type[TfshardsError]
    names: tuple[str, ...] = ()


def stored(splits: Splits, *classes: str, **more: Any) -> Stored:
    return Stored(splits, classes, **more)


def refused(error: type[TfshardsError], *names: str) -> Refused:
    return Refused(error, names)


def by_row(split: str = "train", first: int = 0, /, **columns: Any) -> Splits:
    """Return the examples of rows that are numbered, from the values of each feature."""
    counted = range(len(next(iter(columns.values()))))
    return {
        split: {str(first + row): {name: column[row] for name, column in columns.items()} for row in counted}
    }


def row(name: str, files: Mapping[str, Any], call: Call, expected: Stored | Refused) -> Any:
    return pytest.param(files, call, expected, id=name.replace(" ", "_"))
