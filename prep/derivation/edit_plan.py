"""Plan an edit: the shards of the next generation of a dataset, most of which are those of the last one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tfshards.prep.derivation.edit_layout import EditedLayout
from tfshards.prep.derivation.origin import Origin
from tfshards.prep.derivation.rewrite_plan import RewritePlan, SplitPlan
from tfshards.prep.records.example import with_label
from tfshards.prep.records.frames import frame
from tfshards.prep.records.reader import FrameReader
from tfshards.prep.writing.area import ShardId
from tfshards.schemas import Schema, Shard
from tfshards.schemas.index import FOOTER_BYTES, HEADER_BYTES, IntArray, RecordIndex
from tfshards.schemas.manifest import Compression
from tfshards.schemas.storage import AnyPath


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
