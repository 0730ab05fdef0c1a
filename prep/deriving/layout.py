"""Lay out the records of shards in new shards: pure functions of shards and numbers of records.

The records of the old shards of a split are numbered through all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from tfshards.prep.planning.balance import BoolArray, rebalance
from tfshards.schemas import Shard
from tfshards.schemas.digests import digest_together
from tfshards.schemas.index import IntArray

# Runs of records, shape ``(num_runs, 3)``: index of the old shard, first record in it, number of records.
Runs: TypeAlias = IntArray


class OldShard(NamedTuple):
    """A shard of an origin, given by its index, and new labels by number of the record."""

    origin: int
    shard: Shard
    labels: Mapping[int, int] = {}


@dataclass(frozen=True, eq=False)
class NewSplit:
    """A split of a derived dataset.

    Attributes:
        olds: the old shards.
        layout: the numbers of the records of each new shard, in order; a range if they are consecutive.
        digest: the digest of all examples that has to result.
    """

    olds: Sequence[OldShard]
    layout: Sequence[IntArray | range]
    digest: str

    @cached_property
    def _ends(self) -> IntArray:
        return np.cumsum([old.shard.num_examples for old in self.olds], dtype=np.int64)

    def runs(self, index: int) -> Runs:
        """Return the runs of records of a new shard."""
        held, ends = self.layout[index], self._ends
        numbers = np.arange(held.start, held.stop) if isinstance(held, range) else held
        # if several shards end at the same number, all but the first are empty
        olds = np.searchsorted(ends, numbers, side="right")
        records = numbers - np.append(0, ends)[olds]
        firsts = np.flatnonzero((np.diff(numbers, prepend=-2) != 1) | (np.diff(olds, prepend=-1) != 0))
        return np.stack([olds[firsts], records[firsts], np.diff(firsts, append=len(numbers))], 1)

    def kept(self, index: int) -> Shard | None:
        """Return the old shard whose records a new one holds, unchanged and in their order, or None."""
        held = self.layout[index]
        if not len(held):
            return None
        number = int(np.searchsorted(self._ends, held[0], side="right"))
        _, shard, labels = self.olds[number]
        end = int(self._ends[number])
        old = range(end - shard.num_examples, end)
        is_same = held == old if isinstance(held, range) else np.array_equal(held, np.arange(old.start, end))
        return shard if is_same and not labels else None


def whole(olds: Sequence[OldShard]) -> NewSplit:
    """Return the split that keeps old shards as they are."""
    counts = [old.shard.num_examples for old in olds]
    layout = [range(end - count, end) for count, end in zip(counts, accumulate(counts), strict=True)]
    return NewSplit(olds, layout, digest_together(old.shard.examples_digest for old in olds))


def in_new_shards(split: NewSplit, num_shards: int) -> NewSplit:
    """Return a split with its records in new shards, each of which mixes the datasets.

    Their order spreads the records of each dataset evenly, and keeps its own order.
    """
    by_origin = groupby(split.olds, lambda each: each.origin)
    totals = [sum(each.shard.num_examples for each in olds) for _, olds in by_origin]
    share, extra = divmod(sum(totals), num_shards)
    ends = [*accumulate(share + (index < extra) for index in range(num_shards))]
    order: IntArray | range = range(sum(totals))
    if len(totals) > 1:
        order = np.argsort(
            np.concatenate([(np.arange(count) + 0.5) / count for count in totals]), kind="stable"
        )
    return replace(split, layout=[order[start:end] for start, end in pairwise([0, *ends])])


def without(split: NewSplit, is_removed: BoolArray) -> NewSplit:
    """Return a split whose old shards lack the removed records, of which at least one stays.

    If its old shards differ by at most one record, so do the new ones. Records that leave a shard to balance
    others are its last ones, and become the last ones of the other shard; all others keep their shard and
    their order. A shard that loses all its records is left out. ``is_removed`` has the shape
    ``(num_examples,)``.
    """
    counts = [old.shard.num_examples for old in split.olds]
    old = np.split(np.arange(len(is_removed), dtype=np.int64), np.cumsum(counts)[:-1])
    is_balanced = max(counts) - min(counts) <= 1
    new = rebalance(old, is_removed) if is_balanced else [numbers[~is_removed[numbers]] for numbers in old]
    # but not a shard that was empty before
    return replace(split, layout=[now for now, was in zip(new, old, strict=True) if len(now) or not len(was)])
