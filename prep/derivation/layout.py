"""Which records are in which new shard: for other numbers of shards, and after an edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tfshards.prep.derivation.origin import Origin
from tfshards.prep.planning.balance import BoolArray, pack
from tfshards.prep.planning.options import Balance
from tfshards.prep.records.example import with_label
from tfshards.prep.records.frames import FrameReader, frame
from tfshards.prep.writing.area import BuildArea, ShardId
from tfshards.prep.writing.shard_names import shard_name
from tfshards.schemas import Schema, Shard
from tfshards.schemas.index import FOOTER_BYTES, HEADER_BYTES, IntArray, RecordIndex
from tfshards.schemas.manifest import Compression
from tfshards.schemas.storage import AnyPath


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


@dataclass(frozen=True)
class RewritePlan:
    """The new shards of a dataset, and the datasets from which they are written.

    Attributes:
        area: build area of the new dataset.
        name: name of the new dataset.
        origins: datasets whose records it holds.
        num_shards: number of new shards of each split.
        balance: whether shards are balanced by number of examples or by bytes.
        compression: compression of the new shards.
    """

    area: BuildArea
    name: str
    origins: Sequence[Origin]
    num_shards: Mapping[str, int]
    balance: Balance
    compression: Compression

    @property
    def shards(self) -> list[ShardId]:
        """The shards that are written."""
        return [ShardId(split, index) for split, count in self.num_shards.items() for index in range(count)]

    @property
    def read_shards(self) -> list[tuple[Origin, Shard]]:
        """The shards of the origins that are read."""
        return [(origin, shard) for origin in self.origins for shard in origin.manifest.shards]

    @property
    def verb(self) -> str:
        """What is done, for status lines."""
        return "reshard" if len(self.origins) == 1 else "merge"

    def split_plans(self) -> Mapping[str, SplitPlan]:
        """Return the plan of each split.

        Raises:
            InputError: an index or a file of labels of an origin is damaged.
        """
        return {split: plan_split(self, split) for split in self.num_shards}

    def shard_path(self, shard: ShardId) -> str:
        """Return the path of a new shard, relative to the dataset."""
        return shard_name(self.name, *shard, self.num_shards[shard.split], build_id=self.area.plan_id)


@dataclass(frozen=True, eq=False)
class SplitPlan:
    """The records of one split, and the new shard of each.

    Attributes:
        shards: shards of the origins, each with the index of its origin.
        starts: shape ``(len(shards),)``, number of the first record of each shard.
        order: shape ``(num_examples,)``, record numbers in the order in which they are assigned.
        layout: for each new shard, indices into ``order``, ascending.
        labels: shape ``(num_examples,)``, by record number; None if the examples have no labels.
    """

    shards: list[tuple[int, Shard]]
    starts: IntArray
    order: IntArray
    layout: list[IntArray]
    labels: IntArray | None

    def num_examples(self, shard: ShardId) -> int:
        """Return the number of records of a new shard."""
        return len(self.layout[shard.shard_index])

    def labels_of(self, shard: ShardId) -> IntArray | None:
        """Return the labels of the records of a new shard, in order; None if there are no labels."""
        if self.labels is None:
            return None
        return self.labels[self.order[self.layout[shard.shard_index]]]


def plan_split(plan: RewritePlan, split: str) -> SplitPlan:
    """Return the plan of one split.

    Raises:
        InputError: an index or a file of labels of an origin is damaged.
    """
    splits = [origin.manifest.splits.get(split) for origin in plan.origins]
    shards = [(index, shard) for index, held in enumerate(splits) if held for shard in held.shards]
    order = interleave([held.num_examples for held in splits if held])
    sizes = None
    if plan.balance == "bytes":
        indexes = [*plan.area.each(lambda of: plan.origins[of[0]].index(of[1]), shards)]
        sizes = np.concatenate([index.lengths for index in indexes])[order]
    ends = np.cumsum([shard.num_examples for _, shard in shards])
    found = plan.area.each(lambda of: plan.origins[of[0]].labels(of[1]), shards)
    labels = [of_shard for of_shard in found if of_shard is not None]
    return SplitPlan(
        shards=shards,
        starts=np.concatenate([[0], ends[:-1]]),
        order=order,
        layout=assign(len(order), plan.num_shards[split], sizes),
        labels=np.concatenate(labels) if labels else None,
    )


@dataclass(frozen=True, eq=False)
class EditedLayout:
    """The shards of a split after an edit.

    Attributes:
        records: for each new shard, the numbers of its records in the old split, in the new order.
        kept: for each new shard, the index of the old shard that it is unchanged; -1 if it is written.
        num_moved: number of records that go from one shard to another.
    """

    records: list[IntArray]
    kept: list[int]
    num_moved: int


def edited_layout(sizes: IntArray, is_removed: BoolArray, *, is_balanced: bool) -> EditedLayout:
    """Return the shards of a split without the removed records.

    Records that leave a shard to balance others are its last ones, and become the last ones of the other
    shard; all others keep their shard and their order.

    Args:
        sizes: shape ``(num_shards,)``, number of records of each shard.
        is_removed: shape ``(num_examples,)``; at least one record stays.
        is_balanced: whether the new shards have to differ by at most one record.
    """
    numbers = np.arange(len(is_removed), dtype=np.int64)
    old = np.split(numbers, np.cumsum(sizes)[:-1])
    left = [shard[~is_removed[shard]] for shard in old]
    counts = np.array([len(shard) for shard in left], np.int64)
    targets = balanced_counts(sizes, counts) if is_balanced else counts
    spare = np.concatenate([shard[target:] for shard, target in zip(left, targets.tolist(), strict=True)])
    lacking = np.maximum(targets - counts, 0)
    given = np.split(spare, np.cumsum(lacking)[:-1])
    records, kept = [], []
    for index, target in enumerate(targets.tolist()):
        if target:
            records.append(np.concatenate([left[index][:target], given[index]]))
            kept.append(index if counts[index] == target == sizes[index] else -1)
    return EditedLayout(records, kept, len(spare))


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


@dataclass(frozen=True, kw_only=True)
class EditPlan(RewritePlan):
    """The shards of an edited dataset; only those that are written count as shards of the plan.

    Attributes:
        verb_name: ``remove`` or ``relabel``.
        layouts: layout of each split.
        labels: label of each record of each split, shape ``(num_examples,)``; None without labels.
    """

    verb_name: str
    layouts: Mapping[str, EditedLayout]
    labels: Mapping[str, IntArray | None]

    @property
    def verb(self) -> str:
        """What is done, for status lines."""
        return self.verb_name

    @property
    def shards(self) -> list[ShardId]:
        """The shards that are written."""
        return [shard for shard in super().shards if self._kept(shard) < 0]

    @property
    def kept_shards(self) -> list[tuple[ShardId, Shard, Shard]]:
        """The unchanged shards: the new id, the old entry in the manifest, and the new one."""
        found = []
        for shard in super().shards:
            if self._kept(shard) >= 0:
                old = self._old_shards(shard.split)[self._kept(shard)]
                found.append((shard, old, replace(old, path=self.shard_path(shard))))
        return found

    @cached_property
    def read_shards(self) -> list[tuple[Origin, Shard]]:
        """The old shards from which records are read."""
        (origin,) = self.origins
        found = []
        for split, layout in self.layouts.items():
            shards = self._old_shards(split)
            ends = np.cumsum([shard.num_examples for shard in shards])
            written = [np.empty(0, np.int64)]
            written += [
                records for records, kept in zip(layout.records, layout.kept, strict=True) if kept < 0
            ]
            numbers = np.unique(np.searchsorted(ends, np.concatenate(written), side="right"))
            found += [(origin, shards[number]) for number in numbers.tolist()]
        return found

    def split_plans(self) -> Mapping[str, SplitPlan]:
        """Return the plan of each split."""
        return {split: self._split_plan(split) for split in self.layouts}

    def _split_plan(self, split: str) -> SplitPlan:
        records = self.layouts[split].records
        shards = self._old_shards(split)
        order = np.concatenate(records)
        return SplitPlan(
            shards=[(0, shard) for shard in shards],
            starts=np.cumsum([0, *(shard.num_examples for shard in shards[:-1])], dtype=np.int64),
            order=order,
            layout=np.split(np.arange(len(order)), np.cumsum([len(each) for each in records])[:-1]),
            labels=self.labels[split],
        )

    def _old_shards(self, split: str) -> tuple[Shard, ...]:
        return self.origins[0].manifest.splits[split].shards

    def _kept(self, shard: ShardId) -> int:
        return self.layouts[shard.split].kept[shard.shard_index]


@dataclass(frozen=True)
class RelabeledOrigin(Origin):
    """A dataset whose records are read with other labels.

    Attributes:
        new_labels: new labels by number of the record, by path of the shard.
    """

    new_labels: Mapping[str, Mapping[int, int]]

    def frames(self, shard: Shard) -> FrameReader:
        """Return a reader of single frames of a shard, with the new labels."""
        label = self.manifest.schema.label
        assert label is not None
        return _RelabelingReader(
            self.root / shard.path,
            self.manifest.compression,
            self.index(shard),
            label=label.name,
            new_labels=self.new_labels.get(shard.path, {}),
        )


class _RelabelingReader(FrameReader):
    """Read frames with the new labels of some records."""

    def __init__(
        self,
        path: AnyPath,
        compression: Compression,
        index: RecordIndex,
        *,
        label: str,
        new_labels: Mapping[int, int],
    ) -> None:
        super().__init__(path, compression, index)
        self._label, self._new_labels = label, new_labels

    def read(self, record: int) -> tuple[bytes, bytes]:
        """Return the new frame of a record, and its last 4 bytes."""
        found, footer = super().read(record)
        if record not in self._new_labels:
            return found, footer
        # the plan has found that the label can be replaced
        data = with_label(found[HEADER_BYTES:-FOOTER_BYTES], self._label, self._new_labels[record])
        parts = frame(data)
        return b"".join(parts), parts[-1]


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
