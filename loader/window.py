"""One window of steps in the graph: which of its rows go to which step.

The arithmetic is that of ``assign.Assignment``; here it meets the epoch's order and becomes tensors.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfshards.loader.assign import Assignment, lane_start
from tfshards.loader.options import Shuffle
from tfshards.loader.order import (
    MIXING,
    order_of,
    permutation,
    random_bits,
    stored_numbers,
)
from tfshards.loader.read import Shards


class Rows(NamedTuple):
    """What is known of the rows of one window, in the order in which they are delivered.

    Attributes:
        order: shape ``(rows,)`` int64: where each row stands in pieces of ``piece_rows``, laid end to end;
            None where they are in order already, and what is too much stands behind.
        real: shape ``(rows,)`` bool: False for padding.
        places: shape ``(rows,)`` int64: the place of each example in the epoch; 0 for padding.
    """

    order: tf.Tensor | None
    real: tf.Tensor
    places: tf.Tensor


def window_rows(assignment: Assignment, shuffle: Shuffle | None, epoch: tf.Tensor, window: tf.Tensor) -> Rows:
    """Return the rows of a window of an epoch (int64 scalars), in the order in which they are delivered."""
    starts, length, counts = piece_bounds(assignment, window)
    column = tf.range(length)[tf.newaxis, :]
    real = column < counts[:, tf.newaxis]
    order = None
    if shuffle is not None:
        piece = tf.range(tf.cast(assignment.num_pieces, tf.int64))[:, tf.newaxis]
        if assignment.window > 1:
            lane = assignment.worker.index * assignment.num_pieces + piece
            bits = random_bits(shuffle.seed, MIXING, epoch, lane, window, column)
            # padding stays behind all examples, so that only the epoch's last step holds any
            column = tf.cast(permutation(tf.where(real, bits, tf.int64.max)), tf.int64)
            order = _by_step(assignment, piece * assignment.piece_rows + column)
    # behind the permutation, padding is again what stands at the end of each row
    places = tf.where(real, starts[:, tf.newaxis] + column, 0)
    if order is not None:
        return Rows(order, _by_step(assignment, real), _by_step(assignment, places))
    return Rows(None, tf.reshape(real, [-1]), tf.reshape(places, [-1]))


def example_numbers(shards: Shards, shuffle: Shuffle | None, epoch: tf.Tensor, rows: Rows) -> tf.Tensor:
    """Return the numbers of the examples in ``rows``, in stored order: shape ``(rows,)`` int64."""
    return stored_numbers(
        order_of(tf.constant(shards.sizes), shuffle, epoch), rows.places, tf.constant(shards.bases)
    )


def piece_bounds(assignment: Assignment, window: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """``Assignment.piece`` for all pieces of a window: starts, the one length, counts."""
    first_step = window * assignment.window
    steps = tf.minimum(tf.cast(assignment.window, tf.int64), assignment.num_steps - first_step)
    length = steps * assignment.batch_size // assignment.num_pieces
    piece = tf.range(tf.cast(assignment.num_pieces, tf.int64))
    total = tf.cast(assignment.num_examples, tf.int64)
    if assignment.lanes:
        lane = assignment.worker.index * assignment.num_pieces + piece
        starts = lane_start(total, assignment.lanes, lane)
        starts += first_step * (assignment.global_batch_size // assignment.lanes)
        ends = lane_start(total, assignment.lanes, lane + 1)
    else:
        starts = first_step * assignment.global_batch_size + assignment.worker.index * assignment.batch_size
        starts += piece * length
        ends = total
    return starts, length, tf.clip_by_value(ends - starts, 0, length)


def _by_step(assignment: Assignment, pieces: tf.Tensor) -> tf.Tensor:
    """Turn ``(num_pieces, steps * m)``, which gives each step ``m`` rows of each piece, into rows by step."""
    rows_per_step = assignment.batch_size // assignment.num_pieces
    steps = tf.reshape(pieces, [assignment.num_pieces, -1, rows_per_step])
    return tf.reshape(tf.transpose(steps, [1, 0, 2]), [-1])
