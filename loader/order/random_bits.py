"""All randomness of the loader: hashes of a seed and of integers, computed in the graph or in Python.

It is implemented here, and pinned by a test, so that no release of TensorFlow changes an order.
"""

from __future__ import annotations

import hashlib

import tensorflow as tf

from tfshards.schemas.splitmix import LAST_SHIFT, ROUNDS, STEP

# The uses of a hash; each is the first word after the seed, so that no two uses get the same bits.
RUNS, ROTATION, CROP, FLIP, MAP, LANES = range(6)


def order_seed(seed: int, build_id: str) -> int:
    """Return the seed of a dataset's order, 63 bits, so that different datasets have different orders."""
    digest = hashlib.sha256(f"{seed} {build_id}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def random_bits(seed: int, *words: tf.Tensor | int) -> tf.Tensor:
    """Return 63 random bits (int64, not negative) for each combination of the broadcast ``words`` (int64).

    Each word is added to the state, and the state is mixed by the finalizer of SplitMix64 (Steele, Lea and
    Flood, doi:10.1145/2660193.2660195), after Vigna's public-domain ``splitmix64.c``.
    """
    return as_bits(hashed(seed % 2**64, *words))


def hashed(state: tf.Tensor | int, *words: tf.Tensor | int) -> tf.Tensor | int:
    """Return the state after these words: a Python integer if all of them are integers."""
    for word in words:
        if isinstance(state, int) and isinstance(word, int):
            state = _splitmix64_of_number(state + word)
        else:
            word = tf.cast(tf.convert_to_tensor(word, tf.int64), tf.uint64)
            state = _splitmix64(tf.convert_to_tensor(state, tf.uint64) + word)
    return state


def as_bits(state: tf.Tensor | int) -> tf.Tensor:
    """Return the upper 63 bits of a state, int64."""
    if isinstance(state, int):
        return tf.constant(state >> 1, tf.int64)
    return tf.cast(tf.bitwise.right_shift(state, tf.constant(1, tf.uint64)), tf.int64)


def _splitmix64_of_number(state: int) -> int:
    state = (state + STEP) % 2**64
    for shift, factor in ROUNDS:
        state = (state ^ state >> shift) * factor % 2**64
    return state ^ state >> LAST_SHIFT


def _splitmix64(state: tf.Tensor) -> tf.Tensor:
    state = state + tf.constant(STEP, tf.uint64)
    for shift, factor in ROUNDS:
        shifted = tf.bitwise.right_shift(state, tf.constant(shift, tf.uint64))
        state = (state ^ shifted) * tf.constant(factor, tf.uint64)
    return state ^ tf.bitwise.right_shift(state, tf.constant(LAST_SHIFT, tf.uint64))
