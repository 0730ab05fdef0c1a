"""One window of steps in the graph: which records it reads, and which of its rows go to which step.

The arithmetic is that of ``assign.Assignment``; here it meets the epoch's order and becomes tensors.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfshards.loader.assign import Assignment, lane_start
from tfshards.loader.options import Shuffle
from tfshards.loader.order import (
    MIXING,
    Order,
    epoch_order,
    permutation,
    random_bits,
    stored_numbers,
    stored_order,
)
from tfshards.loader.read import Shards, ranges


class Blocks(NamedTuple):
    """The blocks of one window of one worker; the scalars stand once a block, so that a block can travel alone.

    Attributes:
        epoch: shape ``(num_blocks,)`` int64.
        window: shape ``(num_blocks,)`` int64: the window's number in the epoch.
        parts: shape ``(num_blocks, parts, 3)`` int64: where the block is stored, see ``read.ranges``.
        length: shape ``(num_blocks,)`` int64: the rows of a block, padding included.
    """

    epoch: tf.Tensor
    window: tf.Tensor
    parts: tf.Tensor
    length: tf.Tensor


class Rows(NamedTuple):
    """What is known of the rows of one window, in the order of its steps.

    Attributes:
        order: shape ``(rows,)`` int32: where each row stands in the window's blocks, laid end to end; None
            where the blocks are in order already.
        real: shape ``(rows,)`` bool: False for padding.
        numbers: shape ``(rows,)`` int64: the number of each example in stored order; 0 for padding.
    """

    order: tf.Tensor | None
    real: tf.Tensor
    numbers: tf.Tensor


def window_blocks(
    assignment: Assignment, shards: Shards, shuffle: Shuffle | None, epoch: tf.Tensor, window: tf.Tensor
) -> Blocks:
    """Return the blocks that this worker reads for a window of an epoch (int64 scalars)."""
    starts, length, counts = _bounds(assignment, window)
    parts = ranges(_order(shards, shuffle, epoch), starts, counts)
    per_block = tf.ones_like(starts)
    return Blocks(epoch * per_block, window * per_block, parts, length * per_block)


def window_rows(
    assignment: Assignment, shards: Shards, shuffle: Shuffle | None, epoch: tf.Tensor, window: tf.Tensor
) -> Rows:
    """Return the rows of a window of an epoch (int64 scalars), in the order in which they are delivered."""
    starts, length, counts = _bounds(assignment, window)
    column = tf.range(length)[tf.newaxis, :]
    real = column < counts[:, tf.newaxis]
    block = tf.range(tf.cast(assignment.num_blocks, tf.int64))[:, tf.newaxis]
    if shuffle is None or assignment.window == 1:
        order = None
        columns = column + tf.zeros_like(block)
    else:
        lane = assignment.worker.index * assignment.num_blocks + block
        bits = random_bits(shuffle.seed, MIXING, epoch, lane, window, column)
        # padding stays behind all examples, so that only the epoch's last step holds any
        columns = tf.cast(permutation(tf.where(real, bits, tf.int64.max)), tf.int64)
        order = _by_step(assignment, block * length + columns)
    places = starts[:, tf.newaxis] + columns
    if order is not None:
        places, real = _by_step(assignment, places), _by_step(assignment, real)
    places, real = tf.reshape(places, [-1]), tf.reshape(real, [-1])
    numbers = stored_numbers(_order(shards, shuffle, epoch), tf.where(real, places, 0), shards.bases)
    return Rows(order, real, tf.where(real, numbers, 0))


def _bounds(assignment: Assignment, window: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """``Assignment.block`` for all blocks of a window: starts, the one length, counts."""
    first_step = window * assignment.window
    steps = tf.minimum(tf.cast(assignment.window, tf.int64), assignment.num_steps - first_step)
    length = steps * assignment.batch_size // assignment.num_blocks
    block = tf.range(tf.cast(assignment.num_blocks, tf.int64))
    total = tf.cast(assignment.num_examples, tf.int64)
    if assignment.lanes:
        lane = assignment.worker.index * assignment.num_blocks + block
        starts = lane_start(total, assignment.lanes, lane)
        starts += first_step * (assignment.global_batch_size // assignment.lanes)
        ends = lane_start(total, assignment.lanes, lane + 1)
    else:
        starts = first_step * assignment.global_batch_size + assignment.worker.index * assignment.batch_size
        starts += block * length
        ends = total
    return starts, length, tf.clip_by_value(ends - starts, 0, length)


def _by_step(assignment: Assignment, blocks: tf.Tensor) -> tf.Tensor:
    """Turn ``(num_blocks, steps * m)``, which gives each step ``m`` rows of each block, into rows by step."""
    rows_per_step = assignment.batch_size // assignment.num_blocks
    steps = tf.reshape(blocks, [assignment.num_blocks, -1, rows_per_step])
    return tf.reshape(tf.transpose(steps, [1, 0, 2]), [-1])


def _order(shards: Shards, shuffle: Shuffle | None, epoch: tf.Tensor) -> Order:
    sizes = tf.constant(shards.sizes)
    return stored_order(sizes) if shuffle is None else epoch_order(sizes, shuffle.seed, epoch)
