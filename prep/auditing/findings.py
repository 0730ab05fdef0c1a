"""The findings of an audit: examples that occur twice, rare classes, odd sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias

import numpy as np

from tfshards.prep.auditing.repeats import SAME_BYTES, Relation
from tfshards.prep.auditing.similar import HASH_BITS, Pairs
from tfshards.prep.auditing.survey import NO_LABEL, Examples, by_size
from tfshards.schemas import Manifest, Schema

# The kinds of findings whose cases are examples, and all kinds.
ExampleKind: TypeAlias = Literal["leak", "duplicate", "conflict", "size"]
Kind: TypeAlias = Literal[ExampleKind, "class"]

# Fewer examples are too few for training, and for a meaningful score.
_FEW_EXAMPLES = 10
_MAX_IMBALANCE = 20
_MIN_SIDE = 32
_MAX_ASPECT = 5
# relative to the median number of pixels: four times the side
_MAX_RATIO = 16


@dataclass(frozen=True)
class FoundExample:
    """An example by its key, or its shard and record number, and by its number in the split."""

    split: str
    key: str
    label: str | None
    number: int

    @property
    def place(self) -> str:
        """Its split, and its class if it has one."""
        return self.split if self.label is None else f"{self.split}, {self.label}"


@dataclass(frozen=True)
class Case:
    """One case of a finding: an example, and the one that it resembles; or a class, with neither.

    The detail is such as ``12 of 256 bits differ`` or ``20 x 900 pixels``, or name and count of a class.
    """

    detail: str
    example: FoundExample | None = None
    like: FoundExample | None = None

    @property
    def examples(self) -> list[FoundExample]:
        """The one or two examples, if any."""
        return [one for one in (self.example, self.like) if one]


@dataclass(frozen=True)
class Finding:
    """A possible problem of a dataset, described in one line, with every case, the most certain first.

    It is a ``leak`` across splits, ``duplicate`` inside one, ``conflict`` of labels, ``class`` or ``size``.
    """

    kind: Kind
    message: str
    cases: Sequence[Case]


def example_at(examples: Examples, manifest: Manifest, index: int) -> FoundExample:
    """Return the example at an index."""
    split, number, key, label = examples[index].item()[:4]
    name = None if label == NO_LABEL else manifest.schema.class_name(label)
    return FoundExample(by_size(manifest)[split], key, name, number)


def repeat_findings(
    examples: Examples, manifest: Manifest, related: Relation, what: str
) -> Iterator[Finding]:
    """Yield the leaks, the duplicates and the conflicts among examples; ``what`` they are called."""
    split, label, names = examples["split"], examples["label"], by_size(manifest)
    of = [f" of {manifest.splits[name].num_examples:,}" for name in names]
    leaks, found = related(split >= 0, split), list[tuple[Kind, str, Pairs, str]]()
    for larger, one in combinations(range(len(names)), 2):
        pairs = leaks[(split[leaks[:, :2]] == (one, larger)).all(axis=1)]
        found.append(("leak", f"of {names[one]!r} that are also in {names[larger]!r}", pairs, of[one]))
    for one, name in enumerate(names):
        pairs = related(split == one, np.arange(len(examples)))
        found.append(("duplicate", f"of {name!r} that repeat another one of it", pairs, of[one]))
    # examples without a label contradict no other
    found.append(("conflict", "that also occur with another label", related(label != NO_LABEL, label), ""))
    for kind, text, pairs, total in found:
        if len(pairs):
            num_same = int((pairs[:, 2] == SAME_BYTES).sum())
            certainty = f"{num_same:,} the same, {len(pairs) - num_same:,} nearly the same"
            cases = [
                Case(
                    "the same" if bits == SAME_BYTES else f"{bits} of {HASH_BITS} bits differ",
                    example_at(examples, manifest, later),
                    example_at(examples, manifest, earlier),
                )
                for later, earlier, bits in pairs[np.argsort(pairs[:, 2], kind="stable")].tolist()
            ]
            yield Finding(kind, f"{what} {text}: {len(pairs):,}{total} ({certainty})", cases)


def class_counts(of_splits: Mapping[str, Mapping[str, int]], schema: Schema) -> dict[str, dict[str, int]]:
    """Return the number of examples by split and class, for all classes in label order; empty without any."""
    if not any(of_splits.values()):
        return {}
    names: Sequence[str] = schema.class_names or sorted(set().union(*of_splits.values()), key=int)
    return {split: {name: own.get(name, 0) for name in names} for split, own in of_splits.items()}


def class_findings(counts: Mapping[str, Mapping[str, int]]) -> Iterator[Finding]:
    """Yield the classes without examples; for each split its missing and rare classes, and its imbalance."""
    total = sum((Counter(split) for split in counts.values()), Counter[str]())
    nowhere = [label for label in next(iter(counts.values()), {}) if not total[label]]
    found = [(f"classes without examples in any split: {len(nowhere):,}", nowhere)]
    for name, split in counts.items():
        present = sorted((count, label) for label, count in split.items() if count)
        missing = [label for label, count in split.items() if present and not count and total[label]]
        few = [f"{label}: {count}" for count, label in present if count < _FEW_EXAMPLES]
        is_uneven = bool(present) and present[-1][0] > _MAX_IMBALANCE * present[0][0]
        ends = present[:1] + present[-1:] if is_uneven else []
        times = f"more than {_MAX_IMBALANCE} times as many examples of one class as of another"
        found += [
            (f"classes of other splits that are missing in {name!r}: {len(missing):,}", missing),
            (f"classes with fewer than {_FEW_EXAMPLES} examples in {name!r}: {len(few):,}", few),
            (f"{name!r} has {times}", [f"{label}: {count}" for count, label in ends]),
        ]
    return (Finding("class", text, [*map(Case, details)]) for text, details in found if details)


def size_findings(examples: Examples, manifest: Manifest) -> Iterator[Finding]:
    """Yield the images of unusual size; a size that most images have is not unusual."""
    sides = examples["size"]
    known = np.flatnonzero(sides.min(axis=1) > 0)
    if not len(known):
        return
    short, long = sides[known].min(axis=1), sides[known].max(axis=1)
    aspect, pixels = long / short, short * long
    median = float(np.median(pixels))
    is_small = (short < _MIN_SIDE) & (np.median(short) >= _MIN_SIDE)
    is_thin = (aspect > _MAX_ASPECT) & (np.median(aspect) <= _MAX_ASPECT)
    for is_odd, text in (
        (is_small, f"with a side below {_MIN_SIDE} pixels"),
        (is_thin, f"with one side more than {_MAX_ASPECT} times the other"),
        (pixels * _MAX_RATIO < median, f"with less than 1/{_MAX_RATIO} of the median number of pixels"),
        (pixels > _MAX_RATIO * median, f"with more than {_MAX_RATIO} times the median number of pixels"),
    ):
        cases = [
            Case("{} x {} pixels".format(*sides[index]), example_at(examples, manifest, index))
            for index in known[is_odd].tolist()
        ]
        if cases:
            yield Finding("size", f"images {text}: {len(cases):,}", cases)
