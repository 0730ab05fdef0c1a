"""Find how two datasets differ: their examples by keys and contents, and the options of their builds."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from tfshards.prep.deriving.stored import Origin, damage_named, open_origin
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.progress.lines import Meter
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.records.example import canonical
from tfshards.prep.records.frames import RecordError, read_footers, read_some
from tfshards.prep.sources.keys import KEY_FEATURE, to_text
from tfshards.schemas import BuildError, InputError, Manifest, Shard
from tfshards.schemas.errors import counted
from tfshards.schemas.example import ParsedExample
from tfshards.schemas.index import IntArray, RecordIndex
from tfshards.schemas.json_reader import Json
from tfshards.schemas.keys import each_shard, hash_array, hash_key, keys_at
from tfshards.schemas.split import rows_by_shard
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
Item = TypeVar("Item", bound=np.generic)
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
    name. If the digests of all splits are equal, nothing is read. Otherwise keys, labels and lengths of
    records come from the files in ``index``, and of records of equal length the last 4 bytes of their frames
    are read, which are a checksum. Only records that differ in one of both are read whole, or all that both
    datasets have if features differ. Nothing is read of shards that a split of both has, as after ``remove``,
    if features and class names are the same.

    Args:
        one: folder of the first dataset, or its URL.
        other: folder of the second dataset.

    Raises:
        InputError: one of them is not a dataset, is incomplete, or its examples have no keys.
        FormatError: a file of keys is missing or damaged.
        BuildError: a record that is read is damaged.
    """
    origins = open_origin(one), open_origin(other)
    options = option_differences(*(origin.manifest for origin in origins))
    if _are_equal(*origins):
        return Diff(origins[0].manifest.num_examples, options=options)
    for origin in origins:
        if not origin.has_keys:
            raise InputError("diff-no-keys", root=origin.root)
    num_all = origins[0].manifest.num_examples
    has_labels = all(origin.manifest.schema.label for origin in origins)
    first, second = (_Examples(_without_shared(*pair), has_labels) for pair in (origins, origins[::-1]))
    num_shared = num_all - first.num_examples
    in_first, in_second, has_equal_records = _matched(first, second)
    has_changed = np.zeros(len(in_first), np.bool_)
    rows = np.flatnonzero(~has_equal_records)
    has_changed[rows] = _have_changed(first, second, in_first[rows], in_second[rows])
    classes = first.classes()[in_first], second.classes()[in_second]
    splits = first.splits()[in_first], second.splits()[in_second]
    has_other_class, has_moved = (np.asarray(a != b, np.bool_) for a, b in (classes, splits))
    added = second.others(in_second)
    removed = first.others(in_first)

    def changes(is_one: BoolArray, names: tuple[_Names, _Names]) -> tuple[Change, ...]:
        found = np.flatnonzero(is_one)
        rows = zip(first.keys(in_first[found]), found.tolist(), strict=True)
        return tuple(sorted(Change(key, names[0][at], names[1][at]) for key, at in rows))

    return Diff(
        num_same=num_shared + int((~(has_changed | has_other_class | has_moved)).sum()),
        added=tuple(sorted(second.keys(added))),
        removed=tuple(sorted(first.keys(removed))),
        changed=tuple(sorted(first.keys(in_first[has_changed]))),
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
    """The examples of a dataset that are compared, numbered in the order of its shards.

    Attributes:
        origin: the dataset.
        has_labels: whether both datasets have classes, which are compared by name; otherwise a label is a
            value as any other.
    """

    origin: Origin
    has_labels: bool
    _indexes: dict[str, RecordIndex] = field(default_factory=dict)

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """The shards."""
        return self.origin.manifest.shards

    @property
    def num_examples(self) -> int:
        """Number of examples."""
        return self.origin.manifest.num_examples

    def others(self, numbers: IntArray) -> IntArray:
        """Return the numbers of all other examples, ascending."""
        is_other = np.ones(self.num_examples, np.bool_)
        is_other[numbers] = False
        return np.flatnonzero(is_other)

    def splits(self) -> _Names:
        """Return the name of the split of each example."""
        splits = self.origin.manifest.splits
        return np.repeat(np.array([*splits], object), [split.num_examples for split in splits.values()])

    def classes(self) -> _Names:
        """Return the name of the class of each example, its number if it has none; "" without classes."""
        if not self.has_labels:
            return np.full(self.num_examples, "", object)
        found = [self.origin.labels(shard) for shard in self.shards]
        labels = [np.zeros(0, np.int64), *(each for each in found if each is not None)]
        names = self.origin.manifest.schema.class_names
        numbers, inverse = np.unique(np.concatenate(labels), return_inverse=True)
        known = [names[label] if 0 <= label < len(names) else str(label) for label in numbers.tolist()]
        return np.array(known, object)[inverse.reshape(-1)]

    def keys(self, numbers: IntArray) -> list[str]:
        """Return the keys of some examples as text."""
        return [*map(to_text, keys_at(self.origin.root, self.shards, numbers))]

    def hashes(self, shards: Sequence[Shard]) -> npt.NDArray[np.bytes_]:
        """Return a hash of the key of each example of some shards."""
        found = [hash_array(map(hash_key, keys)) for _, keys in each_shard(self.origin.root, shards)]
        # S compares as V, since all hashes have the same length, and can be sorted
        return np.concatenate([hash_array([]), *found]).view("S16")

    def index(self, shard: Shard) -> RecordIndex:
        """Return the offsets of the records of a shard, which are read once."""
        if shard.path not in self._indexes:
            self._indexes[shard.path] = self.origin.index(shard)
        return self._indexes[shard.path]

    def lengths(self, numbers: IntArray) -> IntArray:
        """Return the numbers of bytes of some records with their frames."""
        found = np.zeros(len(numbers), np.int64)
        for _, shard, rows, records in rows_by_shard(self.shards, numbers):
            found[rows] = self.index(shard).lengths[records]
        return found

    def checksums(self, numbers: IntArray) -> npt.NDArray[np.uint32]:
        """Return the masked CRC-32C that the frame of each of some records states."""
        compression = self.origin.manifest.compression

        def read(shard: Shard, records: IntArray, tick: Tick) -> npt.NDArray[np.uint32]:
            path = self.origin.root / shard.path
            return read_footers(path, compression, self.index(shard), records, tick)

        return self._of_records(f"checksums of {self.origin.root}", numbers, read, np.dtype("<u4"))

    def contents(self, numbers: IntArray, names: Sequence[str]) -> npt.NDArray[np.bytes_]:
        """Return a hash of the values that some examples have in some features."""

        def read(shard: Shard, records: IntArray, tick: Tick) -> npt.NDArray[np.bytes_]:
            digests, path = bytearray(), self.origin.root / shard.path
            compression = self.origin.manifest.compression
            for found in read_some(path, compression, self.index(shard), records):
                data = found.require_data(path)
                tick(len(data))
                try:
                    digests += _digest(ParsedExample(data), names)
                except ValueError as error:
                    raise RecordError(path, found.number, found.offset, str(error)) from None
            return np.frombuffer(bytes(digests), "S16")

        return self._of_records(f"examples of {self.origin.root}", numbers, read, np.dtype("S16"))

    def _of_records(
        self,
        label: str,
        numbers: IntArray,
        read: Callable[[Shard, IntArray, Tick], npt.NDArray[Item]],
        dtype: np.dtype[Item],
    ) -> npt.NDArray[Item]:
        """Return what ``read`` returns for the records of each shard, in the order of ``numbers``."""
        found = np.zeros(len(numbers), dtype)

        def work(held: tuple[int, Shard, IntArray, IntArray], tick: Tick) -> None:
            _, shard, rows, records = held
            found[rows] = read(shard, records, tick)

        try:
            with damage_named(), Meter(label, int(self.lengths(numbers).sum())) as meter:
                in_threads(work, [*rows_by_shard(self.shards, numbers)], meter.add)
        except OSError as error:
            filename = error.filename or self.origin.root
            raise BuildError("file-fault", filename=filename, why=error.strerror) from None
        return found


def _matched(one: _Examples, other: _Examples) -> tuple[IntArray, IntArray, BoolArray]:
    """Return the numbers of the examples that are in both datasets, by their keys.

    Shards with equal files of keys match record by record. Only the keys of other shards are hashed.

    Returns:
        Numbers in the first dataset; in the second one; and whether the digests of two shards show that the
        records are equal.
    """
    starts = [_starts(each) for each in (one, other)]
    pairs = [(starts[0][digest], starts[1][digest]) for digest in starts[0] if digest in starts[1]]
    numbers = [
        [first + np.arange(shard.num_examples) for shard, first in each] or [np.zeros(0, np.int64)]
        for each in ([a for a, _ in pairs], [b for _, b in pairs])
    ]
    are_equal = [
        np.full(shard.num_examples, shard.examples_digest == twin.examples_digest)
        for (shard, _), (twin, _) in pairs
    ]
    in_one, in_other = np.concatenate(numbers[0]), np.concatenate(numbers[1])
    rests = [each.others(seen) for each, seen in ((one, in_one), (other, in_other))]
    matched = {id(shard) for pair in pairs for shard, _ in pair}
    hashes = [
        each.hashes([shard for shard in each.shards if shard.num_examples and id(shard) not in matched])
        for each in (one, other)
    ]
    _, rows, others = np.intersect1d(hashes[0], hashes[1], return_indices=True)
    return (
        np.concatenate([in_one, rests[0][rows]]),
        np.concatenate([in_other, rests[1][others]]),
        np.concatenate([*are_equal, np.zeros(len(rows), np.bool_)]),
    )


def _starts(examples: _Examples) -> dict[str, tuple[Shard, int]]:
    """Return each shard that has examples, and the number of its first one, by the digest of its keys."""
    ends = np.cumsum([shard.num_examples for shard in examples.shards]).tolist()
    return {
        shard.keys_digest: (shard, end - shard.num_examples)
        for shard, end in zip(examples.shards, ends, strict=True)
        if shard.num_examples
    }


def _have_changed(one: _Examples, other: _Examples, in_one: IntArray, in_other: IntArray) -> BoolArray:
    """Return for each example of both datasets whether it has other values, apart from key and class."""
    schemas = [each.origin.manifest.schema for each in (one, other)]
    labels = {each.label.name for each in schemas if each.label and one.has_labels}
    names = sorted({*schemas[0].names} & {*schemas[1].names} - labels - {KEY_FEATURE.name})
    differs = np.ones(len(in_one), np.bool_)
    if {*schemas[0].features} == {*schemas[1].features}:
        differs = one.lengths(in_one) != other.lengths(in_other)
        rows = np.flatnonzero(~differs)
        differs[rows] = one.checksums(in_one[rows]) != other.checksums(in_other[rows])
    rows = np.flatnonzero(differs)
    differs[rows] = one.contents(in_one[rows], names) != other.contents(in_other[rows], names)
    return differs


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
