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


def read_pieces(
    assignment: Assignment,
    shards: Shards,
    shuffle: Shuffle | None,
    start: Position,
    epochs: int | None,
    next_each_time: bool,
) -> tf.data.Dataset:
    """Return ``(number, records)`` of each piece, ``num_pieces`` of them for each window.

    ``number`` (int64) counts ``assignment.stream_pieces`` an epoch; ``records`` has shape ``(rows,)`` string.
    The first window is the one that holds ``start``.

    Args:
        assignment: what this worker reads.
        shards: of the split.
        shuffle: the order, None for the stored one.
        start: where to begin.
        epochs: the epoch to stop before, None for no end.
        next_each_time: whether the result gives the next epochs each time it is iterated.
    """
    per_epoch = assignment.num_streams if assignment.num_steps else 0
    first, skipped = start.epoch * per_epoch, 0
    if not assignment.lanes:
        first_piece = start.step // assignment.window * assignment.num_pieces
        first, skipped = first + first_piece // assignment.chunk, first_piece % assignment.chunk
    end = epochs * per_epoch if epochs is not None else (tf.int64.max if per_epoch else 0)

    def streams(base: tf.Tensor) -> tf.data.Dataset:
        numbers = tf.data.Dataset.range(first, end)
        return numbers.map(as_written(lambda i: (base + i // per_epoch, i % per_epoch)))

    def read(epoch: tf.Tensor, stream: tf.Tensor) -> tf.data.Dataset:
        window = tf.where(epoch == start.epoch, start.step // assignment.window, 0)
        return _read_stream(assignment, shards, shuffle, epoch, stream, tf.cast(window, tf.int64))

    if next_each_time:
        opened = _iterations().flat_map(as_written(streams))
    else:
        opened = streams(tf.constant(0, tf.int64))
    cycle_length = assignment.num_pieces if assignment.lanes else CHUNKS_OPEN
    # The lanes give a piece each in turn; a chunk gives all of its pieces before the next one has its turn.
    pieces = opened.interleave(
        as_written(read),
        cycle_length=cycle_length,
        block_length=assignment.chunk or 1,
        num_parallel_calls=min(READ_AHEAD, cycle_length),
        deterministic=True,
    )
    return pieces.skip(skipped)


def _read_stream(
    assignment: Assignment,
    shards: Shards,
    shuffle: Shuffle | None,
    epoch: tf.Tensor,
    stream: tf.Tensor,
    first_window: tf.Tensor,
) -> tf.data.Dataset:
    """Return ``(number, records)`` of the pieces of a stream of an epoch, a lane from a window on."""
    total = tf.cast(assignment.num_examples, tf.int64)
    if assignment.lanes:
        lane = assignment.worker.index * assignment.num_pieces + stream
        rows_per_step = assignment.global_batch_size // assignment.lanes
        piece_rows = assignment.window * rows_per_step
        before = first_window * piece_rows
        start = lane_start(total, assignment.lanes, lane) + before
        end = lane_start(total, assignment.lanes, lane + 1)
        rows = assignment.num_steps * rows_per_step - before
        number = first_window
    else:
        piece_rows = assignment.window * assignment.batch_size // assignment.num_pieces
        number = stream * assignment.chunk
        # rows are counted over this worker's batches, places over those of all workers
        row = number * piece_rows
        start = row // assignment.batch_size * assignment.global_batch_size + row % assignment.batch_size
        start += assignment.worker.index * assignment.batch_size
        end = total
        last_rows = assignment.num_steps * assignment.batch_size - row
        rows = tf.minimum(tf.cast(assignment.chunk * piece_rows, tf.int64), last_rows)
    count = tf.clip_by_value(end - start, 0, rows)
    records = read_parts(shards, parts_of(order_of(tf.constant(shards.sizes), shuffle, epoch), start, count))
    if assignment.remainder != "drop":
        records = records.concatenate(first_record(shards).repeat(rows - count))
    number += epoch * assignment.stream_pieces
    return tf.data.Dataset.zip(tf.data.Dataset.range(number, tf.int64.max), records.batch(piece_rows))


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
