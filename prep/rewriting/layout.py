"""Lay out: which records are in which new shard, and which old shards stay as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np

from tfshards.prep.planning.balance import BoolArray, rebalance
from tfshards.prep.planning.options import ShardCounts, check_shard_size
from tfshards.prep.rewriting.origin import Origin
from tfshards.prep.writing.area import BuildArea, ShardId
from tfshards.prep.writing.shard_names import shard_name
from tfshards.schemas import Manifest, Shard, Split
from tfshards.schemas.compression import COMPRESSIONS, Compression, recorded_release
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.option import check_choices, option
from tfshards.schemas.sizes import parse_size


def interleave(counts: Sequence[int], start: int = 0, end: int | None = None) -> IntArray:
    """Return an order of the records of several sequences that spreads each evenly and keeps its own order.

    If the sequences were concatenated, most shards would hold records of only one sequence.
    It has the shape ``(end - start,)``: record numbers, counted through all sequences, from the position
    ``start`` of the order to ``end``, by default all. Time and memory depend on ``end - start`` alone.
    """
    total, num = sum(counts), len(counts)
    end = total if end is None else end
    if start == end:
        return np.arange(0)
    # Up to a position, each sequence has its share of records, to within one for each of the sequences.
    firsts = [max(0, (start - num) * count // total - 2) for count in counts]
    lasts = [min(count, (end + num) * count // total + 3) for count in counts]
    fractions = [
        (np.arange(first, last) + 0.5) / count if count else np.empty(0)
        for first, last, count in zip(firsts, lasts, counts, strict=True)
    ]
    before = np.cumsum([0, *counts[:-1]])
    numbers = np.concatenate([np.arange(*of) for of in zip(before + firsts, before + lasts, strict=True)])
    order = np.argsort(np.concatenate(fractions), kind="stable")
    left_out = sum(firsts)
    return numbers[order[start - left_out : end - left_out]]


# Runs of records of a new shard, shape ``(num_runs, 3)``: the position of the first record in the order in
# which records are assigned, its number, and how many records follow each other in both.
Runs: TypeAlias = IntArray


def runs_of(positions: IntArray, numbers: IntArray) -> Runs:
    """Return the runs of records, given the position and the number of each."""
    breaks = np.flatnonzero((np.diff(positions) != 1) | (np.diff(numbers) != 1)) + 1
    starts = np.concatenate([np.zeros(min(1, len(numbers)), np.int64), breaks])
    return np.stack([positions[starts], numbers[starts], np.diff(starts, append=len(numbers))], 1)


@dataclass(frozen=True, eq=False)
class SplitLayout:
    """The new shards of one split.

    Attributes:
        shards: shards of the origins, each with the index of its origin. Records are numbered through them.
        sizes: number of records of each new shard.
        kept: for each new shard, the index in ``shards`` of the one that it is unchanged; -1 if it is
            written.
        runs: returns the runs of records of a new shard that is written, by its index.
        num_moved: number of records that go from one shard to another to keep the others balanced.
    """

    shards: Sequence[tuple[int, Shard]]
    sizes: Sequence[int]
    kept: Sequence[int]
    runs: Callable[[int], Runs]
    num_moved: int = 0

    @cached_property
    def _ends(self) -> IntArray:
        return np.cumsum([shard.num_examples for _, shard in self.shards], dtype=np.int64)

    @cached_property
    def has_labels(self) -> bool:
        """Whether the records have labels."""
        return all(shard.labels_digest for _, shard in self.shards)

    @cached_property
    def has_keys(self) -> bool:
        """Whether the records have keys."""
        return all(shard.keys_digest for _, shard in self.shards)

    def pieces(self, shard: int) -> IntArray:
        """Return the runs of a new shard, cut where an old one ends.

        It has the shape ``(num_pieces, 4)``: position in the order, index of the old shard, number of the
        record in it, number of records.
        """
        positions, numbers, counts = self.runs(shard).T
        # if several shards end at the same number, all but the first are empty
        first, last = (
            np.searchsorted(self._ends, of, side="right") for of in (numbers, numbers + counts - 1)
        )
        run = np.repeat(np.arange(len(counts)), last - first + 1)
        olds = np.arange(len(run)) - np.flatnonzero(np.diff(run, prepend=-1))[run] + first[run]
        starts = np.append(0, self._ends)[olds]
        begins = np.maximum(numbers[run], starts)
        lengths = np.minimum((numbers + counts)[run], self._ends[olds]) - begins
        found: IntArray = np.stack(
            [positions[run] + begins - numbers[run], olds, begins - starts, lengths], 1
        )
        return np.compress(lengths > 0, found, axis=0)

    @property
    def read_shards(self) -> list[Shard]:
        """The shards from which records are read."""
        if all(kept < 0 for kept in self.kept):
            return [shard for _, shard in self.shards]
        olds = [self.pieces(index)[:, 1] for index, kept in enumerate(self.kept) if kept < 0]
        found = np.unique(np.concatenate([np.empty(0, np.int64), *olds]))
        return [self.shards[index][1] for index in found.tolist()]


@dataclass(frozen=True)
class Rewrite:
    """New shards in a build area, with the datasets from which they are written and the layout of each split.

    ``outline`` is the manifest of the new dataset without shards.
    """

    area: BuildArea
    outline: Manifest
    origins: Sequence[Origin]
    splits: Mapping[str, SplitLayout]

    @property
    def verb(self) -> str:
        """What is done, for status lines."""
        return str(self.outline.made.source)

    @property
    def shards(self) -> list[ShardId]:
        """All new shards."""
        return [ShardId(name, index) for name, of in self.splits.items() for index in range(len(of.kept))]

    @property
    def written(self) -> list[ShardId]:
        """The new shards whose records are copied one by one."""
        return [shard for shard in self.shards if not self.is_kept(shard)]

    @cached_property
    def read_shards(self) -> list[Shard]:
        """The old shards from which records are copied."""
        return [shard for layout in self.splits.values() for shard in layout.read_shards]

    def is_kept(self, shard: ShardId) -> bool:
        """Return whether a new shard is an old one."""
        return self.splits[shard.split].kept[shard.shard_index] >= 0

    def shard_path(self, shard: ShardId) -> str:
        """Return the path of a new shard, relative to the dataset."""
        num_shards = len(self.splits[shard.split].kept)
        return shard_name(self.outline.name, *shard, num_shards, build_id=self.area.plan_id)


def new_layout(origins: Sequence[Origin], split: str, num_shards: int) -> SplitLayout:
    """Return the layout of a split in new shards, each of which mixes the datasets."""
    shards = shards_of(origins, split)
    counts = [of.manifest.splits[split].num_examples for of in origins if split in of.manifest.splits]
    share, extra = divmod(sum(counts), num_shards)
    lengths = [share + (index < extra) for index in range(num_shards)]
    ends = [*accumulate(lengths)]

    def contiguous(shard: int) -> Runs:
        start, end = ends[shard] - lengths[shard], ends[shard]
        if len(counts) == 1:
            return np.array([[start, start, end - start]])
        return runs_of(np.arange(start, end), interleave(counts, start, end))

    return SplitLayout(shards, lengths, [-1] * num_shards, contiguous)


def shards_of(origins: Sequence[Origin], split: str) -> list[tuple[int, Shard]]:
    """Return the shards of a split of all origins, each with the index of its origin."""
    held = [(index, origin.manifest.splits.get(split)) for index, origin in enumerate(origins)]
    return [(index, shard) for index, of in held if of for shard in of.shards]


def kept_layout(
    origins: Sequence[Origin],
    split: str,
    is_removed: BoolArray | None = None,
    *,
    is_balanced: bool = False,
) -> SplitLayout:
    """Return the layout of a split that keeps the shards of all origins, without the removed records.

    Records that leave a shard to balance others are its last ones, and become the last ones of the other
    shard; all others keep their shard and their order. A shard that keeps its records is not written unless
    its origin changes them.

    Args:
        origins: the datasets.
        split: name of the split.
        is_removed: shape ``(num_examples,)``; at least one record stays. None to keep all.
        is_balanced: whether the new shards have to differ by at most one record.
    """
    shards = shards_of(origins, split)
    counts = [shard.num_examples for _, shard in shards]
    if is_removed is None:
        return SplitLayout(shards, counts, range(len(shards)), lambda _: np.empty((0, 3), np.int64))
    old = np.split(np.arange(len(is_removed), dtype=np.int64), np.cumsum(counts)[:-1])
    left = [numbers[~is_removed[numbers]] for numbers in old]
    new = rebalance(old, is_removed) if is_balanced else left
    num_moved = sum(max(0, len(now) - len(before)) for now, before in zip(new, left, strict=True))
    records, kept = [], []
    for index, (origin, shard) in enumerate(shards):
        # a shard that has lost all its records is left out, but not one that was empty before
        if len(new[index]) or not len(old[index]):
            records.append(new[index])
            is_same = len(new[index]) == len(left[index]) == len(old[index])
            is_changed = shard.path in origins[origin].new_labels
            kept.append(index if is_same and not is_changed else -1)
    sizes = [*map(len, records)]
    starts = [0, *accumulate(sizes)]

    def runs(shard: int) -> Runs:
        return runs_of(np.arange(starts[shard], starts[shard + 1]), records[shard])

    return SplitLayout(shards, sizes, kept, runs, num_moved)


@dataclass(frozen=True)
class ShardOptions:
    """Options of new shards, except their number; None keeps those of the origins.

    Attributes:
        shard_size: bytes of records per shard, for splits whose number of shards is not given.
        compression: compression of the new shards.
        name: name of the new dataset; by default the last part of its path.

    Raises:
        OptionsError: an option is not allowed.
    """

    shard_size: int | None = option(
        None,
        "choose the number of shards by bytes per shard, such as 128MiB",
        metavar="SIZE",
        parse=partial(parse_size, name="shard_size"),
    )
    compression: Compression | None = option(
        None, "compression of the new shards", choices=COMPRESSIONS, default_text="as before"
    )
    name: str | None = option(None, "name of the new dataset", default_text="the last part of DATASET")

    def __post_init__(self) -> None:
        check_shard_size(self.shard_size)
        check_choices(self)

    @property
    def keeps_shards(self) -> bool:
        """Whether any existing shards satisfy these options."""
        return self.shard_size is None and self.compression is None


class NewShards(NamedTuple):
    """What was asked for new shards of some datasets; ``counts`` has the number of shards of each split."""

    origins: Sequence[Origin]
    counts: Mapping[str, int]
    compression: Compression

    @classmethod
    def of(
        cls,
        origins: Sequence[Origin],
        splits: Mapping[str, Split],
        asked: ShardCounts,
        options: ShardOptions,
    ) -> NewShards:
        """Return the new shards of ``splits``, which hold the shards of all origins."""
        least = options.shard_size
        by_size = {
            name: math.ceil(split.record_bytes / least) if least else len(split.shards)
            for name, split in splits.items()
        }
        num_examples = {name: split.num_examples for name, split in splits.items()}
        counts = asked.of_splits(num_examples, by_size, least)
        compression = options.compression or origins[0].manifest.compression
        return cls(origins, counts, compression)

    def to_json(self) -> dict[str, Json]:
        """Return the options for the manifest."""
        options: dict[str, Json] = {"shards": dict(self.counts)}
        if self.compression == "none":
            return options
        return {**options, "compression": {**recorded_release(self.compression)}}

    def lay_out(self) -> dict[str, SplitLayout]:
        """Return the layout of each split, in which all records are in new shards."""
        return {split: new_layout(self.origins, split, count) for split, count in self.counts.items()}
