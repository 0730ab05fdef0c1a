"""Datasets as sources: their records, as pieces of new shards, perhaps with another label."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice, repeat
from operator import itemgetter
from typing import TypeAlias, TypeVar

import numpy as np

from tfshards.prep.building.made import made_of
from tfshards.prep.building.rejects import read_list, read_rejects
from tfshards.prep.deriving.layout import OldShard, Runs
from tfshards.prep.records.dataset_files import file_problems
from tfshards.prep.records.example import with_label
from tfshards.prep.records.frames import RecordError, frame, read_parts
from tfshards.prep.records.shard_file import Frames, compressed, in_groups, join_small
from tfshards.prep.writing.build_folder import Reject
from tfshards.prep.writing.shard import Piece
from tfshards.schemas import BuildError, InputError, Manifest, Problem, Shard, read_manifest
from tfshards.schemas.companions import read_index, read_keys, read_labels
from tfshards.schemas.compression import Compression
from tfshards.schemas.index import IntArray, RecordIndex
from tfshards.schemas.json_reader import Json, load_json
from tfshards.schemas.keys import hash_key
from tfshards.schemas.storage import AnyPath, any_path

Content = TypeVar("Content")

# Appended to every message about damage.
SEE_VERIFY = "tfshards verify lists all damage"
# A frame, and its last bytes.
Framed: TypeAlias = tuple[bytes, bytes]
# Hashes of removed keys, in hex: the lines of removed.txt. The keys themselves leave the dataset.
Removed: TypeAlias = frozenset[bytes]
# Bytes of frames that are hashed, compressed and written together.
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Origin:
    """A committed dataset whose records are copied.

    Attributes:
        root: folder of the dataset, or its URL.
        manifest: manifest of the dataset.
    """

    root: AnyPath
    manifest: Manifest

    def require_keys(self) -> None:
        """Raise InputError if the examples have no keys."""
        if self.manifest.schema.key is None:
            raise InputError(
                f"{self.root}: its examples have no keys, by which this verb recognizes them; build the "
                "dataset with tfshards from its source"
            )

    def require_own(self) -> None:
        """Raise InputError if tfshards did not write the records, which are never changed."""
        if self.is_adopted:
            raise InputError(
                f"{self.root} holds records that tfshards did not write, which are never changed; if they "
                "have keys, copy them into another folder with 'tfshards reshard', and edit that dataset; "
                "else build a dataset from them by prep.Examples"
            )

    @property
    def is_adopted(self) -> bool:
        """Whether another program wrote the records."""
        return made_of(self.manifest).source == "adopt"

    @property
    def slim(self) -> Origin:
        """This origin without what grows with the dataset, to be sent to workers."""
        return replace(self, manifest=replace(self.manifest, splits={}, options={}, views={}))

    def index(self, shard: Shard) -> RecordIndex:
        """Return the offsets of the records of a shard."""
        return self._sound(read_index(self.root, shard))

    def frames(self, shard: Shard, records: IntArray, labels: Mapping[int, int]) -> Iterator[Framed]:
        """Yield the frames of some records of a shard; ``labels`` has new labels by number of the record."""
        path, label = self.root / shard.path, self.manifest.schema.label
        index = self.index(shard)
        for part in read_parts(path, self.manifest.compression, index, records):
            if label is None or not labels:
                yield from zip(part.frames(), part.footers, strict=True)
                continue
            for record, data in zip(part.numbers, part.data, strict=True):
                try:
                    new = with_label(data, label.name, labels[record]) if record in labels else data
                except ValueError as error:
                    raise RecordError(path, record, int(index.offsets[record]), str(error)) from None
                parts = frame(new)
                yield b"".join(parts), parts[-1]

    def labels(self, shard: Shard) -> IntArray | None:
        """Return the label of each record of a shard; None if there are no labels."""
        return self._sound(read_labels(self.root, shard)) if shard.labels_digest else None

    def keys(self, shard: Shard) -> list[bytes] | None:
        """Return the key of each record of a shard; None if there are no keys."""
        return self._sound(read_keys(self.root, shard)) if shard.keys_digest else None

    def rejects(self) -> list[Reject]:
        """Return the rejected inputs."""
        return read_rejects(self.root, self.manifest)

    def removed(self) -> Removed:
        """Return what shows which keys were removed from the dataset, or from those that it was made from.

        Raises:
            InputError: the file that lists them is missing or damaged.
        """
        path = self.root / self.manifest.removed_path
        return frozenset(read_list(path, self.manifest.removed_digest).splitlines())

    def to_json(self) -> dict[str, Json]:
        """Return what the manifest of a derived dataset records about this one."""
        manifest = self.manifest
        return {"name": manifest.name, "build_id": manifest.build_id, "options": dict(manifest.options)}

    def _sound(self, read: tuple[Content | None, Sequence[Problem]]) -> Content:
        content, problems = read
        if content is None:
            raise self.damaged(problems)
        return content

    def damaged(self, problems: Sequence[Problem]) -> InputError:
        """Return the error about damage of the dataset."""
        return InputError(f"{self.root} is damaged: {problems[0]}; {SEE_VERIFY}", code="shard-damaged")


def open_origin(root: str | os.PathLike[str] | AnyPath) -> Origin:
    """Return the dataset in ``root``, whose shards must all be there with the sizes that the manifest lists.

    Raises:
        InputError: the folder is not a dataset, or a shard is damaged.
    """
    origin = Origin(any_path(root), read_manifest(root))
    if problems := file_problems(origin.manifest, origin.root):
        raise origin.damaged(problems)
    return origin


def labels_of(origin: Origin, shards: Sequence[Shard]) -> IntArray | None:
    """Return the label of each example of some shards of a dataset; None if there are no labels."""
    labels = [of for shard in shards if (of := origin.labels(shard)) is not None]
    return np.concatenate(labels) if labels else None


def removed_line(key: bytes) -> bytes:
    """Return what ``Removed`` has of a key."""
    return hash_key(key).hex().encode("ascii")


@contextmanager
def damage_named() -> Iterator[None]:
    """Raise BuildError about a damaged record that is read in the context."""
    try:
        yield
    except RecordError as error:
        raise BuildError(str(error), SEE_VERIFY, code="shard-damaged") from None


def runs_plan(olds: Sequence[OldShard], runs: Runs) -> bytes:
    """Return the plan of a shard of runs of records of old shards."""
    used, numbers = np.unique(runs[:, 0], return_inverse=True)
    chosen = [olds[index] for index in used.tolist()]
    plan = {
        "olds": [[old.origin, vars(old.shard), [*old.labels.items()]] for old in chosen],
        "runs": np.column_stack([numbers, runs[:, 1:]]).tolist(),
    }
    return json.dumps(plan, separators=(",", ":")).encode("ascii")


# A frame and its last bytes, and the key and the label of its record.
_Record: TypeAlias = tuple[Framed, bytes, int]
# A number of an old shard, and the first record and the length of a run of its records.
_Run: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class StoredRuns:
    """Pieces that are runs of records of datasets; see ``writing.shard.Pieces``.

    Attributes:
        origins: the datasets, without their shards: the plan of a shard has all that it is written from.
        compression: that of the new shards.
    """

    origins: Sequence[Origin]
    compression: Compression

    def pieces(self, plan: bytes) -> Iterator[Piece]:
        """Yield the pieces of a shard."""
        with damage_named():
            for group in in_groups(self._records(plan), lambda record: len(record[0][0]), _PIECE_BYTES):
                framed, keys, labels = zip(*group, strict=True)
                frames, footers = zip(*framed, strict=True)
                found = Frames(join_small(frames), [*map(len, frames)], b"".join(footers))
                yield Piece(compressed(found, self.compression), keys, labels)

    def _records(self, plan: bytes) -> Iterator[_Record]:
        content = load_json(plan)
        olds = [OldShard(index, Shard(**entry), dict(labels)) for index, entry, labels in content["olds"]]
        runs: list[_Run] = content["runs"]
        by_origin: defaultdict[int, list[_Run]] = defaultdict(list)
        for run in runs:
            by_origin[olds[run[0]].origin].append(run)
        # runs alternate between origins, and each origin is read in order
        streams = {origin: self._of_origin(olds, of_origin) for origin, of_origin in by_origin.items()}
        for number, _, count in runs:
            yield from islice(streams[olds[number].origin], count)

    def _of_origin(self, olds: Sequence[OldShard], runs: Iterable[_Run]) -> Iterator[_Record]:
        shards = groupby(runs, itemgetter(0))
        return chain.from_iterable(self._of_shard(olds[number], of_shard) for number, of_shard in shards)

    def _of_shard(self, old: OldShard, runs: Iterable[_Run]) -> Iterator[_Record]:
        """Return the records of some runs of a shard, with their new labels."""
        records = np.concatenate([np.arange(first, first + count) for _, first, count in runs])
        origin = self.origins[old.origin]
        keys, labels = origin.keys(old.shard), origin.labels(old.shard)
        old_labels = [0] * len(records) if labels is None else labels[records].tolist()
        frames = origin.frames(old.shard, records, old.labels)
        of_old = map(old.labels.get, records.tolist(), old_labels) if old.labels else old_labels
        of_keys = map(keys.__getitem__, records.tolist()) if keys else repeat(b"")
        return zip(frames, of_keys, of_old, strict=False)
