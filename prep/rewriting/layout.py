"""Lay out: which records are in which new shard, and which old shards stay as they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple, get_args

import numpy as np

from tfshards.prep.planning.balance import BoolArray, pack, rebalance
from tfshards.prep.planning.options import Balance, ShardCounts, check_shard_size
from tfshards.prep.rewriting.origin import Origin
from tfshards.prep.writing.area import BuildArea, ShardId
from tfshards.prep.writing.shard_names import shard_name
from tfshards.schemas import Manifest, Shard, Split
from tfshards.schemas.compression import COMPRESSIONS, Compression, recorded_release
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.option import check_choices, option
from tfshards.schemas.sizes import parse_size


def interleave(counts: Sequence[int]) -> IntArray:
    """Return an order of the records of several sequences that spreads each evenly and keeps its own order.

    If the sequences were concatenated, most shards would hold records of only one sequence.
    It has the shape ``(sum(counts),)``: record numbers, counted through all sequences.
    """
    fractions = [(np.arange(count) + 0.5) / count for count in counts]
    return np.argsort(np.concatenate(fractions), kind="stable").astype(np.int64)


@dataclass(frozen=True, eq=False)
class SplitLayout:
    """The new shards of one split.

    Attributes:
        shards: shards of the origins, each with the index of its origin.
        order: shape ``(num_examples,)``, numbers of the records, counted through ``shards``, in the order in
            which they are assigned.
        layout: for each new shard, indices into ``order``, ascending; not used of shards that stay.
        kept: for each new shard, the index in ``shards`` of the one that it is unchanged; -1 if it is
            written.
        labels: shape ``(num_records,)``, by number of the record; None if the examples have no labels.
        num_moved: number of records that go from one shard to another to keep the others balanced.
    """

    shards: Sequence[tuple[int, Shard]]
    order: IntArray
    layout: Sequence[IntArray]
    kept: Sequence[int]
    labels: IntArray | None = None
    num_moved: int = 0

    @cached_property
    def starts(self) -> IntArray:
        """Shape ``(len(shards),)``, number of the first record of each shard."""
        return np.cumsum([0, *(shard.num_examples for _, shard in self.shards[:-1])], dtype=np.int64)

    @property
    def read_shards(self) -> list[Shard]:
        """The shards from which records are read."""
        written = [self.records_of(index) for index, kept in enumerate(self.kept) if kept < 0]
        numbers = np.concatenate([np.empty(0, np.int64), *written])
        # if several shards start at the same number, all but the last are empty
        found = np.unique(np.searchsorted(self.starts, numbers, side="right") - 1)
        return [self.shards[index][1] for index in found.tolist()]

    def records_of(self, shard: int) -> IntArray:
        """Return the numbers of the records of a new shard, in order."""
        return self.order[self.layout[shard]]

    @property
    def new_labels(self) -> IntArray | None:
        """The labels of all records of the new shards; None if there are no labels."""
        return None if self.labels is None else self.labels[self.order]

    def labels_of(self, shard: int) -> IntArray | None:
        """Return the labels of the records of a new shard, in order; None if there are no labels."""
        return None if self.labels is None else self.labels[self.records_of(shard)]


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
        return [shard for shard in self.shards if self.splits[shard.split].kept[shard.shard_index] < 0]

    @property
    def read_shards(self) -> list[Shard]:
        """The old shards from which records are copied."""
        return [shard for layout in self.splits.values() for shard in layout.read_shards]

    def kept(self, shard: ShardId) -> tuple[Origin, Shard, Shard] | None:
        """Return the origin of a shard that stays, the old entry in its manifest, and the new one."""
        of = self.splits[shard.split]
        if of.kept[shard.shard_index] < 0:
            return None
        origin, old = of.shards[of.kept[shard.shard_index]]
        return self.origins[origin], old, replace(old, path=self.shard_path(shard))

    def shard_path(self, shard: ShardId) -> str:
        """Return the path of a new shard, relative to the dataset."""
        num_shards = len(self.splits[shard.split].kept)
        return shard_name(self.outline.name, *shard, num_shards, build_id=self.area.plan_id)


def new_layout(
    area: BuildArea, origins: Sequence[Origin], split: str, num_shards: int, balance: Balance
) -> SplitLayout:
    """Return the layout of a split in new shards, each of which mixes the datasets."""
    shards = shards_of(origins, split)
    counts = [of.manifest.splits[split].num_examples for of in origins if split in of.manifest.splits]
    order = interleave(counts)
    sizes = None
    if balance == "bytes":
        indexes = area.each(lambda of: origins[of[0]].index(of[1]), shards)
        sizes = np.concatenate([index.lengths for index in indexes])[order]
    found = area.each(lambda of: origins[of[0]].labels(of[1]), shards)
    labels = [of_shard for of_shard in found if of_shard is not None]
    everything = np.arange(len(order), dtype=np.int64)
    layout = np.array_split(everything, num_shards) if sizes is None else pack(everything, num_shards, sizes)
    return SplitLayout(shards, order, layout, [-1] * num_shards, np.concatenate(labels) if labels else None)


def shards_of(origins: Sequence[Origin], split: str) -> list[tuple[int, Shard]]:
    """Return the shards of a split of all origins, each with the index of its origin."""
    held = [(index, origin.manifest.splits.get(split)) for index, origin in enumerate(origins)]
    return [(index, shard) for index, of in held if of for shard in of.shards]


def kept_layout(
    origins: Sequence[Origin],
    split: str,
    is_removed: BoolArray | None = None,
    labels: IntArray | None = None,
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
        labels: shape ``(num_examples,)``, new label of each record; None if there are no labels.
        is_balanced: whether the new shards have to differ by at most one record.
    """
    shards = shards_of(origins, split)
    ends = np.cumsum([shard.num_examples for _, shard in shards])
    if is_removed is None:
        is_removed = np.zeros(ends[-1], np.bool_)
    old = np.split(np.arange(len(is_removed), dtype=np.int64), ends[:-1])
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
    order = np.concatenate(records)
    layout = np.split(np.arange(len(order)), np.cumsum([*map(len, records)])[:-1])
    return SplitLayout(shards, order, layout, kept, labels, num_moved)


@dataclass(frozen=True)
class ShardOptions:
    """Options of new shards, except their number; None keeps those of the origins.

    Attributes:
        shard_size: bytes of records per shard, for splits whose number of shards is not given.
        balance: ``count`` (the default of new shards) for shards that differ by at most one example,
            ``bytes`` for shards of similar bytes of records, packed longest first.
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
    balance: Balance | None = option(
        None,
        "balance shards by number of examples (default) or by bytes",
        choices=get_args(Balance),
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
        return self.shard_size is None and self.balance is None and self.compression is None


class NewShards(NamedTuple):
    """What was asked for new shards of some datasets; ``counts`` has the number of shards of each split."""

    origins: Sequence[Origin]
    counts: Mapping[str, int]
    balance: Balance
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
        return cls(origins, counts, options.balance or "count", compression)

    def to_json(self) -> dict[str, Json]:
        """Return the options for the manifest."""
        options: dict[str, Json] = {"shards": dict(self.counts), "balance": self.balance}
        if self.compression == "none":
            return options
        return {**options, "compression": {**recorded_release(self.compression)}}

    def lay_out(self, area: BuildArea) -> dict[str, SplitLayout]:
        """Return the layout of each split, in which all records are in new shards."""
        return {
            split: new_layout(area, self.origins, split, count, self.balance)
            for split, count in self.counts.items()
        }
