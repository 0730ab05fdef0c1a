"""Find how two datasets differ: their examples by keys and contents, and the options of their builds."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.prep.building.made import made_of
from tfshards.prep.deriving.stored import Origin, damage_named, labels_of, open_origin
from tfshards.prep.engines.work import Tick, in_threads
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.progress.lines import Meter
from tfshards.prep.records.frames import read_footers
from tfshards.prep.sources.keys import to_text
from tfshards.schemas import BuildError, Manifest, Schema, Shard
from tfshards.schemas.errors import counted
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.keys import each_shard, hash_array, hash_key, keys_at
from tfshards.schemas.split import rows_by_shard
from tfshards.schemas.summary import escaped

# What appends have added shows in the examples; of the others the present values are compared.
_NOT_OPTIONS = ("appended", "shards", "compression")


class Change(NamedTuple):
    """An example that is in both datasets, but not in the same class or split; or an option that differs.

    Attributes:
        name: the key of the example; or the name of the option, such as ``seed``, ``features``,
            ``class_names`` or ``compression``.
        before: its class, its split or its value in the first dataset; None if it has none.
        after: the same in the second dataset.
    """

    name: str
    before: Json
    after: Json

    def __str__(self) -> str:
        return f"{self.name}: {_as_text(self.before)} -> {_as_text(self.after)}"


def option_differences(one: Manifest, other: Manifest) -> tuple[Change, ...]:
    """Return what differs between two datasets besides their examples.

    The options compared are those of the original builds, also after they were resharded or edited;
    the number of shards is the present one.
    """
    first, second = _facts(one), _facts(other)
    found = (Change(name, first.get(name), second.get(name)) for name in {**first, **second})
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


_EXAMPLES = ("added", "removed", "changed", "relabeled", "moved")
_Names: TypeAlias = npt.NDArray[np.object_]
# examples of each kind, and characters of a value, that are printed
_SHOWN = 5
_SHOWN_VALUE = 60


@dataclass(frozen=True, repr=False)
class Diff:
    """How two datasets differ; an example may be changed, relabeled and moved at once.

    Attributes:
        num_same: number of examples that are in both with the same values, class and split.
        added: keys of the examples that only the second dataset has, sorted.
        removed: keys of the examples that only the first dataset has.
        changed: keys of the examples with other values, in the same class.
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
    options: tuple[Change, ...] = ()

    @property
    def examples(self) -> dict[str, Sequence[str | Change]]:
        """The examples that differ, by what differs."""
        return {what: getattr(self, what) for what in _EXAMPLES}

    @property
    def is_same(self) -> bool:
        """Whether neither the examples nor the options differ."""
        return not self.options and not any(self.examples.values())

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
        lines += [escaped(str(option)) for option in self.options]
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

    Examples with the same key are compared by the name of their class, and if that is equal, by the length
    and the checksum of the record, unless features or numbers of classes differ. Records are not read: keys,
    labels and lengths come from the files in ``index``, and the checksum is the last 4 bytes of each record.
    Shards that both datasets have are not compared at all.

    Args:
        one: folder of the first dataset, or its URL.
        other: folder of the second dataset.

    Raises:
        InputError: one of them is not a dataset, is incomplete, or its examples have no keys.
        FormatError: a file of keys is missing or damaged.
        BuildError: a checksum cannot be read.
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
    classes = first.classes[in_first], second.classes[in_second]
    splits = first.splits[in_first], second.splits[in_second]
    has_other_class, has_moved = (np.asarray(a != b, np.bool_) for a, b in (classes, splits))
    has_changed = np.zeros(len(in_first), np.bool_)
    if _agree(before.schema, after.schema):
        rows = np.flatnonzero(classes[0] == classes[1])
        has_changed[rows] = first.frames(in_first[rows]) != second.frames(in_second[rows])

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
        classes: the name of its class, its number if it has none; "" unless both datasets have labels.
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
        names = np.array([schema.class_name(label) for label in numbers.tolist()], object)
        return cls(origin, shards, together, splits, names[inverse.reshape(-1)])

    def keys(self, numbers: IntArray) -> list[str]:
        """Return the keys of some examples as text."""
        return [*map(to_text, keys_at(self.origin.root, self.shards, numbers))]

    def frames(self, numbers: IntArray) -> npt.NDArray[np.uint64]:
        """Return the length and the CRC-32C of some records, as one number, without reading them whole."""
        root, compression = self.origin.root, self.origin.manifest.compression
        found = np.zeros((len(numbers), 2), np.uint32)
        held = [*rows_by_shard(self.shards, numbers)]

        def read(of_shard: tuple[int, Shard, IntArray, IntArray], tick: Tick) -> None:
            _, shard, rows, records = of_shard
            index = self.origin.index(shard)
            checksums = read_footers(root / shard.path, compression, index, records, tick)
            found[rows, 0], found[rows, 1] = index.lengths[records], checksums

        # about, since only their lengths together are known
        num_bytes = sum(shard.record_bytes * len(rows) // shard.num_examples for _, shard, rows, _ in held)
        try:
            with damage_named(), Meter(f"checksums of {root}", num_bytes) as meter:
                in_threads(read, held, meter.add)
        except OSError as error:
            raise BuildError(f"{error.filename or root}: {error.strerror}") from None
        return found.view(np.uint64)[:, 0]


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
    return {*one.features} == {*other.features} and one.label == other.label and have_equal_classes


def _as_text(value: Json) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}…"
