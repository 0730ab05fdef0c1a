"""The records of one worker in the order of its steps: which places are read together, and by whom."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfshards.loader.assign import Assignment, lane_start
from tfshards.loader.options import Position
from tfshards.loader.order import Epoch, lane_slots
from tfshards.loader.places import Places
from tfshards.loader.segments import gather
from tfshards.loader.stages import flat_mapped, interleaved, mapped

# By steps: the streams that are open, and read, at the same time.
STREAMS_OPEN = 2


def read_groups(
    assignment: Assignment,
    places: Places,
    start: Position,
    epochs: int | None,
    next_each_time: bool,
) -> tf.data.Dataset:
    """Return ``(epoch, (numbers, records))`` of the groups of steps from ``start`` on.

    ``epoch`` (int64) has shape ``(readers,)``, ``numbers`` (int64, see ``read.py``) and ``records`` (string)
    have shape ``(readers, steps * batch_size / readers)``, where ``steps`` is ``assignment.group``, and fewer
    at the end of an epoch. Each reader has a part of every step's rows: its lanes.

    Args:
        assignment: what this worker reads.
        places: how places are read.
        start: where to begin.
        epochs: the epoch to stop before, None for no end.
        next_each_time: whether the result gives the next epochs each time it is iterated.
    """
    end = epochs if epochs is not None else tf.int64.max
    end = end if assignment.num_steps else start.epoch

    def first_step(epoch: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.equal(epoch, start.epoch), tf.constant(start.step, tf.int64), 0)

    def in_lanes(epoch: tf.Tensor, reader: tf.Tensor) -> tf.data.Dataset:
        return _read_lanes(assignment, places, places.epoch(epoch), reader, first_step(epoch))

    def in_steps(epoch: tf.Tensor) -> tf.data.Dataset:
        first, width = first_step(epoch), assignment.chunk * assignment.group
        opened = places.epoch(epoch)
        steps = tf.data.Dataset.range(first, assignment.num_steps, width)
        return mapped(steps, lambda step: (*opened, step))

    def groups_from(base: tf.Tensor) -> tf.data.Dataset:
        epochs_read = mapped(tf.data.Dataset.range(start.epoch, end), lambda epoch: base + epoch)
        if not assignment.lanes:
            return interleaved(
                flat_mapped(epochs_read, in_steps),
                lambda *opened: _read_steps(assignment, places, Epoch(*opened[:-1]), opened[-1]),
                cycle_length=STREAMS_OPEN,
                block_length=assignment.chunk,
                num_parallel_calls=STREAMS_OPEN,
            )
        # A reader passes on whole groups: handing over each record would cost more than reading it.
        return interleaved(
            tf.data.Dataset.range(assignment.num_readers),
            lambda reader: flat_mapped(epochs_read, lambda epoch: in_lanes(epoch, reader)),
            cycle_length=assignment.num_readers,
            num_parallel_calls=assignment.num_readers,
        )

    if next_each_time:
        groups = flat_mapped(_iterations(), groups_from)
    else:
        groups = groups_from(tf.constant(0, tf.int64))
    return groups.batch(assignment.num_readers)


def _read_lanes(
    assignment: Assignment, places: Places, epoch: Epoch, reader: tf.Tensor, step: tf.Tensor
) -> tf.data.Dataset:
    """Return the groups of a reader's rows of an epoch, from a step on."""
    num_lanes = assignment.worker_lanes // assignment.num_readers
    rows = assignment.rows_per_lane
    lanes = range(assignment.lanes + 1)
    bounds = np.array([lane_start(assignment.num_examples, assignment.lanes, lane) for lane in lanes])
    # under a parameter server the index is known in the graph only
    row = assignment.worker.index * assignment.num_readers + reader
    begins, ends, entries = (
        gather(tf.reshape(each, [-1, num_lanes]), row) for each in (bounds[:-1], bounds[1:], epoch.entries)
    )
    starts = begins + step * rows
    wanted = (assignment.num_steps - step) * rows
    counts = tf.clip_by_value(ends - starts, 0, wanted)
    padding = () if assignment.remainder == "drop" else (wanted - counts,)

    def read(starts: tf.Tensor, counts: tf.Tensor, *padding: tf.Tensor) -> tf.data.Dataset:
        return places.read(epoch, starts, counts, *padding)

    slots = lane_slots(begins, ends, entries, starts, counts)
    each = tf.data.Dataset.from_tensor_slices((*slots, *padding))
    read_rows = interleaved(each, read, cycle_length=num_lanes, block_length=rows)
    return _grouped(read_rows, epoch.number, assignment.group * rows * num_lanes)


def _read_steps(assignment: Assignment, places: Places, epoch: Epoch, step: tf.Tensor) -> tf.data.Dataset:
    """Return the groups of a stream by steps."""
    batch_size, total = assignment.batch_size, tf.cast(assignment.num_examples, tf.int64)
    steps = tf.minimum(tf.cast(assignment.chunk * assignment.group, tf.int64), assignment.num_steps - step)
    if assignment.worker.count == 1:
        starts, wanted = (tf.expand_dims(each * batch_size, 0) for each in (step, steps))
    else:
        starts = tf.range(step, step + steps) * assignment.global_batch_size
        starts += assignment.worker.index * batch_size
        wanted = tf.fill([steps], tf.constant(batch_size, tf.int64))
    counts = tf.clip_by_value(total - starts, 0, wanted)
    padding = None if assignment.remainder == "drop" else tf.reduce_sum(wanted - counts)
    read_rows = places.read(epoch, starts, counts, padding)
    return _grouped(read_rows, epoch.number, assignment.group * batch_size)


def _grouped(rows: tf.data.Dataset, epoch: tf.Tensor, size: int) -> tf.data.Dataset:
    return tf.data.Dataset.zip(tf.data.Dataset.from_tensors(epoch).repeat(), rows.batch(size))


def _iterations() -> tf.data.Dataset:
    """Return a dataset of one int64: how often it was iterated before."""
    # This name makes a resource of its own, which goes with the dataset (ResourceHandle::ANONYMOUS_NAME).
    counter = tf.raw_ops.VarHandleOp(
        dtype=tf.int64, shape=[], shared_name="cd2c89b7-88b7-44c8-ad83-06c2a9158347"
    )
    tf.raw_ops.AssignVariableOp(resource=counter, value=tf.constant(-1, tf.int64))

    def count(_: tf.Tensor) -> tf.Tensor:
        tf.raw_ops.AssignAddVariableOp(resource=counter, value=tf.constant(1, tf.int64))
        number = tf.raw_ops.ReadVariableOp(resource=counter, dtype=tf.int64)
        number.set_shape([])
        return number

    return mapped(tf.data.Dataset.range(1), count)
