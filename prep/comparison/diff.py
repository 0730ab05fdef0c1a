"""Find how two datasets differ: their examples by keys and contents, and the options of their builds."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.prep.records.example import canonical
from tfshards.prep.rewriting.keys import keys_at
from tfshards.prep.rewriting.origin import Origin, open_origin
from tfshards.prep.rewriting.scan import read_shards
from tfshards.prep.sources.keys import KEY_FEATURE, hash_key
from tfshards.schemas import InputError, Manifest
from tfshards.schemas.errors import counted
from tfshards.schemas.example import ParsedExample
from tfshards.schemas.json_reader import Json
from tfshards.schemas.summary import escaped

# What appends have added shows in the examples; of the others the present values are compared.
_NOT_OPTIONS = ("appended", "shards", "compression")


class Difference(NamedTuple):
    """An option, or another part of a manifest, that differs.

    Attributes:
        name: name of the option, such as ``seed``; ``features``, ``class_names`` or ``compression``.
        before: its value in the first dataset; None if it has none.
        after: its value in the second dataset.
    """

    name: str
    before: Json
    after: Json


def option_differences(one: Manifest, other: Manifest) -> tuple[Difference, ...]:
    """Return what differs between two datasets besides their examples.

    The options compared are those of the original builds, also after they were resharded or edited;
    the number of shards is the present one.
    """
    first, second = _facts(one), _facts(other)
    found = (Difference(name, first.get(name), second.get(name)) for name in {**first, **second})
    return tuple(each for each in found if each.before != each.after)


def _facts(manifest: Manifest) -> dict[str, Json]:
    schema = manifest.schema.to_json()
    builds = [
        {name: value for name, value in build.options.items() if name not in _NOT_OPTIONS}
        for build in manifest.made.builds()
    ]
    return {
        "features": schema["features"],
        "class_names": schema["class_names"],
        "compression": manifest.compression,
        "shards": {name: len(split.shards) for name, split in manifest.splits.items()},
        **(builds[0] if len(builds) == 1 else {"builds": list[Json](builds)}),
    }


_Names: TypeAlias = npt.NDArray[np.object_]
_PACKED = struct.Struct("<16s16sq")
_DTYPE = np.dtype([("key", "S16"), ("content", "S16"), ("label", "<i8")])
# examples of each kind, and characters of a value, that are printed
_SHOWN = 5
_SHOWN_VALUE = 60


class Change(NamedTuple):
    """An example that is in both datasets, but not in the same class or split.

    Attributes:
        key: the key of the example.
        before: its class, or its split, in the first dataset.
        after: the same in the second dataset.
    """

    key: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.key}: {self.before} -> {self.after}"


@dataclass(frozen=True, repr=False)
class Diff:
    """How two datasets differ; an example may be changed, relabeled and moved at once.

    Attributes:
        num_same: number of examples that are in both with the same values, class and split.
        added: keys of the examples that only the second dataset has, sorted.
        removed: keys of the examples that only the first dataset has.
        changed: keys of the examples with other values than the label.
        relabeled: examples of another class.
        moved: examples of another split.
        options: options of the builds, features and class names that differ.
    """

    num_same: int
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    relabeled: tuple[Change, ...] = ()
    moved: tuple[Change, ...] = ()
    options: tuple[Difference, ...] = field(default=())

    @property
    def has_same_examples(self) -> bool:
        """Whether both datasets have the same examples, in the same classes and splits."""
        return not (self.added or self.removed or self.changed or self.relabeled or self.moved)

    @property
    def is_same(self) -> bool:
        """Whether neither the examples nor the options differ."""
        return self.has_same_examples and not self.options

    def __repr__(self) -> str:
        """Return each kind of difference with its number and its first examples; ``to_json`` has all."""
        groups: dict[str, Sequence[str | Change]] = {
            "added": self.added,
            "removed": self.removed,
            "changed": self.changed,
            "relabeled": self.relabeled,
            "moved": self.moved,
        }
        lines = []
        for what, examples in groups.items():
            if examples:
                lines.append(f"{what}: {counted(len(examples), 'example')}")
                lines += [f"    {escaped(str(example))}" for example in examples[:_SHOWN]]
            if len(examples) > _SHOWN:
                lines.append(f"    and {len(examples) - _SHOWN:,} more")
        lines += [f"{name}: {_as_text(before)} -> {_as_text(after)}" for name, before, after in self.options]
        same = f"{counted(self.num_same, 'example')} {'is' if self.num_same == 1 else 'are'} the same"
        return "\n".join([*lines, same])

    def to_json(self) -> dict[str, Json]:
        """Return all differences as JSON values."""
        return {
            "is_same": self.is_same,
            "num_same": self.num_same,
            "added": [*self.added],
            "removed": [*self.removed],
            "changed": [*self.changed],
            "relabeled": [each._asdict() for each in self.relabeled],
            "moved": [each._asdict() for each in self.moved],
            "options": [each._asdict() for each in self.options],
        }


def diff(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> Diff:
    """Return how the dataset ``other`` differs from the dataset ``one``.

    Examples with the same key are compared in the features that both datasets have. Classes are compared by
    name. If the digests of all splits are equal, no record is read. Shards that a split of both has, as after
    ``remove``, are not read either, if features and class names are the same.

    Args:
        one: folder of the first dataset, or its URL.
        other: folder of the second dataset.

    Raises:
        InputError: one of them is not a dataset, is incomplete, or its examples have no keys.
        BuildError: a record is damaged.
    """
    origins = open_origin(one), open_origin(other)
    options = option_differences(*(origin.manifest for origin in origins))
    if _are_equal(*origins):
        return Diff(origins[0].manifest.num_examples, options=options)
    for origin in origins:
        if not origin.has_keys:
            raise InputError("diff-no-keys", root=origin.root)
    num_all = origins[0].manifest.num_examples
    origins = _without_shared(*origins), _without_shared(*origins[::-1])
    num_shared = num_all - origins[0].manifest.num_examples
    first, second = (_read(origin, other) for origin, other in (origins, origins[::-1]))
    _, in_first, in_second = np.intersect1d(first.rows["key"], second.rows["key"], return_indices=True)
    has_changed = first.rows["content"][in_first] != second.rows["content"][in_second]
    classes = first.classes()[in_first], second.classes()[in_second]
    splits = first.splits()[in_first], second.splits()[in_second]
    has_other_class, has_moved = (np.asarray(a != b, np.bool_) for a, b in (classes, splits))
    added = np.setdiff1d(np.arange(len(second.rows)), in_second)
    removed = np.setdiff1d(np.arange(len(first.rows)), in_first)
    differs = has_changed | has_other_class | has_moved
    keys = keys_at(first.origin, np.union1d(removed, in_first[differs]))

    def changes(is_one: npt.NDArray[np.bool_], names: tuple[_Names, _Names]) -> tuple[Change, ...]:
        found = np.flatnonzero(is_one).tolist()
        return tuple(sorted(Change(keys[int(in_first[at])], names[0][at], names[1][at]) for at in found))

    return Diff(
        num_same=num_shared + int((~differs).sum()),
        added=tuple(sorted(keys_at(second.origin, added).values())),
        removed=tuple(sorted(keys[number] for number in removed.tolist())),
        changed=tuple(sorted(keys[number] for number in in_first[has_changed].tolist())),
        relabeled=changes(has_other_class, classes),
        moved=changes(has_moved, splits),
        options=options,
    )


def _are_equal(one: Origin, other: Origin) -> bool:
    """Return whether the manifests of two datasets show that they have the same examples."""
    splits = [
        {name: (split.num_examples, split.examples_digest) for name, split in origin.manifest.splits.items()}
        for origin in (one, other)
    ]
    return splits[0] == splits[1] and one.manifest.schema == other.manifest.schema


def _without_shared(origin: Origin, other: Origin) -> Origin:
    """Return the dataset without the shards that are in the same split of the other one."""
    manifest = origin.manifest
    if manifest.schema != other.manifest.schema:
        # equal records may have other classes
        return origin
    splits = {}
    for name, split in manifest.splits.items():
        others = other.manifest.splits.get(name)
        shared = {shard.digest for shard in others.shards} if others else set()
        shards = tuple(shard for shard in split.shards if shard.digest not in shared)
        splits[name] = replace(split, shards=shards)
    return replace(origin, manifest=replace(manifest, splits=splits))


@dataclass(frozen=True, eq=False)
class _Examples:
    """The examples of a dataset, numbered in the order of its shards."""

    origin: Origin
    rows: npt.NDArray[np.void]
    has_labels: bool

    def splits(self) -> _Names:
        """Return the name of the split of each example."""
        splits = self.origin.manifest.splits
        return np.repeat(np.array([*splits], object), [split.num_examples for split in splits.values()])

    def classes(self) -> _Names:
        """Return the name of the class of each example, or its number if it has none."""
        names = self.origin.manifest.schema.class_names if self.has_labels else ()
        labels, inverse = np.unique(self.rows["label"], return_inverse=True)
        known = [names[label] if 0 <= label < len(names) else str(label) for label in labels.tolist()]
        return np.array(known, object)[inverse.reshape(-1)]


def _read(origin: Origin, other: Origin) -> _Examples:
    """Read all records of a dataset that is compared with another."""
    schemas = [each.manifest.schema for each in (origin, other)]
    own, others = schemas[0].label, schemas[1].label
    label = own.name if own and others else None
    # without a class on both sides, a label is a value as any other
    apart = {KEY_FEATURE.name, *(each.name for each in (own, others) if each and label)}
    names = sorted({*schemas[0].names} & {*schemas[1].names} - apart)

    def pack(data: bytes, _: int) -> bytes:
        example = ParsedExample(data)
        key = example.key
        if key is None:
            raise ValueError("has no key")
        number = example.label(label) if label else 0
        return _PACKED.pack(hash_key(key), _digest(example, names), number)

    rows = np.frombuffer(b"".join(read_shards(origin, f"examples of {origin.root}", pack)), _DTYPE)
    return _Examples(origin, rows, label is not None)


def _digest(example: ParsedExample, names: Sequence[str]) -> bytes:
    """Return a hash of the values of some features of an example."""
    hashed = hashlib.blake2b(digest_size=16)
    for name in names:
        entry = canonical(example, name)
        hashed.update(len(entry).to_bytes(8, "little"))
        hashed.update(entry)
    return hashed.digest()


def _as_text(value: Json) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value)
    return escaped(text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}…")
