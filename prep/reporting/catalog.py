"""Locate the records of a dataset by its indexes, choose some by seed, and read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.records.dataset_files import file_problems
from tfshards.prep.records.frames import read_some
from tfshards.prep.records.values import parse_record
from tfshards.prep.verification.checks import companions
from tfshards.schemas import Manifest, Problem, Shard
from tfshards.schemas.digests import STEP, mixed
from tfshards.schemas.example import Decoded
from tfshards.schemas.index import FRAME_OVERHEAD, IntArray, RecordIndex
from tfshards.schemas.storage import AnyPath

_MASK = (1 << 64) - 1


@dataclass(frozen=True, eq=False)
class ShardExamples:
    """One shard; without an index if it or a file that belongs to it is damaged or missing."""

    split: str
    shard: Shard
    # number in the split of its first example
    first: int
    index: RecordIndex | None
    labels: IntArray | None


# eq=False: arrays compare element by element, so that instances would have no truth value
@dataclass(frozen=True, eq=False)
class Catalog:
    """All records that can be located, numbered in the order of splits and shards.

    Records of shards that have problems are not in the catalog.
    """

    root: AnyPath
    manifest: Manifest
    parts: tuple[ShardExamples, ...]
    # the row of the first record of each shard, and the number of rows
    starts: IntArray
    # of each row; None if the schema has no label
    labels: IntArray | None
    # of each row, without its frame
    num_bytes: IntArray
    problems: tuple[Problem, ...]

    @property
    def num_rows(self) -> int:
        """Number of records that can be located."""
        return int(self.starts[-1])

    def row_of(self, split: str, number: int) -> int | None:
        """Return the row of an example by its number in a split, or None if it cannot be located."""
        for part, start in zip(self.parts, self.starts.tolist(), strict=False):
            if part.split == split and part.first <= number < part.first + part.shard.num_examples:
                return None if part.index is None else start + number - part.first
        return None

    def by_part(self, rows: Sequence[int]) -> list[tuple[ShardExamples, dict[int, int]]]:
        """Return each shard with the wanted records in it: row by record number, ascending."""
        ordered = np.unique(np.asarray(rows, np.int64))
        of = np.searchsorted(self.starts, ordered, side="right") - 1
        return [
            (self.parts[place], {row - int(self.starts[place]): row for row in ordered[of == place].tolist()})
            for place in np.unique(of).tolist()
        ]

    def some(self, count: int, seed: int) -> list[int]:
        """Return at most ``count`` rows, chosen by seed, ascending."""
        if self.num_rows <= count:
            return list(range(self.num_rows))
        return sorted(np.argpartition(_scores(self.num_rows, seed), count)[:count].tolist())

    def some_of_each(self, count: int, seed: int) -> dict[int, list[int]]:
        """Return for each label at most ``count`` of its rows, chosen by seed; without labels for label 0."""
        labels = np.zeros(self.num_rows, np.int64) if self.labels is None else self.labels
        order = np.lexsort((_scores(self.num_rows, seed), labels))
        found, firsts = np.unique(labels[order], return_index=True)
        groups = np.split(order, firsts[1:])
        return {label: rows[:count].tolist() for label, rows in zip(found.tolist(), groups, strict=False)}

    def read(
        self, part: ShardExamples, rows: dict[int, int], tick: Tick
    ) -> Iterator[tuple[int, int, dict[str, Decoded] | str]]:
        """Yield row, record number and values of records of one shard, or why one cannot be read."""
        assert part.index is not None
        path, left = self.root / part.shard.path, dict(rows)
        try:
            for found in read_some(path, self.manifest.compression, part.index, np.array([*rows])):
                row, data = left.pop(found.number), found.data or b""
                tick(len(data) + FRAME_OVERHEAD)
                values, problem = ({}, found.fault) if found.fault else parse_record(data, self.manifest)
                yield row, found.number, problem or values
        except OSError as error:
            yield from ((row, record, f"cannot be read: {error.strerror}") for record, row in left.items())


def read_catalog(root: AnyPath, manifest: Manifest) -> Catalog:
    """Read the indexes and labels of all shards, and compare the sizes of the files with the manifest."""
    of_files = {problem.place: problem for problem in file_problems(manifest, root)}

    def read(place: tuple[str, Shard, int], tick: Tick) -> tuple[ShardExamples, list[Problem]]:
        tick(0)
        name, shard, first = place
        found = companions(root, shard)
        problems = [*([of_files[shard.path]] if shard.path in of_files else []), *found.problems]
        return ShardExamples(name, shard, first, None if problems else found.index, found.labels), problems

    places = [
        (name, shard, first)
        for name, split in manifest.splits.items()
        for shard, first in zip(
            split.shards,
            np.cumsum([0, *(shard.num_examples for shard in split.shards)]).tolist(),
            strict=False,
        )
    ]
    found = in_threads(read, places, lambda _: None)
    parts = tuple(part for part, _ in found)
    none = np.zeros(0, np.int64)
    lengths = [part.index.lengths if part.index else none for part in parts]
    sound = [part.labels for part in parts if part.index is not None and part.labels is not None]
    return Catalog(
        root,
        manifest,
        parts,
        np.cumsum([0, *map(len, lengths)], dtype=np.int64),
        None if manifest.schema.label is None else np.concatenate([none, *sound]),
        np.concatenate([none, *lengths]) - FRAME_OVERHEAD,
        tuple(problem for _, problems in found for problem in problems),
    )


def _scores(count: int, seed: int) -> npt.NDArray[np.uint64]:
    """Return a random number for each row, which depends on nothing but the seed and the row."""
    start = mixed(np.array([seed & _MASK], np.uint64))
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(STEP)
    return mixed(steps + start)
