"""Read the records of one worker in the order of its steps, in streams of neighboring positions."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfshards.loader.graph.raw_ops import count_up, gather, new_counter
from tfshards.loader.graph.stages import flat_mapped, interleaved, mapped
from tfshards.loader.order.assignment import Assignment, lane_start
from tfshards.loader.order.epoch import Epoch, lane_ranks
from tfshards.loader.order.plan import Plan
from tfshards.loader.records.record_reader import RecordReader

# By steps: the number of streams that are open and read at the same time.
STREAMS_OPEN = 2


def read_groups(plan: Plan, records: RecordReader) -> tf.data.Dataset:
    """Return ``(epoch, (numbers, records))`` of the groups of steps of ``plan``.

    ``epoch`` (int64) has shape ``(readers,)``, ``numbers`` (int64, see ``read_intervals``) and ``records``
    (string) have shape ``(readers, steps * batch_size / readers)``, where ``steps`` is ``assignment.group``,
    or fewer at the end of an epoch. Each reader reads a part of every step's rows: its lanes.
    """
    assignment, start = plan.assignment, plan.begin
    end = plan.epochs if plan.epochs is not None else tf.int64.max
    end = end if assignment.num_steps else start.epoch

    def first_step(epoch: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.equal(epoch, start.epoch), tf.constant(start.step, tf.int64), 0)

    def in_lanes(epoch: tf.Tensor, reader: tf.Tensor) -> tf.data.Dataset:
        return _read_lanes(assignment, records, plan.order.epoch(epoch), reader, first_step(epoch))

    def in_steps(epoch: tf.Tensor) -> tf.data.Dataset:
        first, width = first_step(epoch), assignment.chunk * assignment.group
        opened = plan.order.epoch(epoch)
        steps = tf.data.Dataset.range(first, assignment.num_steps, width)
        return mapped(steps, lambda step: (*opened, step))

    def groups_from(base: tf.Tensor) -> tf.data.Dataset:
        epochs_read = mapped(tf.data.Dataset.range(start.epoch, end), lambda epoch: base + epoch)
        if not assignment.lanes:
            return interleaved(
                flat_mapped(epochs_read, in_steps),
                lambda *opened: _read_steps(assignment, records, Epoch(*opened[:-1]), opened[-1]),
                cycle_length=STREAMS_OPEN,
                block_length=assignment.chunk,
                num_parallel_calls=STREAMS_OPEN,
            )
        # A reader returns whole groups: passing on single records would take longer than reading them.
        return interleaved(
            tf.data.Dataset.range(assignment.num_readers),
            lambda reader: flat_mapped(epochs_read, lambda epoch: in_lanes(epoch, reader)),
            cycle_length=assignment.num_readers,
            num_parallel_calls=assignment.num_readers,
        )

    if plan.is_next_epoch_each_time:
        groups = flat_mapped(_iterations(), groups_from)
    else:
        groups = groups_from(tf.constant(0, tf.int64))
    return groups.batch(assignment.num_readers)


def _read_lanes(
    assignment: Assignment, records: RecordReader, epoch: Epoch, reader: tf.Tensor, step: tf.Tensor
) -> tf.data.Dataset:
    """Return the groups of a reader's rows of an epoch, starting at a step."""
    num_lanes = assignment.worker_lanes // assignment.num_readers
    rows = assignment.rows_per_lane
    ranks, missing = ranks_of_lanes(assignment, epoch, reader, step)
    padding = () if assignment.remainder == "drop" else (missing,)

    def read(starts: tf.Tensor, counts: tf.Tensor, *padding: tf.Tensor) -> tf.data.Dataset:
        return records.read(epoch, starts, counts, *padding)

    each = tf.data.Dataset.from_tensor_slices((*ranks, *padding))
    read_rows = interleaved(each, read, cycle_length=num_lanes, block_length=rows)
    return _grouped(read_rows, epoch.number, assignment.group * rows * num_lanes)


def ranks_of_lanes(
    assignment: Assignment, epoch: Epoch, reader: tf.Tensor, step: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return the ranks that the lanes of a reader give to an epoch, starting at a step.

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
        gather(tf.reshape(each, [-1, num_lanes]), row) for each in (bounds[:-1], bounds[1:], epoch.entries)
    )
    starts = begins + step * rows
    wanted = (assignment.num_steps - step) * rows
    counts = tf.clip_by_value(ends - starts, 0, wanted)
    return lane_ranks(begins, ends, entries, starts, counts), wanted - counts


def _read_steps(
    assignment: Assignment, records: RecordReader, epoch: Epoch, step: tf.Tensor
) -> tf.data.Dataset:
    """Return the groups of a stream by steps."""
    batch_size, total = assignment.batch_size, tf.cast(assignment.num_positions, tf.int64)
    steps = tf.minimum(tf.cast(assignment.chunk * assignment.group, tf.int64), assignment.num_steps - step)
    if assignment.worker.count == 1:
        starts, wanted = (tf.expand_dims(each * batch_size, 0) for each in (step, steps))
    else:
        starts = tf.range(step, step + steps) * assignment.global_batch_size
        starts += assignment.worker.index * batch_size
        wanted = tf.fill([steps], tf.constant(batch_size, tf.int64))
    counts = tf.clip_by_value(total - starts, 0, wanted)
    padding = None if assignment.remainder == "drop" else tf.reduce_sum(wanted - counts)
    read_rows = records.read(epoch, starts, counts, padding)
    return _grouped(read_rows, epoch.number, assignment.group * batch_size)


def _grouped(rows: tf.data.Dataset, epoch: tf.Tensor, size: int) -> tf.data.Dataset:
    return tf.data.Dataset.zip(tf.data.Dataset.from_tensors(epoch).repeat(), rows.batch(size))


def _iterations() -> tf.data.Dataset:
    """Return a dataset of one int64: the number of earlier iterations over it."""
    counter = new_counter()
    return mapped(tf.data.Dataset.range(1), lambda _: count_up(counter))
