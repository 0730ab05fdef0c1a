"""When a worker reads which records of an epoch: the arithmetic of ``records/streams.py``, run ahead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.loader.order.epoch import Epoch
from tfshards.loader.order.plan import Plan
from tfshards.loader.records.record_reader import RecordReader
from tfshards.loader.records.streams import ranks_of_lanes

IntArray = npt.NDArray[np.int64]

# By steps, a stream has ended when the stream this many after it begins: TensorFlow reads two, and opens four
# ahead.
STREAMS_AHEAD = 8


@dataclass(frozen=True, eq=False)
class Schedule:
    """The uses of blocks in an epoch, in the order in which they begin; a use reads neighbors in a block.

    Attributes:
        lanes: shape ``(n,)`` int64: the lane of the worker that reads; by steps, the number of the stream.
        shards: shape ``(n,)`` int64: the index of the shard.
        firsts: shape ``(n,)`` int64: the first record, counted in the shard.
        ends: shape ``(n,)`` int64: the record after the last one.
        numbers: shape ``(n,)`` int64: the example number of the first record.
        num_lanes: the number of lanes, or of streams.
        by_number: shape ``(n,)`` int64: the uses in ascending order of their example numbers.
        begins: shape ``(n,)`` bool: whether the use is the first one of its lane.
    """

    lanes: IntArray
    shards: IntArray
    firsts: IntArray
    ends: IntArray
    numbers: IntArray
    num_lanes: int
    by_number: IntArray
    begins: npt.NDArray[np.bool_]

    def use_of(self, number: int) -> int | None:
        """Return the use that reads the example ``number``, or None."""
        row = int(np.searchsorted(self.numbers, number, side="right", sorter=self.by_number)) - 1
        if row < 0:
            return None
        use = int(self.by_number[row])
        return use if number - self.numbers[use] < self.ends[use] - self.firsts[use] else None

    def __len__(self) -> int:
        return len(self.lanes)


def schedule(plan: Plan, reader: RecordReader, epoch: int) -> Schedule:
    """Return the uses of an epoch, from its first step or, in the first epoch, from ``plan.begin``.

    Args:
        plan: what the worker reads.
        reader: reads runs, in blocks of ``reader.shards.unit`` records.
        epoch: number of the epoch.
    """
    first = plan.begin.step if epoch == plan.begin.epoch else 0
    with tf.device("CPU:0"):
        opened = plan.order.epoch(tf.constant(epoch, tf.int64))
        find = _by_lanes if plan.assignment.lanes else _by_steps
        lanes, steps, pieces, num_lanes = find(plan, reader, opened, first)
    shards, firsts, counts, numbers = pieces
    order = np.lexsort((lanes, steps))
    lanes, shards, firsts, counts, numbers = (
        each[order] for each in (lanes, shards, firsts, counts, numbers)
    )
    # Neighbors in the order that are in one block are one use; by steps, with the records of other workers
    # between them.
    blocks = firsts // reader.shards.unit
    same = (lanes[1:] == lanes[:-1]) & (shards[1:] == shards[:-1]) & (blocks[1:] == blocks[:-1])
    if plan.assignment.lanes:
        same &= firsts[1:] == (firsts + counts)[:-1]
    starts = np.flatnonzero(np.concatenate([[True], ~same])) if len(lanes) else np.zeros(0, np.int64)
    lasts = np.append(starts[1:], len(lanes)) - 1
    begins = np.zeros(len(starts), bool)
    begins[np.unique(lanes[starts], return_index=True)[1]] = True
    return Schedule(
        lanes=lanes[starts],
        shards=shards[starts],
        firsts=firsts[starts],
        ends=(firsts + counts)[lasts],
        numbers=numbers[starts],
        num_lanes=num_lanes,
        by_number=np.argsort(numbers[starts], kind="stable").astype(np.int64),
        begins=begins,
    )


def _by_lanes(
    plan: Plan, reader: RecordReader, epoch: Epoch, first: int
) -> tuple[IntArray, IntArray, list[IntArray], int]:
    """Return the lane and the step of each piece, the pieces, and the number of lanes."""
    assignment = plan.assignment
    step = tf.constant(first, tf.int64)
    ranks = [
        ranks_of_lanes(assignment, epoch, tf.constant(index, tf.int64), step, assignment.num_steps)[0]
        for index in range(assignment.num_readers)
    ]
    starts, counts = (tf.concat(each, axis=0) for each in zip(*ranks, strict=True))
    pieces = _pieces(reader, epoch, tf.reshape(starts, [-1]), tf.reshape(counts, [-1]))
    ends = np.cumsum(counts.numpy().sum(axis=1))
    before = np.cumsum(pieces[2]) - pieces[2]
    lanes = np.searchsorted(ends, before, side="right").astype(np.int64)
    positions = before - np.append(0, ends)[lanes]
    return lanes, first + positions // assignment.rows_per_lane, pieces, assignment.worker_lanes


def _by_steps(
    plan: Plan, reader: RecordReader, epoch: Epoch, first: int
) -> tuple[IntArray, IntArray, list[IntArray], int]:
    """Return the stream and the place in the order of each piece, the pieces, and the number of streams."""
    assignment = plan.assignment
    size, width = assignment.batch_size, assignment.chunk * assignment.group
    hop = width if assignment.worker.count == 1 else 1
    steps = np.arange(first, assignment.num_steps, hop, dtype=np.int64)
    starts = steps * assignment.global_batch_size + assignment.worker.index * size
    wanted = np.minimum(hop, assignment.num_steps - steps) * size
    counts = np.clip(assignment.num_positions - starts, 0, wanted)
    pieces = _pieces(reader, epoch, tf.constant(starts), tf.constant(counts))
    before = np.cumsum(pieces[2]) - pieces[2]
    row = np.searchsorted(np.cumsum(counts), before, side="right")
    streams = (steps[row] - first) // width
    num_streams = int(streams[-1]) + 1 if len(streams) else 0
    return streams, np.arange(len(before), dtype=np.int64), pieces, num_streams


def _pieces(reader: RecordReader, epoch: Epoch, starts: tf.Tensor, counts: tf.Tensor) -> list[IntArray]:
    return [each.numpy() for each in reader.run_intervals(epoch, starts, counts)]
