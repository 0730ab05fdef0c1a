"""Lay out: which records are in which new shard, and which old shards stay as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tfshards.prep.planning.balance import BoolArray, pack
from tfshards.prep.planning.options import Balance
from tfshards.prep.rewriting.origin import Origin
from tfshards.prep.writing.area import BuildArea, ShardId
from tfshards.prep.writing.shard_names import shard_name
from tfshards.schemas import Schema, Shard
from tfshards.schemas.compression import Compression
from tfshards.schemas.index import IntArray


def assign(num_examples: int, num_shards: int, sizes: IntArray | None = None) -> list[IntArray]:
    """Return the indices, in a sequence of records, of the records of each new shard, ascending.

    Args:
        num_examples: length of the sequence.
        num_shards: from 1 to ``num_examples``, or 1 if there are no examples.
        sizes: shape ``(num_examples,)``, bytes of each record in the order of the sequence. If given, shards
            are balanced by bytes; otherwise the sequence is cut into runs that differ by at most one record.
    """
    everything = np.arange(num_examples, dtype=np.int64)
    return np.array_split(everything, num_shards) if sizes is None else pack(everything, num_shards, sizes)


def interleave(counts: Sequence[int]) -> IntArray:
    """Return an order of the records of several sequences that spreads each evenly and keeps its own order.

    If the sequences were concatenated, most shards would hold records of only one sequence.

    Args:
        counts: number of records of each sequence.

    Returns:
        Shape ``(sum(counts),)``: record numbers, counted through all sequences.
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


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """New shards, and the datasets from which they are written.

    Attributes:
        verb: what is done, for status lines.
        area: build area of the new dataset.
        name: name of the new dataset.
        origins: datasets whose records it holds.
        splits: layout of each split.
        in_order: whether each new shard holds long runs of the records of each origin.
        compression: compression of the new shards.
        verifies_kept: whether the files of shards that stay are compared with their digests.
    """

    verb: str
    area: BuildArea
    name: str
    origins: Sequence[Origin]
    splits: Mapping[str, SplitLayout]
    in_order: bool
    compression: Compression
    verifies_kept: bool = False

    @property
    def shards(self) -> list[ShardId]:
        """All new shards."""
        return [ShardId(name, index) for name, of in self.splits.items() for index in range(len(of.kept))]

    @property
    def written(self) -> list[ShardId]:
        """The new shards whose records are copied one by one."""
        return [shard for shard in self.shards if self.splits[shard.split].kept[shard.shard_index] < 0]

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
        return shard_name(self.name, *shard, num_shards, build_id=self.area.plan_id)


def new_layout(
    area: BuildArea, origins: Sequence[Origin], split: str, num_shards: int, balance: Balance
) -> SplitLayout:
    """Return the layout of a split in new shards, each of which mixes the datasets.

    Raises:
        InputError: an index or a file of labels of an origin is damaged.
    """
    shards = shards_of(origins, split)
    counts = [of.manifest.splits[split].num_examples for of in origins if split in of.manifest.splits]
    order = interleave(counts)
    sizes = None
    if balance == "bytes":
        indexes = area.each(lambda of: origins[of[0]].index(of[1]), shards)
        sizes = np.concatenate([index.lengths for index in indexes])[order]
    found = area.each(lambda of: origins[of[0]].labels(of[1]), shards)
    labels = [of_shard for of_shard in found if of_shard is not None]
    layout = assign(len(order), num_shards, sizes)
    return SplitLayout(shards, order, layout, [-1] * num_shards, np.concatenate(labels) if labels else None)


def linked_layout(origins: Sequence[Origin], split: str) -> SplitLayout:
    """Return the layout of a split whose shards are those of all origins, unchanged."""
    shards = shards_of(origins, split)
    none = np.empty(0, np.int64)
    return SplitLayout(shards, none, [none] * len(shards), range(len(shards)))


def shards_of(origins: Sequence[Origin], split: str) -> list[tuple[int, Shard]]:
    """Return the shards of a split of all origins, each with the index of its origin."""
    held = [(index, origin.manifest.splits.get(split)) for index, origin in enumerate(origins)]
    return [(index, shard) for index, of in held if of for shard in of.shards]


def edited_layout(
    origin: Origin, split: str, is_removed: BoolArray, labels: IntArray | None, *, is_balanced: bool
) -> SplitLayout:
    """Return the layout of a split without the removed records.

    Records that leave a shard to balance others are its last ones, and become the last ones of the other
    shard; all others keep their shard and their order. A shard that keeps its records is not written unless
    the origin changes them.

    Args:
        origin: the dataset.
        split: name of the split.
        is_removed: shape ``(num_examples,)``; at least one record stays.
        labels: shape ``(num_examples,)``, new label of each record; None if there are no labels.
        is_balanced: whether the new shards have to differ by at most one record.
    """
    shards = shards_of([origin], split)
    sizes = np.array([shard.num_examples for _, shard in shards], np.int64)
    old = np.split(np.arange(len(is_removed), dtype=np.int64), np.cumsum(sizes)[:-1])
    left = [shard[~is_removed[shard]] for shard in old]
    counts = np.array([len(shard) for shard in left], np.int64)
    targets = balanced_counts(sizes, counts) if is_balanced else counts
    spare = np.concatenate([shard[target:] for shard, target in zip(left, targets.tolist(), strict=True)])
    given = np.split(spare, np.cumsum(np.maximum(targets - counts, 0))[:-1])
    records, kept = [], []
    for index, (_, shard) in enumerate(shards):
        target = int(targets[index])
        # a shard that has lost all its records is left out, but not one that was empty before
        if target or not len(old[index]):
            records.append(np.concatenate([left[index][:target], given[index]]))
            is_same = counts[index] == target == sizes[index] and shard.path not in origin.new_labels
            kept.append(index if is_same else -1)
    order = np.concatenate(records)
    layout = np.split(np.arange(len(order)), np.cumsum([len(each) for each in records])[:-1])
    return SplitLayout(shards, order, layout, kept, labels, len(spare))


def balanced_counts(sizes: IntArray, counts: IntArray) -> IntArray:
    """Return the new number of records of each shard; those that are not 0 differ by at most one.

    As few shards as possible change that have lost no records. There are as many shards as before, unless
    fewer records than shards are left: then each of those that remain has one.

    Args:
        sizes: shape ``(num_shards,)``, number of records of each shard; they differ by at most one.
        counts: shape ``(num_shards,)``, the number of those that are left; at least one is.
    """
    num_shards = min(len(sizes), int(counts.sum()))
    least, num_larger = divmod(int(counts.sum()), num_shards)
    # the fullest shards stay, and of equal ones the first
    by_count = np.argsort(-counts, kind="stable")[:num_shards]
    targets = np.zeros(len(sizes), np.int64)
    is_open = np.zeros(len(sizes), np.bool_)
    is_open[by_count] = True
    for size, room in ((least + 1, num_larger), (least, num_shards - num_larger)):
        unchanged = np.flatnonzero(is_open & (counts == sizes) & (sizes == size))[:room]
        targets[unchanged] = size
        is_open[unchanged] = False
        if size > least:
            num_larger -= len(unchanged)
    rest = by_count[is_open[by_count]]
    targets[rest] = least
    targets[rest[:num_larger]] += 1
    return targets


def label_counts(labels: IntArray | None, schema: Schema) -> dict[str, int]:
    """Return the number of examples of each class, as a manifest has it: nothing if one has no class."""
    if labels is None:
        return {}
    values, counts = np.unique(labels, return_counts=True)
    found = dict(zip(values.tolist(), counts.tolist(), strict=True))
    if not schema.class_names:
        return {str(label): count for label, count in found.items()}
    if -1 in found:
        return {}
    return {name: found.get(label, 0) for label, name in enumerate(schema.class_names)}
