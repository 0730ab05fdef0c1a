"""The records of a run in the graph: TensorFlow reads the intervals that a ``Feed`` plans."""

from __future__ import annotations

import tensorflow as tf

from tfshards.loader.tensors.feed import MISSING, Feed
from tfshards.loader.tensors.stages import (
    call_method,
    fail_unless,
    flat_mapped,
    interleaved,
    mapped,
    records_from,
)

# Larger records are read unbuffered: copying them out of a buffer takes longer than a system call.
_BUFFERED_BYTES = 16 << 10
# Buffers of the runs of lanes, many of which are open; and of the others, whose neighbors are more.
_BUFFER_BYTES, _STREAM_BUFFER_BYTES = 1 << 16, 1 << 18
# By steps, the chunks that are read at the same time; and the groups of records that are read by ``Frames``.
_OPEN = 2

_TEXT = tf.TensorSpec([], tf.string)
_VECTOR = tf.TensorSpec([None], tf.int64)
_CHUNK = [_VECTOR, tf.TensorSpec([None], tf.string), tf.TensorSpec([None, 3], tf.int64), _VECTOR]


def read_groups(feed: Feed, begin: tf.Tensor, end: tf.Tensor) -> tf.data.Dataset:
    """Return the records of the chunks ``[begin, end)`` (int64), a group of steps at a time.

    Returns:
        ``(begin, end, records)``: the steps ``[begin, end)``, counted from epoch 0, int64; and the
        records of their rows, string, ``MISSING`` where there is none, or it cannot be read. With one reader
        they have the shapes ``()``, ``()`` and ``(rows,)``, with several one more axis before; see
        ``completed``.
    """
    chunks = tf.data.Dataset.range(begin, end)
    if feed.is_by_record:
        return _by_record(feed, chunks)
    # A reader returns whole groups: passing on single records would take longer than reading them.
    read = interleaved(
        tf.data.Dataset.range(feed.readers),
        lambda reader: flat_mapped(_planned(feed, chunks, reader), lambda *chunk: _read(feed, *chunk)),
        cycle_length=feed.readers,
        num_parallel_calls=feed.readers,
    )
    return read if feed.readers == 1 else read.batch(feed.readers)


def _planned(feed: Feed, chunks: tf.data.Dataset, reader: tf.Tensor) -> tf.data.Dataset:
    """Return the chunks of a reader; the next one is planned while one is read."""

    def plan(chunk: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(call_method(feed.chunk, [chunk, reader], _CHUNK))

    return mapped(chunks, plan, in_calling_thread=True).prefetch(1)


def _read(
    feed: Feed, steps: tf.Tensor, files: tf.Tensor, intervals: tf.Tensor, lanes: tf.Tensor
) -> tf.data.Dataset:
    """Return ``(begin, end, records)`` of each group of a chunk."""
    lacking = tf.data.Dataset.from_tensors(MISSING).repeat()
    buffer_bytes = _BUFFER_BYTES if feed.plan.order.lanes else _STREAM_BUFFER_BYTES
    if feed.plan.record_bytes >= _BUFFERED_BYTES:
        buffer_bytes = 0

    def of_interval(file: tf.Tensor, offset: tf.Tensor, count: tf.Tensor) -> tf.data.Dataset:
        # a file that ends early must not move what comes after it
        return records_from(files, file, offset, buffer_bytes).concatenate(lacking).take(count)

    def of_lane(first: tf.Tensor, end: tf.Tensor) -> tf.data.Dataset:
        columns = tf.unstack(intervals[first:end], axis=1)
        return flat_mapped(tf.data.Dataset.from_tensor_slices(tuple(columns)), of_interval)

    order = feed.plan.order
    if order.lanes:
        rows = order.rows_per_lane
        bounds = tf.data.Dataset.from_tensor_slices((lanes[:-1], lanes[1:]))
        num_lanes = order.worker_lanes // feed.readers
        records = interleaved(bounds, of_lane, cycle_length=num_lanes, block_length=rows)
        rows *= num_lanes
    else:
        rows, records = order.batch_size // feed.readers, of_lane(lanes[0], lanes[1])
    count = tf.size(steps, tf.int64) - 1
    # zip() uses up a number for each fault, so that even a file that cannot be opened, and is tried again and
    # again, ends; records after a fault are not where they belong, and have the number of another group
    read = tf.data.Dataset.zip(tf.data.Dataset.range(count), records.batch(feed.group * rows)).ignore_errors()
    nothing = tf.data.Dataset.from_tensors((tf.constant(-1, tf.int64), tf.constant([], tf.string))).repeat()
    groups = tf.data.Dataset.from_tensor_slices((tf.range(count), steps[:-1], steps[1:]))

    def group(due: tuple[tf.Tensor, ...], found: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, ...]:
        number, begin, end = due

        def lacking() -> tf.Tensor:
            return tf.fill([(end - begin) * rows], MISSING)

        return begin, end, tf.cond(tf.equal(found[0], number), lambda: found[1], lacking)

    return mapped(tf.data.Dataset.zip(groups, read.concatenate(nothing)), group)


def _by_record(feed: Feed, chunks: tf.data.Dataset) -> tf.data.Dataset:
    def groups(chunk: tf.Tensor) -> tf.data.Dataset:
        (steps,) = call_method(feed.steps, [chunk], [_VECTOR])
        return tf.data.Dataset.from_tensor_slices((steps[:-1], steps[1:]))

    def read(begin: tf.Tensor, end: tf.Tensor) -> tuple[tf.Tensor, ...]:
        specs = [_TEXT, _VECTOR, _VECTOR, _TEXT]
        data, starts, lengths, fault = call_method(feed.records, [begin, end], specs)
        with tf.control_dependencies([fail_unless(fault)]):
            return begin, end, tf.strings.substr(data, starts, lengths)

    return mapped(flat_mapped(chunks, groups), read, _OPEN)


def completed(
    feed: Feed, begin: tf.Tensor, end: tf.Tensor, records: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return steps and records of ``read_groups``, step by step, with what Python reads for missing ones.

    The operation fails with a text that names the record if one is damaged.
    """
    if feed.is_by_record:
        return begin, end, records
    if feed.readers > 1:
        begin, end = begin[0], end[0]
        if feed.group > 1 and feed.plan.order.lanes:
            # each reader has some of the rows of each step
            rows = feed.plan.order.batch_size // feed.readers
            records = tf.transpose(tf.reshape(records, [feed.readers, -1, rows]), [1, 0, 2])
        records = tf.reshape(records, [-1])
    # comparing the strings themselves would copy each
    is_missing = tf.equal(tf.strings.length(records), len(MISSING))

    def complete() -> tf.Tensor:
        rows = tf.where(is_missing)
        inputs = [begin, end, tf.squeeze(rows, 1)]
        found, fault = call_method(feed.missing, inputs, [tf.TensorSpec([None], tf.string), _TEXT])
        with tf.control_dependencies([fail_unless(fault)]):
            return tf.tensor_scatter_nd_update(records, rows, found)

    return begin, end, tf.cond(tf.reduce_any(is_missing), complete, lambda: records)
