"""Locate all records of a dataset by its indexes and labels, and choose some of them by seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.schemas import Manifest, Problem, Shard
from tfshards.schemas.companions import read_index, read_labels
from tfshards.schemas.files import file_sizes
from tfshards.schemas.index import FRAME_OVERHEAD, IntArray, RecordIndex
from tfshards.schemas.splitmix import STEP, mixed
from tfshards.schemas.storage import AnyPath

_MASK = (1 << 64) - 1


@dataclass(frozen=True, eq=False)
class Part:
    """One shard, in the order of the manifest.

    Attributes:
        split: name of its split.
        shard: its entry in the manifest.
        first: number in the split of its first example.
        index: its index; None if the shard or a file that belongs to it is damaged or missing.
        labels: int64 of shape ``(num_examples,)``; None without labels, or if they are damaged.
    """

    split: str
    shard: Shard
    first: int
    index: RecordIndex | None
    labels: IntArray | None


# eq=False: arrays compare element by element, so that instances would have no truth value
@dataclass(frozen=True, eq=False)
class Catalog:
    """All records that can be located, numbered in the order of splits and shards.

    Attributes:
        parts: the shards.
        starts: int64 of shape ``(shards + 1,)``: the row of the first record of each shard.
        labels: int64 of shape ``(rows,)``; None if the schema has no label.
        num_bytes: int64 of shape ``(rows,)``: number of bytes of each record without its frame.
        problems: what is wrong with files; records of those shards are not in the catalog.
    """

    parts: tuple[Part, ...]
    starts: IntArray
    labels: IntArray | None
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

    def by_part(self, rows: Sequence[int]) -> Iterator[tuple[Part, list[tuple[int, int]]]]:
        """Yield each shard with the wanted records in it, as (row, record number), ascending."""
        ordered = np.unique(np.asarray(rows, np.int64))
        of = np.searchsorted(self.starts, ordered, side="right") - 1
        for place in np.unique(of).tolist():
            inside = ordered[of == place]
            records = (inside - self.starts[place]).tolist()
            yield self.parts[place], list(zip(inside.tolist(), records, strict=True))

    def some(self, count: int, seed: int) -> IntArray:
        """Return at most ``count`` rows, chosen by seed, ascending."""
        if self.num_rows <= count:
            return np.arange(self.num_rows, dtype=np.int64)
        return np.sort(np.argpartition(_scores(self.num_rows, seed), count)[:count])

    def some_of_each(self, count: int, seed: int) -> Mapping[int, list[int]]:
        """Return for each label at most ``count`` of its rows, chosen by seed; without labels for label 0."""
        labels = np.zeros(self.num_rows, np.int64) if self.labels is None else self.labels
        order = np.lexsort((_scores(self.num_rows, seed), labels))
        found, firsts = np.unique(labels[order], return_index=True)
        ends = np.append(firsts[1:], len(order))
        return {
            label: order[first : min(first + count, end)].tolist()
            for label, first, end in zip(found.tolist(), firsts.tolist(), ends.tolist(), strict=True)
        }


def read_catalog(root: AnyPath, manifest: Manifest) -> Catalog:
    """Read the indexes and labels of all shards, and compare the sizes of the files with the manifest."""
    sizes = file_sizes(root, [shard.path for shard in manifest.shards])
    places = [
        (name, shard, first)
        for name, split in manifest.splits.items()
        for shard, first in zip(split.shards, _firsts(split.shards), strict=True)
    ]

    def read(place: tuple[str, Shard, int], tick: Tick) -> tuple[Part, list[Problem]]:
        tick(0)
        name, shard, first = place
        problems = _size_problems(shard, sizes[shard.path])
        index, of_index = read_index(root, shard)
        labels, of_labels = read_labels(root, shard) if shard.labels_digest else (None, [])
        problems += of_index + of_labels
        return Part(name, shard, first, None if problems else index, labels), problems

    found = in_threads(read, places, lambda _: None)
    parts = tuple(part for part, _ in found)
    lengths = [part.index.lengths if part.index else np.zeros(0, np.int64) for part in parts]
    labels = None
    if manifest.schema.label is not None:
        sound = [part.labels for part in parts if part.index is not None and part.labels is not None]
        labels = np.concatenate([np.zeros(0, np.int64), *sound])
    return Catalog(
        parts,
        np.cumsum([0, *map(len, lengths)], dtype=np.int64),
        labels,
        np.concatenate([np.zeros(0, np.int64), *lengths]) - FRAME_OVERHEAD,
        tuple(problem for _, problems in found for problem in problems),
    )


def _firsts(shards: Sequence[Shard]) -> list[int]:
    counts = [shard.num_examples for shard in shards]
    return [end - count for end, count in zip(accumulate(counts), counts, strict=True)]


def _size_problems(shard: Shard, size: int | OSError) -> list[Problem]:
    if isinstance(size, OSError):
        return [Problem(shard.path, f"cannot be read: {size.strerror}")]
    if size != shard.num_bytes:
        return [Problem(shard.path, f"has {size} bytes, but the manifest lists {shard.num_bytes}")]
    return []


def _scores(count: int, seed: int) -> npt.NDArray[np.uint64]:
    """Return a random number for each row, which depends on nothing but the seed and the row."""
    start = mixed(np.array([seed & _MASK], np.uint64))
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(STEP)
    return mixed(steps + start)
