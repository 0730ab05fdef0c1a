"""What an audit reads of each example, and what it finds: repeated examples, rare classes, odd sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.auditing.similar import (
    HASH_BITS,
    HASHED_SIDE,
    NO_PAIRS,
    Integers,
    Pairs,
    near_pairs,
    perceptual_hash,
)
from tfshards.prep.imaging.stored import gray_copy, stored_image
from tfshards.prep.records.values import compared_features, content_digest
from tfshards.prep.verification.show import Found, look_at
from tfshards.schemas import Feature, Manifest, Schema
from tfshards.schemas.pixels import pixel_images
from tfshards.schemas.storage import AnyPath

Kind: TypeAlias = Literal["leak", "duplicate", "conflict", "size", "class"]

# What is read of each example: an array of dtype EXAMPLE.
Examples: TypeAlias = npt.NDArray[np.void]
EXAMPLE = np.dtype(
    [
        ("split", np.int64),  # position among the splits, the largest first
        ("number", np.int64),  # in the split
        ("key", np.object_),  # as text; the shard and the number of the record where it has none
        ("label", np.int64),  # or NO_LABEL
        ("digest", "V16"),  # of the bytes that are compared
        ("size", np.int64, 2),  # width and height in pixels; 0 where unknown
        ("num_bytes", np.int64),  # of the image file; 0 where there is none
        ("hash", np.uint64, 4),
        ("is_hashed", np.bool_),
        ("fault", np.object_),  # why the image cannot be decoded
    ]
)
NO_LABEL = -(1 << 63)
# A picture whose brightest and darkest gray differ by less has no shape: all blank pages have the same hash.
_FLAT_RANGE = 16

# Fewer examples are too few for training, and for a meaningful score.
_FEW_EXAMPLES = 10
_MAX_IMBALANCE = 20
_MIN_SIDE = 32
_MAX_ASPECT = 5
# relative to the median number of pixels: four times the side
_MAX_RATIO = 16

_SAME_BYTES = -1
_NONE = -1
# Returns pairs of a later and an earlier example of a part of the dataset that differ in their classes, with
# the number of bits that differ, which is _SAME_BYTES where bytes are equal.
_Relation: TypeAlias = Callable[[npt.NDArray[np.bool_], Integers], Pairs]


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


def image_features(schema: Schema) -> list[Feature]:
    """Return the features that hold images, encoded or as pixels."""
    names = [one.name for one in schema.features if one.is_image] + [*pixel_images(schema.features)]
    return [schema[name] for name in names]


def compared_of(schema: Schema) -> list[Feature]:
    """Return the compared features: the first image, else all but key and label."""
    return image_features(schema)[:1] or compared_features(schema)


def by_size(manifest: Manifest) -> list[str]:
    """Return the names of the splits, the largest first."""
    return sorted(manifest.splits, key=lambda name: -manifest.splits[name].num_examples)


def survey(root: AnyPath, manifest: Manifest, *, is_hashed: bool) -> Examples:
    """Read all records; decode the images and hash them if ``is_hashed``.

    Returns:
        All examples: those of the largest split first, in a split those with the largest images.

    Raises:
        FormatError: an index is missing or damaged.
        RecordError: a record is damaged, or does not match the schema.
    """
    splits, schema = by_size(manifest), manifest.schema
    compared, image = compared_of(schema), next(iter(image_features(schema)), None)
    names, has_names = [(one.name, one.is_single) for one in compared], bool(schema.class_names)
    label_name = schema.label.name if schema.label else ""
    digest = content_digest(Schema(tuple(compared))) if compared else lambda _: "00" * 16

    def row(found: Found) -> tuple[object, ...]:
        label = int(found.values[label_name][0]) if label_name else NO_LABEL
        # among named classes -1 means no class
        label = NO_LABEL if label < 0 and has_names else label
        content = [found.values[name][0] if is_single else found.values[name] for name, is_single in names]
        num_bytes, size, hashed, fault = 0, (0, 0), None, ""
        if image is not None:
            num_bytes = len(cast("bytes", content[0]))
            try:
                size, hashed = _looked_at(cast("bytes", content[0]), image, HASHED_SIDE if is_hashed else 0)
            except ValueError as error:
                fault = str(error)
        same, bits = bytes.fromhex(digest(content)), (0,) * 4 if hashed is None else tuple(hashed.tolist())
        place = splits.index(found.split), found.number, found.key
        return *place, label, same, size, num_bytes, bits, hashed is not None, fault

    everything = {name: np.arange(manifest.splits[name].num_examples) for name in splits}
    parts = look_at(root, manifest, everything, lambda some: np.array([*map(row, some)], EXAMPLE), "audit")
    examples: Examples = np.concatenate([np.zeros(0, EXAMPLE), *parts])
    sizes = -examples["size"].prod(axis=1)
    return examples[np.lexsort((-examples["num_bytes"], sizes, examples["split"]))]


def _looked_at(
    data: bytes, feature: Feature, side: int
) -> tuple[tuple[int, int], npt.NDArray[np.uint64] | None]:
    """Return the size of an image, and its hash if there is a ``side`` and it has a shape."""
    with stored_image(data, feature) as image:
        size = image.size
        if not side:
            return size, None
        pixels = np.asarray(gray_copy(image, side))
    is_flat = int(pixels.max()) - int(pixels.min()) < _FLAT_RANGE
    return size, None if is_flat else perceptual_hash(pixels)


def example_at(examples: Examples, manifest: Manifest, index: int) -> FoundExample:
    """Return the example at an index."""
    split, number, key, label = examples[index].item()[:4]
    name = None if label == NO_LABEL else manifest.schema.class_name(label)
    return FoundExample(by_size(manifest)[split], key, name, number)


def repeat_findings(
    examples: Examples, manifest: Manifest, distance: int | None, what: str
) -> tuple[list[Finding], bool]:
    """Return the leaks, the duplicates and the conflicts among examples, and whether these are all.

    The number of pairs is linear: an example is paired only with the first of all that are equal or similar
    to it, in the order of the survey. Of similar images at most ``distance`` bits of their hashes differ;
    ``what`` the examples are called.
    """
    related, is_complete = _relation_of(examples, distance)
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
    findings = []
    for kind, text, pairs, total in found:
        if len(pairs):
            num_same = int((pairs[:, 2] == _SAME_BYTES).sum())
            certainty = f"{num_same:,} the same, {len(pairs) - num_same:,} nearly the same"
            cases = [
                Case(
                    "the same" if bits == _SAME_BYTES else f"{bits} of {HASH_BITS} bits differ",
                    example_at(examples, manifest, later),
                    example_at(examples, manifest, earlier),
                )
                for later, earlier, bits in pairs[np.argsort(pairs[:, 2], kind="stable")].tolist()
            ]
            findings.append(Finding(kind, f"{what} {text}: {len(pairs):,}{total} ({certainty})", cases))
    return findings, is_complete


def _relation_of(examples: Examples, distance: int | None) -> tuple[_Relation, bool]:
    """Return what finds examples that are equal or similar, and whether it finds all that are similar.

    Of similar images at most ``distance`` bits of their hashes differ.
    """
    hashed = np.flatnonzero(examples["is_hashed"] & (distance is not None))
    hashes, by_hash = np.unique(examples["hash"][hashed], axis=0, return_inverse=True)
    _, by_bytes = np.unique(examples["digest"], return_inverse=True)
    near, is_complete = near_pairs(hashes, distance or 0)
    # examples with the group of each, groups that are similar, and how many bits differ inside of a group
    equal = (np.arange(len(examples)), by_bytes.reshape(-1), NO_PAIRS, _SAME_BYTES)
    similar = (hashed, by_hash.reshape(-1), near, 0)

    def pairs(is_inside: npt.NDArray[np.bool_], classes: Integers) -> Pairs:
        # equal bytes come first
        found = np.concatenate(
            [
                _with_partners(members[is_inside[members]], groups[is_inside[members]], near, bits, classes)
                for members, groups, near, bits in (equal, similar)
            ]
        )
        return found[np.unique(found[:, 0], return_index=True)[1]]

    return pairs, is_complete


def _with_partners(members: Integers, groups: Integers, near: Pairs, bits: int, classes: Integers) -> Pairs:
    """Pair each example with the first one of its group, or else of the nearest group before it.

    Args:
        members: the examples that are compared, ascending.
        groups: for each of them the number of its group, in which all are equal.
        near: pairs of groups that are similar.
        bits: distance of the examples of a group.
        classes: an example and its partner must differ in these.
    """
    present, first, unit = np.unique(groups, return_index=True, return_inverse=True)
    head = np.full(max(groups.max(initial=0), near[:, :2].max(initial=0)) + 1, _NONE)
    head[present] = members[first]
    later, earlier = head[near[:, :2]].max(axis=1), head[near[:, :2]].min(axis=1)
    fits = (earlier != _NONE) & (classes[later] != classes[earlier])
    later, earlier, distance = later[fits], earlier[fits], near[fits, 2]
    order = np.lexsort((earlier, distance, later))
    later, best = np.unique(later[order], return_index=True)
    partner, differing = np.full(len(classes), _NONE), np.full(len(classes), bits)
    partner[later], differing[later] = earlier[order][best], distance[order][best]
    own = members[first][unit.reshape(-1)]
    # an example of the same class as its group's head has no partner in the group
    is_alike = classes[members] == classes[own]
    found, bits_of = np.where(is_alike, partner[own], own), np.where(is_alike, differing[own], bits)
    pairs: Pairs = np.stack([members, found, bits_of], axis=1)[found != _NONE]
    return pairs


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
