"""Plan which records of which origins each new shard holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfshards.prep.derivation.assignment import assign, interleave
from tfshards.prep.derivation.origin import Origin
from tfshards.prep.planning.options import Balance
from tfshards.prep.writing.area import BuildArea, ShardId
from tfshards.prep.writing.shard_names import shard_name
from tfshards.schemas import Shard
from tfshards.schemas.index import IntArray
from tfshards.schemas.manifest import Compression


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
