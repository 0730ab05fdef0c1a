"""The streams of one worker, and their records in the order in which the windows need them."""

from __future__ import annotations

import tensorflow as tf

from tfshards.loader.assign import Assignment, lane_start
from tfshards.loader.options import Position, Shuffle
from tfshards.loader.order import order_of
from tfshards.loader.read import Shards, as_written, first_record, parts_of, read_parts

# Streams that are open at the same time in stored order, and streams that are read at the same time.
CHUNKS_OPEN = 2
READ_AHEAD = 2


def read_windows(
    assignment: Assignment,
    shards: Shards,
    shuffle: Shuffle | None,
    start: Position,
    epochs: int | None,
    next_each_time: bool,
) -> tf.data.Dataset:
    """Return ``(window, (numbers, records))`` of each window, from the one that holds ``start`` on.

    ``window`` (int64) counts ``assignment.num_windows`` an epoch. ``numbers``, of shape ``(num_pieces,)``
    int64, are those of the pieces that came: other ones than ``piece_numbers`` if one could not be read.
    ``records`` has shape ``(num_pieces, piece_rows)`` string; in an epoch's last window what is behind its
    steps is nothing.

    Args:
        assignment: what this worker reads.
        shards: of the split.
        shuffle: the order, None for the stored one.
        start: where to begin.
        epochs: the epoch to stop before, None for no end.
        next_each_time: whether the result gives the next epochs each time it is iterated.
    """
    per_epoch = assignment.num_streams if assignment.num_steps else 0
    first_window = start.step // assignment.window
    first, skipped = start.epoch * per_epoch, 0
    if not assignment.lanes:
        first_piece = first_window * assignment.num_pieces
        first, skipped = first + first_piece // assignment.chunk, first_piece % assignment.chunk
    end = epochs * per_epoch if epochs is not None else (tf.int64.max if per_epoch else 0)

    def read(epoch: tf.Tensor, stream: tf.Tensor) -> tf.data.Dataset:
        window = tf.where(epoch == start.epoch, first_window, 0)
        return _read_stream(assignment, shards, shuffle, epoch, stream, tf.cast(window, tf.int64))

    def streams(base: tf.Tensor) -> tf.data.Dataset:
        numbers = tf.data.Dataset.range(first, end)
        return numbers.map(as_written(lambda i: (base + i // per_epoch, i % per_epoch)))

    def windows(base: tf.Tensor) -> tf.data.Dataset:
        number = (base + start.epoch) * assignment.num_windows + first_window
        return tf.data.Dataset.range(number, tf.int64.max)

    if next_each_time:
        # two counters that go together: one over all of this would make each record dearer
        opened, numbered = (_iterations().flat_map(as_written(each)) for each in (streams, windows))
    else:
        opened, numbered = (each(tf.constant(0, tf.int64)) for each in (streams, windows))
    cycle_length = assignment.num_pieces if assignment.lanes else CHUNKS_OPEN
    # The lanes give a piece each in turn; a chunk gives all of its pieces before the next one has its turn.
    pieces = opened.interleave(
        as_written(read),
        cycle_length=cycle_length,
        block_length=assignment.chunk or 1,
        num_parallel_calls=min(READ_AHEAD, cycle_length),
        deterministic=True,
    )
    return tf.data.Dataset.zip(numbered, pieces.skip(skipped).batch(assignment.num_pieces))


def piece_numbers(assignment: Assignment, window: tf.Tensor) -> tf.Tensor:
    """Return the numbers of the pieces of a window (int64, over all epochs): shape ``(num_pieces,)``."""
    if assignment.lanes:
        return tf.fill([assignment.num_pieces], window)
    return window * assignment.num_pieces + tf.range(assignment.num_pieces, dtype=tf.int64)


def _read_stream(
    assignment: Assignment,
    shards: Shards,
    shuffle: Shuffle | None,
    epoch: tf.Tensor,
    stream: tf.Tensor,
    first_window: tf.Tensor,
) -> tf.data.Dataset:
    """Return ``(number, records)`` of the pieces of a stream of an epoch, a lane from a window on.

    A piece that cannot be read is left out, and as many as are missing stand at the end, of number -1, so
    that no error leaves here which cannot say in what file it happened.
    """
    total, piece_rows = tf.cast(assignment.num_examples, tf.int64), assignment.piece_rows
    if assignment.lanes:
        lane = assignment.worker.index * assignment.num_pieces + stream
        rows_per_step = assignment.global_batch_size // assignment.lanes
        before = first_window * piece_rows
        start = lane_start(total, assignment.lanes, lane) + before
        end = lane_start(total, assignment.lanes, lane + 1)
        rows = assignment.num_steps * rows_per_step - before
        number = first_window
    else:
        number = stream * assignment.chunk
        # rows are counted over this worker's batches, places over those of all workers
        row = number * piece_rows
        start = row // assignment.batch_size * assignment.global_batch_size + row % assignment.batch_size
        start += assignment.worker.index * assignment.batch_size
        end = total
        last_rows = assignment.num_steps * assignment.batch_size - row
        rows = tf.minimum(tf.cast(assignment.chunk * piece_rows, tf.int64), last_rows)
    count = tf.clip_by_value(end - start, 0, rows)
    parts = parts_of(order_of(tf.constant(shards.sizes), shuffle, epoch), start, count)
    num_pieces = -(-rows // piece_rows)
    if assignment.remainder == "drop":
        # pieces of one shape can be batched whatever was left out
        records = read_parts(shards, parts, num_pieces * piece_rows - count)
    else:
        padding = first_record(shards).repeat(num_pieces * piece_rows - count)
        records = read_parts(shards, parts).concatenate(padding)
    number += epoch * assignment.stream_pieces
    numbers = tf.data.Dataset.range(number, number + num_pieces)
    # zip() takes the next number also where the records fail: even a file that is missing fails only so often
    pieces = tf.data.Dataset.zip(numbers, records.batch(piece_rows, drop_remainder=True)).ignore_errors()
    missing = (tf.constant(-1, tf.int64), tf.zeros([piece_rows], tf.string))
    return pieces.concatenate(tf.data.Dataset.from_tensors(missing).repeat()).take(num_pieces)


def _iterations() -> tf.data.Dataset:
    """Return a dataset of one int64: how often it was iterated before."""
    # This name makes a resource of its own, which goes with the dataset (ResourceHandle::ANONYMOUS_NAME).
    counter = tf.raw_ops.VarHandleOp(
        dtype=tf.int64, shape=[], shared_name="cd2c89b7-88b7-44c8-ad83-06c2a9158347"
    )
    tf.raw_ops.AssignVariableOp(resource=counter, value=tf.constant(-1, tf.int64))

    def count(_: tf.Tensor) -> tf.Tensor:
        tf.raw_ops.AssignAddVariableOp(resource=counter, value=tf.constant(1, tf.int64))
        return tf.raw_ops.ReadVariableOp(resource=counter, dtype=tf.int64)

    return tf.data.Dataset.range(1).map(as_written(count))
