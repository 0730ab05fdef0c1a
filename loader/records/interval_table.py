"""The location of a population in the files: a table of intervals, each read sequentially."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tfshards.loader.order.population import Ranges
from tfshards.loader.records.shards import Shards


@dataclass(frozen=True, eq=False)
class IntervalTable:
    """Consecutive intervals of members, each in one shard; none is empty.

    Attributes:
        ends: shape ``(n,)`` int64: the member after the last one of each interval.
        columns: shape ``(n, 3)`` int64: the shard, and the numbers added to a member to get its record in the
            shard and its example number.
        is_bad: shape ``(n,)``: whether the records are damaged.
    """

    ends: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    is_bad: npt.NDArray[np.bool_]


def interval_table(shards: Shards, ranges: Ranges | None = None, *, circular: bool = False) -> IntervalTable:
    """Return the intervals of the members of ``ranges``, or of all examples.

    Args:
        shards: the shards of the split.
        ranges: the examples of the population, in ascending order; None for all, whose members are numbers.
        circular: whether the table holds all members twice, as for a circle.
    """
    num_examples = int(shards.sizes.sum())
    starts = np.zeros(1, np.int64) if ranges is None else ranges.starts
    sizes = np.array([num_examples], np.int64) if ranges is None else ranges.sizes
    range_ends = np.cumsum(sizes)
    shard_ends = np.cumsum(shards.sizes)
    cuts = np.concatenate([shard_ends, shards.bad_starts, shards.bad_ends])
    # the ranges that contain the cuts, if any
    around = np.maximum(np.searchsorted(starts, cuts, side="right") - 1, 0)
    within = cuts - starts[around]
    inside = (within >= 0) & (within < sizes[around])
    cuts = (within + (range_ends - sizes)[around])[inside]
    edges = np.unique(np.concatenate([[0], range_ends, cuts]))
    begins = edges[:-1]
    around = np.searchsorted(range_ends, begins, side="right")
    to_number = (starts - (range_ends - sizes))[around]
    numbers = begins + to_number
    shard = np.searchsorted(shard_ends, numbers, side="right")
    columns = np.stack([shard, to_number - shards.bases[shard], to_number], axis=1).astype(np.int64)
    num_bad_starts, num_bad_ends = (
        np.searchsorted(bounds, numbers, side="right") for bounds in (shards.bad_starts, shards.bad_ends)
    )
    found = IntervalTable(edges[1:], columns, num_bad_starts > num_bad_ends)
    return _twice(found, int(sizes.sum())) if circular else found


def _twice(once: IntervalTable, num_members: int) -> IntervalTable:
    ends = np.append(once.ends, once.ends + num_members)
    columns = np.concatenate([once.columns, once.columns - num_members * np.array([0, 1, 1])])
    return IntervalTable(ends, columns, np.tile(once.is_bad, 2))
