"""Lay out the records of shards in new shards: pure functions of shards and numbers of records.

The records of the old shards of a split are numbered through all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
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
        sizes: number of records of each new shard.
        runs: returns the runs of records of a new shard, by its index.
        digest: the digest of all examples that has to result.
    """

    olds: Sequence[OldShard]
    sizes: Sequence[int]
    runs: Callable[[int], Runs]
    digest: str

    def kept(self, index: int) -> Shard | None:
        """Return the old shard whose records a new one holds, unchanged and in their order, or None."""
        runs = self.runs(index)
        if len(runs) != 1:
            return None
        number, first, count = runs[0].tolist()
        _, shard, labels = self.olds[number]
        return shard if not (first or labels) and count == shard.num_examples else None


def runs_of(firsts: IntArray, lengths: IntArray, counts: Sequence[int]) -> Runs:
    """Return the runs of intervals of records, cut where an old shard ends; ``counts`` are their sizes."""
    ends = np.cumsum(counts, dtype=np.int64)
    # if several shards end at the same number, all but the first are empty
    first, last = (np.searchsorted(ends, of, side="right") for of in (firsts, firsts + lengths - 1))
    interval = np.repeat(np.arange(len(firsts)), last - first + 1)
    olds = (
        np.arange(len(interval)) - np.flatnonzero(np.diff(interval, prepend=-1))[interval] + first[interval]
    )
    starts = np.append(0, ends)[olds]
    begins = np.maximum(firsts[interval], starts)
    found: IntArray = np.minimum((firsts + lengths)[interval], ends[olds]) - begins
    return np.compress(found > 0, np.stack([olds, begins - starts, found], 1), axis=0)


def runs_of_records(numbers: IntArray, counts: Sequence[int]) -> Runs:
    """Return the runs of records in the order of their numbers; ``counts`` as for ``runs_of``."""
    firsts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    return runs_of(numbers[firsts], np.diff(firsts, append=len(numbers)), counts)


def whole(olds: Sequence[OldShard]) -> NewSplit:
    """Return the split that keeps old shards as they are."""
    counts = [old.shard.num_examples for old in olds]
    digest = digest_together(old.shard.examples_digest for old in olds)
    return NewSplit(olds, counts, lambda shard: np.array([[shard, 0, counts[shard]]]), digest)


def in_new_shards(split: NewSplit, num_shards: int) -> NewSplit:
    """Return a split with its records in new shards, each of which mixes the datasets.

    Their order spreads the records of each dataset evenly, and keeps its own order.
    """
    old = [each.shard.num_examples for each in split.olds]
    by_origin = groupby(split.olds, lambda each: each.origin)
    totals = [sum(each.shard.num_examples for each in olds) for _, olds in by_origin]
    share, extra = divmod(sum(totals), num_shards)
    sizes = [share + (index < extra) for index in range(num_shards)]
    starts = [0, *accumulate(sizes)]
    if len(totals) > 1:
        order = np.argsort(
            np.concatenate([(np.arange(count) + 0.5) / count for count in totals]), kind="stable"
        )

    def runs(shard: int) -> Runs:
        start, end = starts[shard], starts[shard + 1]
        if len(totals) == 1:
            return runs_of(np.array([start]), np.array([end - start]), old)
        return runs_of_records(order[start:end], old)

    return replace(split, sizes=sizes, runs=runs)


def without(split: NewSplit, is_removed: BoolArray) -> NewSplit:
    """Return a split whose old shards lack the removed records, of which at least one stays.

    If its old shards differ by at most one record, so do the new ones. Records that leave a shard to balance
    others are its last ones, and become the last ones of the other shard; all others keep their shard and
    their order. A shard that loses all its records is left out. ``is_removed`` has the shape
    ``(num_examples,)``.
    """
    counts = split.sizes
    old = np.split(np.arange(len(is_removed), dtype=np.int64), np.cumsum(counts)[:-1])
    is_balanced = max(counts) - min(counts) <= 1
    new = rebalance(old, is_removed) if is_balanced else [numbers[~is_removed[numbers]] for numbers in old]
    # but not a shard that was empty before
    chosen = [index for index in range(len(old)) if len(new[index]) or not len(old[index])]

    def runs(shard: int) -> Runs:
        return runs_of_records(new[chosen[shard]], counts)

    return replace(split, sizes=[len(new[index]) for index in chosen], runs=runs)
