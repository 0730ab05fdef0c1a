"""Decide which record of a split is in which shard after some were removed: pure functions.

If the shards of the split differed by at most one example before, they do so afterwards, with as few other
shards rewritten as possible. Otherwise, after appends and in shards that are balanced by bytes, records only
leave their shards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfshards.prep.planning.balance import BoolArray
from tfshards.schemas.index import IntArray


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
