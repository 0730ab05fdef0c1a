"""Find how two datasets differ: their examples by keys and contents, and the options of their builds."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from tfshards.prep.building.made import made_of
from tfshards.prep.deriving.stored import Origin, damage_named, labels_of, open_origin
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.progress.lines import Meter
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.records.example import canonical
from tfshards.prep.records.frames import RecordError, read_footers, read_parts
from tfshards.prep.sources.keys import KEY_FEATURE, to_text
from tfshards.schemas import BuildError, Manifest, Schema, Shard
from tfshards.schemas.errors import counted
from tfshards.schemas.example import ParsedExample
from tfshards.schemas.index import IntArray
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
        for build in made_of(manifest).builds()
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
    options: tuple[Difference, ...] = ()

    @property
    def examples(self) -> dict[str, Sequence[str | Change]]:
        """The examples that differ, by what differs."""
        return {
            "added": self.added,
            "removed": self.removed,
            "changed": self.changed,
            "relabeled": self.relabeled,
            "moved": self.moved,
        }

    @property
    def has_same_examples(self) -> bool:
        """Whether both datasets have the same examples, in the same classes and splits."""
        return not any(self.examples.values())

    @property
    def is_same(self) -> bool:
        """Whether neither the examples nor the options differ."""
        return self.has_same_examples and not self.options

    def __bool__(self) -> bool:
        """Return whether nothing differs, as a report of ``verify`` is true if it has no problem."""
        return self.is_same

    def __repr__(self) -> str:
        """Return each kind of difference with its number and its first examples; ``to_json`` has all."""
        lines = []
        for what, examples in self.examples.items():
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
        examples: dict[str, Json] = {
            what: [each if isinstance(each, str) else each._asdict() for each in found]
            for what, found in self.examples.items()
        }
        options: list[Json] = [each._asdict() for each in self.options]
        return {"is_same": self.is_same, "num_same": self.num_same, **examples, "options": options}


def diff(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> Diff:
    """Compare the examples and the options of two datasets.

    Examples with the same key are compared in the features that both datasets have. Classes are compared by
    name. If the digests of all splits are equal, nothing is read; nor is a shard whose keys and records have
    the digests of one in the same split of the other dataset. Otherwise keys, labels and lengths of records
    come from the files in ``index``, and the last 4 bytes of each frame are read, which are a checksum. Only
    records that differ in one of both are read whole, or all that both datasets have if features differ.

    Args:
        one: folder of the first dataset, or its URL.
        other: folder of the second dataset.

    Raises:
        InputError: one of them is not a dataset, is incomplete, or its examples have no keys.
        FormatError: a file of keys is missing or damaged.
        BuildError: a record that is read is damaged.
    """
    origins = open_origin(one), open_origin(other)
    before, after = (origin.manifest for origin in origins)
    options = option_differences(before, after)
    digests = [{name: split.examples_digest for name, split in of.splits.items()} for of in (before, after)]
    if digests[0] == digests[1] and before.schema == after.schema:
        return Diff(before.num_examples, options=options)
    for origin in origins:
        origin.require_keys()
    first, second = _Examples.of(origins[0], after), _Examples.of(origins[1], before)
    _, in_first, in_second = np.intersect1d(first.hashes, second.hashes, return_indices=True)
    has_changed = _have_changed(first, second, in_first, in_second)
    classes = first.classes[in_first], second.classes[in_second]
    splits = first.splits[in_first], second.splits[in_second]
    has_other_class, has_moved = (np.asarray(a != b, np.bool_) for a, b in (classes, splits))

    def changes(is_one: BoolArray, names: tuple[_Names, _Names]) -> tuple[Change, ...]:
        found = zip(first.keys(in_first[is_one]), *(of[is_one] for of in names), strict=True)
        return tuple(sorted(map(Change._make, found)))

    num_shared = before.num_examples - len(first.hashes)
    return Diff(
        num_same=num_shared + int((~(has_changed | has_other_class | has_moved)).sum()),
        added=tuple(sorted(second.keys(np.delete(np.arange(len(second.hashes)), in_second)))),
        removed=tuple(sorted(first.keys(np.delete(np.arange(len(first.hashes)), in_first)))),
        changed=tuple(sorted(first.keys(in_first[has_changed]))),
        relabeled=changes(has_other_class, classes),
        moved=changes(has_moved, splits),
        options=options,
    )


@dataclass(frozen=True)
class _Examples:
    """The examples of a dataset in shards that another one lacks, numbered in the order of these shards.

    Attributes:
        origin: the dataset.
        shards: the shards.
        hashes: a hash of the key of each example.
        splits: the name of the split of each example.
        classes: the name of the class of each example, its number if it has none; "" unless both datasets
            have classes: otherwise a label is a value as any other.
    """

    origin: Origin
    shards: Sequence[Shard]
    hashes: npt.NDArray[np.bytes_]
    splits: _Names
    classes: _Names

    @classmethod
    def of(cls, origin: Origin, other: Manifest) -> _Examples:
        """Return the examples of a dataset, without the shards of another one."""
        schema = origin.manifest.schema
        shared = {_identity(*of) for of in _shards_of(other)} if _agree(schema, other.schema) else set()
        held = [of for of in _shards_of(origin.manifest) if _identity(*of) not in shared]
        shards = [shard for _, shard in held]
        hashes = [hash_array(map(hash_key, keys)) for _, keys in each_shard(origin.root, shards)]
        # S compares as V, since all have the same length, and can be sorted
        together = np.concatenate([hash_array([]), *hashes]).view("S16")
        sizes = np.array([shard.num_examples for shard in shards], np.int64)
        splits = np.repeat(np.array([split for split, _ in held], object), sizes)
        labels = labels_of(origin, shards) if schema.label and other.schema.label else None
        if labels is None:
            return cls(origin, shards, together, splits, np.full(len(together), "", object))
        numbers, inverse = np.unique(labels, return_inverse=True)
        known = [schema.class_name(label) for label in numbers.tolist()]
        return cls(origin, shards, together, splits, np.array(known, object)[inverse.reshape(-1)])

    def keys(self, numbers: IntArray) -> list[str]:
        """Return the keys of some examples as text."""
        return [*map(to_text, keys_at(self.origin.root, self.shards, numbers))]

    def frames(self, numbers: IntArray) -> npt.NDArray[np.uint64]:
        """Return the length and the CRC-32C of some records, as one number, without reading them whole."""

        def read(shard: Shard, records: IntArray, tick: Tick) -> npt.NDArray[np.uint64]:
            path, index = self.origin.root / shard.path, self.origin.index(shard)
            checksums = read_footers(path, self.origin.manifest.compression, index, records, tick)
            found = np.zeros((len(records), 2), np.uint32)
            found[:, 0], found[:, 1] = index.lengths[records], checksums
            return found.view(np.uint64)[:, 0]

        return self._of_records("checksums", numbers, read, np.dtype(np.uint64))

    def contents(self, numbers: IntArray, names: Sequence[str]) -> npt.NDArray[np.bytes_]:
        """Return a hash of the values that some examples have in some features."""

        def read(shard: Shard, records: IntArray, tick: Tick) -> npt.NDArray[np.bytes_]:
            digests, path, index = bytearray(), self.origin.root / shard.path, self.origin.index(shard)
            for part, found, _ in read_parts(path, self.origin.manifest.compression, index, records):
                tick(sum(map(len, found)))
                for number, offset, data in zip(part.numbers, part.offsets, found, strict=True):
                    try:
                        digests += _digest(ParsedExample(data), names)
                    except ValueError as error:
                        raise RecordError(path, number, offset, str(error)) from None
            return np.frombuffer(bytes(digests), "S16")

        return self._of_records("examples", numbers, read, np.dtype("S16"))

    def _of_records(
        self,
        what: str,
        numbers: IntArray,
        read: Callable[[Shard, IntArray, Tick], npt.NDArray[Item]],
        dtype: np.dtype[Item],
    ) -> npt.NDArray[Item]:
        """Return what ``read`` returns for the records of each shard, in the order of ``numbers``."""
        found, held = np.zeros(len(numbers), dtype), [*rows_by_shard(self.shards, numbers)]

        def work(of_shard: tuple[int, Shard, IntArray, IntArray], tick: Tick) -> None:
            _, shard, rows, records = of_shard
            found[rows] = read(shard, records, tick)

        root = self.origin.root
        # about, since only their lengths together are known
        num_bytes = sum(shard.record_bytes * len(rows) // shard.num_examples for _, shard, rows, _ in held)
        try:
            with damage_named(), Meter(f"{what} of {root}", num_bytes) as meter:
                in_threads(work, held, meter.add)
        except OSError as error:
            raise BuildError(f"{error.filename or root}: {error.strerror}") from None
        return found


def _shards_of(manifest: Manifest) -> Iterator[tuple[str, Shard]]:
    """Yield the name of the split of each shard, and the shard."""
    return ((name, shard) for name, split in manifest.splits.items() for shard in split.shards)


def _identity(split: str, shard: Shard) -> tuple[str, str, str]:
    """Return what is equal if two shards hold the same records under the same keys in the same split."""
    return split, shard.keys_digest, shard.examples_digest


def _agree(one: Schema, other: Schema) -> bool:
    """Return whether equal records are equal examples in two datasets, of which one may have more classes."""
    names = one.class_names, other.class_names
    shared = min(map(len, names))
    have_equal_classes = names[0][:shared] == names[1][:shared] and bool(shared) == any(names)
    return one.features == other.features and have_equal_classes


def _have_changed(one: _Examples, other: _Examples, in_one: IntArray, in_other: IntArray) -> BoolArray:
    """Return for each example of both datasets whether it has other values, apart from key and class."""
    schemas = [each.origin.manifest.schema for each in (one, other)]
    has_classes = all(each.label for each in schemas)
    labels = {each.label.name for each in schemas if each.label and has_classes}
    names = sorted({*schemas[0].names} & {*schemas[1].names} - labels - {KEY_FEATURE.name})
    differs = np.ones(len(in_one), np.bool_)
    if {*schemas[0].features} == {*schemas[1].features}:
        differs = one.frames(in_one) != other.frames(in_other)
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
