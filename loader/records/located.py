"""From members of an epoch to the records of shards, as intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfshards.loader.order.epoch import Epoch
from tfshards.loader.order.intervals import split
from tfshards.loader.order.ops import Array, Ops
from tfshards.loader.order.plan import ReadPlan
from tfshards.loader.order.population import Ranges
from tfshards.loader.order.steps import PADDING
from tfshards.loader.records.shards import Shards


class RecordIntervals(NamedTuple):
    """Intervals of records, each in one shard, as int64 vectors.

    Attributes:
        firsts: the index of the first record in the shard.
        numbers: the number of the first example, or ``PADDING`` for a single record that fills a batch.
    """

    shards: Array
    firsts: Array
    counts: Array
    numbers: Array


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
    """Return the intervals of the members of ``ranges``, or of all examples."""
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
    # not np.unique, see stored/frames.py
    edges = np.sort(np.concatenate([[0], range_ends, cuts]))
    edges = edges[np.append(True, np.diff(edges) > 0)]
    begins = edges[:-1]
    around = np.searchsorted(range_ends, begins, side="right")
    to_number = (starts - (range_ends - sizes))[around]
    numbers = begins + to_number
    shard = np.searchsorted(shard_ends, numbers, side="right")
    columns = np.stack([shard, to_number - shards.bases[shard], to_number], axis=1).astype(np.int64)
    num_bad_starts, num_bad_ends = (
        np.searchsorted(bounds, numbers, side="right") for bounds in (shards.bad_starts, shards.bad_ends)
    )
    ends, is_bad, num_members = edges[1:], num_bad_starts > num_bad_ends, int(sizes.sum())
    if circular:
        # all members twice, as for a circle
        ends, is_bad = np.append(ends, ends + num_members), np.tile(is_bad, 2)
        columns = np.concatenate([columns, columns - num_members * np.array([0, 1, 1])])
    return IntervalTable(ends, columns, is_bad)


def read_ranges(plan: ReadPlan) -> Ranges | None:
    """Return the population, if neighbors in the order are read together; else each record is read alone."""
    population = plan.population
    return population if isinstance(population, Ranges) and plan.order.run != 1 else None


def run_intervals(
    shards: Shards, plan: ReadPlan, epoch: Epoch, starts: Array, counts: Array
) -> RecordIntervals:
    """Return the records of the ranks ``[start, start + count)``, int64 vectors, if ``read_ranges``."""
    members, lengths = plan.order.intervals(epoch, starts, counts)
    table = interval_table(shards, read_ranges(plan), circular=True)
    found = record_intervals(plan.order.ops, shards, table, members, lengths)
    return _cut_at_blocks(plan.order.ops, found, shards.unit) if shards.unit else found


def record_intervals(
    ops: Ops, shards: Shards, table: IntervalTable, starts: Array, counts: Array
) -> RecordIntervals:
    """Return the records of the members ``[start, start + count)``; padding replaces damaged ones."""
    _, row, starts, counts = split(ops, table.ends, starts, counts)
    shard, to_record, to_number = ops.columns(ops.gather(table.columns, row))
    intervals = RecordIntervals(shard, starts + to_record, counts, starts + to_number)
    if not table.is_bad.any():
        return intervals
    bad = ops.gather(table.is_bad, row)
    index, _ = ops.repeated(ops.where(bad, counts, np.int64(1)))
    bad = ops.gather(bad, index)
    both = zip(intervals, (*shards.first_good, 1, PADDING), strict=True)
    return RecordIntervals(
        *(ops.where(bad, np.int64(filling), ops.gather(real, index)) for real, filling in both)
    )


def _cut_at_blocks(ops: Ops, intervals: RecordIntervals, unit: int) -> RecordIntervals:
    """Split intervals at the multiples of ``unit`` records of their shards; none may be empty."""
    shards, firsts, counts, numbers = intervals
    blocks = firsts // unit
    index, within = ops.repeated((firsts + counts - 1) // unit - blocks + 1)
    begins = (ops.gather(blocks, index) + within) * unit
    starts = ops.gather(firsts, index)
    low = ops.maximum(starts, begins)
    high = ops.minimum(starts + ops.gather(counts, index), begins + unit)
    numbers = ops.gather(numbers, index) + low - starts
    return RecordIntervals(ops.gather(shards, index), low, high - low, numbers)
