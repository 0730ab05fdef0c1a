"""Read the records of one worker in the order of its steps, in streams of neighboring positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import tensorflow as tf

from tfshards.loader.graph.ops import GRAPH
from tfshards.loader.graph.raw_ops import count_up, new_counter, not_inlined
from tfshards.loader.graph.stages import flat_mapped, interleaved, mapped
from tfshards.loader.order.epoch import Epoch
from tfshards.loader.order.ranks import Ranks, ranks_of_lanes, ranks_of_steps
from tfshards.loader.records.intervals import MISSING, explained, fail_unless
from tfshards.loader.records.record_reader import RecordReader

# By steps: the number of streams that are open and read at the same time.
STREAMS_OPEN = 2


def read_groups(records: RecordReader) -> tf.data.Dataset:
    """Return ``(epoch, (numbers, records))`` of the groups of steps of a plan.

    ``epoch`` (int64) has shape ``(readers,)``, ``numbers`` (int64, see ``read_intervals``) and ``records``
    (string) have shape ``(readers, steps * batch_size / readers)``, where ``steps`` is ``assignment.group``,
    or fewer at the end of an epoch. Each reader reads a part of every step's rows: its lanes.

    Without numbers, if ``records`` reads none, it is ``(epoch, (records,))``, and a group that cannot be read
    is an error that names the record.
    """
    plan, assignment, start = records.plan, records.plan.assignment, records.plan.begin
    end = plan.epochs if plan.epochs is not None else tf.int64.max
    end = end if assignment.num_steps else start.epoch

    def first_step(epoch: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.equal(epoch, start.epoch), tf.constant(start.step, tf.int64), 0)

    def in_lanes(epoch: tf.Tensor, reader: tf.Tensor) -> tf.data.Dataset:
        return _read_lanes(records, plan.order.epoch(epoch), reader, first_step(epoch))

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
                lambda *opened: _read_steps(records, Epoch(*opened[:-1]), opened[-1]),
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
        counter = new_counter()
        # one int64: the number of earlier iterations
        iterations = mapped(tf.data.Dataset.range(1), lambda _: count_up(counter))
        groups = flat_mapped(iterations, groups_from)
    else:
        groups = groups_from(tf.constant(0, tf.int64))
    return groups.batch(assignment.num_readers)


def _read_lanes(records: RecordReader, epoch: Epoch, reader: tf.Tensor, step: tf.Tensor) -> tf.data.Dataset:
    """Return the groups of a reader's rows of an epoch, starting at a step."""
    assignment = records.plan.assignment
    num_lanes = assignment.worker_lanes // assignment.num_readers
    rows = assignment.rows_per_lane
    ranks, missing = ranks_of_lanes(GRAPH, assignment, epoch, reader, step, assignment.num_steps)
    padding = () if assignment.remainder == "drop" else (missing,)

    def read(starts: tf.Tensor, counts: tf.Tensor, *padding: tf.Tensor) -> tf.data.Dataset:
        return records.read(epoch, starts, counts, *padding)

    each = tf.data.Dataset.from_tensor_slices((*ranks, *padding))
    read_rows = interleaved(each, read, cycle_length=num_lanes, block_length=rows)
    groups = read_rows.batch(assignment.group * rows * num_lanes)

    def ranks_of(step: tf.Tensor, end: tf.Tensor) -> Ranks:
        (starts, counts), _ = ranks_of_lanes(GRAPH, assignment, epoch, reader, step, end)
        return tf.reshape(starts, [-1]), tf.reshape(counts, [-1])

    return _of_epoch(groups, records, epoch, step, assignment.num_steps, ranks_of)


def _read_steps(records: RecordReader, epoch: Epoch, step: tf.Tensor) -> tf.data.Dataset:
    """Return the groups of a stream by steps."""
    assignment = records.plan.assignment
    batch_size, width = assignment.batch_size, tf.constant(assignment.chunk * assignment.group, tf.int64)
    end = tf.minimum(step + width, assignment.num_steps)
    ranks, missing = ranks_of_steps(GRAPH, assignment, step, end)
    padding = None if assignment.remainder == "drop" else tf.reduce_sum(missing)
    groups = records.read(epoch, *ranks, padding).batch(assignment.group * batch_size)

    def ranks_of(step: tf.Tensor, end: tf.Tensor) -> Ranks:
        return ranks_of_steps(GRAPH, assignment, step, end)[0]

    return _of_epoch(groups, records, epoch, step, end, ranks_of)


def _of_epoch(
    groups: tf.data.Dataset,
    records: RecordReader,
    epoch: Epoch,
    begin: tf.Tensor,
    end: int | tf.Tensor,
    ranks_of: Callable[[tf.Tensor, tf.Tensor], Ranks],
) -> tf.data.Dataset:
    """Return the epoch with each group of the steps ``[begin, end)``, after checking those without numbers.

    ``ranks_of`` returns the ranks of steps, given the first one and the one after the last one.
    """
    if not records.numbered:
        group = records.plan.assignment.group
        steps = tf.data.Dataset.range(begin, end, group)
        numbered = replace(records, numbered=True)

        def explain(step: tf.Tensor) -> tf.Tensor:
            starts, counts = ranks_of(step, tf.minimum(step + group, end))
            rows = numbered.read(epoch, starts, counts)
            numbers, _ = rows.batch(tf.reduce_sum(counts)).get_single_element()
            return explained(records.shards, numbers)

        groups = _checked(groups, steps, not_inlined(explain, [tf.TensorSpec([], tf.int64)]))
    return tf.data.Dataset.zip(tf.data.Dataset.from_tensors(epoch.number).repeat(), groups)


def _checked(
    groups: tf.data.Dataset, steps: tf.data.Dataset, explain: Callable[[tf.Tensor], tf.Tensor]
) -> tf.data.Dataset:
    """Return ``(records,)`` of each group; one that cannot be read, and all after it, fail."""
    # zip() uses up a step for each failure, so even a missing file fails at most once for each group; and no
    # group after a failure has the step that is due.
    read = tf.data.Dataset.zip(steps, groups).ignore_errors()
    lacking = tf.data.Dataset.from_tensors((tf.constant(-1, tf.int64), tf.constant([MISSING]))).repeat()

    def check(due: tf.Tensor, group: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor]:
        step, records = group
        # comparing the strings themselves would copy each
        is_there = tf.not_equal(tf.strings.length(records), len(MISSING))
        is_sound = tf.logical_and(tf.equal(step, due), tf.reduce_all(is_there))
        with tf.control_dependencies([fail_unless(is_sound, lambda: explain(due))]):
            return (tf.identity(records),)

    return mapped(tf.data.Dataset.zip(steps, read.concatenate(lacking)), check)
