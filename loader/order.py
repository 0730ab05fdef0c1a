"""The order of an epoch, computed in the graph: hash, permutations, and where a place of the epoch is stored.

All randomness of the loader comes from ``random_bits``, a hash of the seed and of what is asked for. It is
written here, and pinned by a test, so that no release of TensorFlow changes an order.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfshards.loader.options import Shuffle

# What a hash is for: its first word after the seed, so that no two uses see the same bits.
SHARDS, ROTATION, MIXING, CROP, FLIP, MAP = range(6)


class Order(NamedTuple):
    """One epoch as a sequence of all examples: shards one after another, entered at some place.

    Attributes:
        shards: shape ``(2 * num_shards,)`` int64: the shards in order, twice, so that a range that passes
            the end goes on at the beginning.
        starts: shape ``(2 * num_shards,)`` int64: the row at which each of them starts.
        ends: shape ``(2 * num_shards,)`` int64: the row after its last.
        rotation: scalar int64: the row of the epoch's place 0.
    """

    shards: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    rotation: tf.Tensor


def order_of(sizes: tf.Tensor, shuffle: Shuffle | None, epoch: tf.Tensor) -> Order:
    """Return the order of an epoch (int64) over shards of ``sizes`` (int64) examples.

    Without ``shuffle`` it is the order in which the examples are stored; else the shards are permuted, and
    the sequence is entered at a random place.
    """
    if shuffle is None:
        shards = tf.range(tf.size(sizes))
        rotation = tf.constant(0, tf.int64)
    else:
        bits = random_bits(shuffle.seed, SHARDS, epoch, tf.range(tf.size(sizes, tf.int64)))
        shards = permutation(bits)
        rotation = random_bits(shuffle.seed, ROTATION, epoch) % tf.maximum(tf.reduce_sum(sizes), 1)
    twice = tf.concat([shards, shards], axis=0)
    lengths = tf.gather(sizes, twice)
    ends = tf.cumsum(lengths)
    return Order(tf.cast(twice, tf.int64), ends - lengths, ends, rotation)


def stored_numbers(order: Order, places: tf.Tensor, bases: tf.Tensor) -> tf.Tensor:
    """Return the numbers, in stored order, of the examples at ``places`` (int64) of an epoch.

    Args:
        order: of the epoch.
        places: any shape, int64, each at least 0 and below the number of examples.
        bases: shape ``(num_shards,)`` int64: the number of each shard's first example.
    """
    rows = order.rotation + places
    entry = tf.searchsorted(order.ends, tf.reshape(rows, [-1]), side="right", out_type=tf.int32)
    entry = tf.reshape(tf.minimum(entry, tf.size(order.ends) - 1), tf.shape(rows))
    return tf.gather(bases, tf.gather(order.shards, entry)) + rows - tf.gather(order.starts, entry)


def permutation(bits: tf.Tensor) -> tf.Tensor:
    """Return the permutation (int32, along the last axis) that sorts random ``bits``."""
    return tf.argsort(bits, axis=-1, stable=True)


def random_bits(seed: int, *words: tf.Tensor | int) -> tf.Tensor:
    """Return 63 random bits (int64, not negative) for each combination of the broadcast ``words`` (int64).

    Each word is added to the state, and the state is mixed by the finaliser of SplitMix64 (Steele, Lea and
    Flood, doi:10.1145/2660193.2660195), after Vigna's public-domain ``splitmix64.c``.
    """
    state = tf.constant(seed % 2**64, tf.uint64)
    for word in words:
        state = _splitmix64(state + tf.cast(tf.convert_to_tensor(word, tf.int64), tf.uint64))
    return tf.cast(tf.bitwise.right_shift(state, tf.constant(1, tf.uint64)), tf.int64)


def _splitmix64(state: tf.Tensor) -> tf.Tensor:
    state = state + tf.constant(0x9E3779B97F4A7C15, tf.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ tf.bitwise.right_shift(state, tf.constant(shift, tf.uint64))) * tf.constant(
            factor, tf.uint64
        )
    return state ^ tf.bitwise.right_shift(state, tf.constant(31, tf.uint64))
