"""The findings of an audit as values, and those about classes and sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tfshards.prep.auditing.survey import NO_LABEL, Survey
from tfshards.schemas import Manifest

Kind = Literal["leak", "duplicate", "conflict", "class", "size"]

# Fewer examples are too few for training, and for a meaningful score.
_FEW_EXAMPLES = 10
_MAX_IMBALANCE = 20
_MIN_SIDE = 32
_MAX_ASPECT = 5
# relative to the median number of pixels: four times the side
_MAX_RATIO = 16


@dataclass(frozen=True)
class FoundExample:
    """Identifies an example by its key, or its shard and record number, and by its number in the split."""

    split: str
    key: str
    label: str | None = None
    number: int = 0


@dataclass(frozen=True)
class Instance:
    """One case of a finding: an example, and the one that it resembles; or a class, with neither.

    The detail is such as ``12 of 256 bits differ`` or ``20 x 900 pixels``, or name and count of a class.
    """

    detail: str
    example: FoundExample | None = None
    like: FoundExample | None = None


@dataclass(frozen=True)
class Finding:
    """A possible problem of a dataset, described in one line, with every case, the most certain first.

    It is a ``leak`` across splits, ``duplicate`` inside one, ``conflict`` of labels, ``class`` or ``size``.
    """

    kind: Kind
    message: str
    instances: tuple[Instance, ...]


def example_at(seen: Survey, manifest: Manifest, index: int) -> FoundExample:
    """Return the split, the key and the label of the example at ``index``."""
    label = int(seen.label[index])
    name = None if label == NO_LABEL else class_name(manifest, label)
    split = int(seen.split[index])
    # the examples of a split follow each other
    number = index - int(np.searchsorted(seen.split, split))
    return FoundExample(seen.splits[split], seen.keys[index], name, number)


def class_name(manifest: Manifest, label: int) -> str:
    """Return the name of a class, or its number where classes have no names."""
    names = manifest.schema.class_names
    return names[label] if names else str(label)


def class_findings(counts: Mapping[str, Mapping[str, int]]) -> Iterator[Finding]:
    """Yield for each split its missing classes, its classes with few examples, and its imbalance."""
    total = sum((Counter(split) for split in counts.values()), Counter[str]())
    if nowhere := [label for label in next(iter(counts.values()), {}) if not total[label]]:
        text = f"classes without examples in any split: {len(nowhere):,}"
        yield Finding("class", text, tuple(Instance(label) for label in nowhere))
    for name, split in counts.items():
        missing = [label for label, count in split.items() if not count and total[label]]
        if missing and sum(split.values()):
            text = f"classes of other splits that are missing in {name!r}: {len(missing):,}"
            yield Finding("class", text, tuple(Instance(label) for label in missing))
        few = [(count, label) for label, count in split.items() if 0 < count < _FEW_EXAMPLES]
        if few:
            text = f"classes with fewer than {_FEW_EXAMPLES} examples in {name!r}: {len(few):,}"
            yield Finding("class", text, tuple(Instance(f"{label}: {count}") for count, label in sorted(few)))
        present = sorted((count, label) for label, count in split.items() if count)
        if present and present[-1][0] > _MAX_IMBALANCE * present[0][0]:
            (low, rare), (high, common) = present[0], present[-1]
            text = (
                f"{name!r} has more than {_MAX_IMBALANCE} times as many examples of one class as of another"
            )
            yield Finding("class", text, (Instance(f"{rare}: {low}"), Instance(f"{common}: {high}")))


def size_findings(seen: Survey, manifest: Manifest) -> Iterator[Finding]:
    """Yield the images of unusual size; a size that most images have is not unusual."""
    known = np.flatnonzero(seen.size.min(axis=1) > 0)
    if not len(known):
        return
    short, long = seen.size[known].min(axis=1), seen.size[known].max(axis=1)
    aspect, pixels = long / short, short * long
    median = float(np.median(pixels))
    is_small = (short < _MIN_SIDE) & (np.median(short) >= _MIN_SIDE)
    is_thin = (aspect > _MAX_ASPECT) & (np.median(aspect) <= _MAX_ASPECT)
    for is_odd, text in (
        (is_small, f"with a side below {_MIN_SIDE} pixels"),
        (
            is_thin & (np.median(aspect) <= _MAX_ASPECT),
            f"with one side more than {_MAX_ASPECT} times the other",
        ),
        (pixels * _MAX_RATIO < median, f"with less than 1/{_MAX_RATIO} of the median number of pixels"),
        (pixels > _MAX_RATIO * median, f"with more than {_MAX_RATIO} times the median number of pixels"),
    ):
        cases = tuple(
            Instance("{} x {} pixels".format(*seen.size[index]), example_at(seen, manifest, index))
            for index in known[is_odd].tolist()
        )
        if cases:
            yield Finding("size", f"images {text}: {len(cases):,}", cases)
