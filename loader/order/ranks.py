"""The ranks of the epoch's order that a worker reads for its steps, as intervals; and the steps of ranks."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from tfshards.loader.order.assignment import Assignment, lane_start
from tfshards.loader.order.epoch import Epoch
from tfshards.loader.order.ops import Array, Ints, Ops

# Intervals of ranks: arrays of starts and of counts.
Ranks: TypeAlias = "tuple[Array, Array]"


def lane_ranks(ops: Ops, begins: Array, ends: Array, entries: Array, starts: Array, counts: Array) -> Ranks:
    """Return the ranks of the positions ``[start, start + count)`` of lanes: two intervals for each lane.

    Args:
        ops: the library of the arrays.
        begins: shape ``(n,)`` int64: the first rank of each lane.
        ends: shape ``(n,)`` int64: the rank after its last one.
        entries: shape ``(n,)`` int64: the number of ranks after its first at which each lane is entered.
        starts: shape ``(n,)`` int64.
        counts: shape ``(n,)`` int64.

    Returns:
        Starts and counts, shape ``(n, 2)`` int64 each: up to the end of the lane, then from its beginning;
        either may be empty.
    """
    bounds = ops.stack([starts + entries, starts + entries + counts], 0)
    pieces = ops.stack([ops.minimum(bounds, ends), ops.maximum(bounds, ends) - (ends - begins)], 2)
    starts, stops = ops.unstack(pieces)
    return starts, stops - starts


def ranks_of_lanes(
    ops: Ops, assignment: Assignment, epoch: Epoch, reader: Array, step: Array, end: Array
) -> tuple[Ranks, Array]:
    """Return the ranks that the lanes of a reader give to the steps ``[step, end)`` of an epoch.

    Returns:
        Starts and counts of two intervals for each lane, shape ``(lanes, 2)`` int64 each; and the number of
        positions that each lane lacks, shape ``(lanes,)`` int64.
    """
    num_lanes = assignment.worker_lanes // assignment.num_readers
    rows = assignment.rows_per_lane
    lanes = range(assignment.lanes + 1)
    bounds = np.array([lane_start(assignment.num_positions, assignment.lanes, lane) for lane in lanes])
    # under a parameter server the index is only known in the graph
    row = assignment.worker.index * assignment.num_readers + reader
    begins, ends, entries = (
        ops.gather(ops.reshape(each, [-1, num_lanes]), row)
        for each in (bounds[:-1], bounds[1:], epoch.entries)
    )
    starts = begins + step * rows
    wanted = (end - step) * rows
    counts = ops.maximum(ops.minimum(ends - starts, wanted), np.int64(0))
    return lane_ranks(ops, begins, ends, entries, starts, counts), wanted - counts


def ranks_of_steps(ops: Ops, assignment: Assignment, step: Array, end: Array) -> tuple[Ranks, Array]:
    """Return the ranks of the steps ``[step, end)``, by steps, and the number that each interval lacks."""
    batch_size, steps = assignment.batch_size, end - step
    if assignment.worker.count == 1:
        starts, wanted = (ops.reshape(each * batch_size, [1]) for each in (step, steps))
    else:
        starts = (ops.arange(steps) + step) * assignment.global_batch_size
        starts += assignment.worker.index * batch_size
        wanted = ops.full(steps, np.int64(batch_size))
    counts = ops.maximum(ops.minimum(np.int64(assignment.num_positions) - starts, wanted), np.int64(0))
    return (starts, counts), wanted - counts


class Rows(NamedTuple):
    """Rows of batches: the step in the epoch, the worker, and the row in its batch, int64 vectors."""

    steps: Ints
    workers: Ints
    rows: Ints


def rows_of_ranks(assignment: Assignment, epoch: Epoch, ranks: Ints) -> Rows:
    """Return the rows, of all workers, at which the steps of an epoch have these ranks, in NumPy.

    It is the inverse of ``ranks_of_lanes`` and ``ranks_of_steps``. Ranks that ``remainder="drop"`` leaves out
    have a step after the last one.
    """
    batch_size, num_lanes = assignment.batch_size, assignment.lanes
    if not num_lanes:
        steps, row = np.divmod(ranks, assignment.global_batch_size)
        return Rows(steps, *np.divmod(row, batch_size))
    rows = assignment.rows_per_lane
    bounds = np.array(
        [lane_start(assignment.num_positions, num_lanes, lane) for lane in range(num_lanes + 1)], np.int64
    )
    lengths = np.diff(bounds)
    lanes = np.searchsorted(bounds[1:], ranks, side="right")
    steps, within = np.divmod((ranks - bounds[lanes] - epoch.entries[lanes]) % lengths[lanes], rows)
    workers, lane = np.divmod(lanes, assignment.worker_lanes)
    found = lane * rows + within
    if assignment.remainder == "keep":
        # the last batch has no rows for positions that its lanes lack
        counts = np.clip(lengths - (assignment.num_steps - 1) * rows, 0, rows)
        counts = counts.reshape(-1, assignment.worker_lanes)
        kept = (np.cumsum(counts, axis=1) - counts)[workers, lane] + within
        found = np.where(steps == assignment.num_steps - 1, kept, found)
    return Rows(steps, workers, found)
