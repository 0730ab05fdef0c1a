"""The order of an epoch as arithmetic in the graph: which member of the population stands at a place.

An epoch is a sequence of places, a population a circle of members in stored order. Shuffled, the circle is
entered at a random member and cut into runs of equal length, which are permuted. Runs of one member make it a
permutation of all members. Nothing of an epoch depends on an earlier one, so that it is entered anywhere.

All randomness of the loader comes from ``random_bits``, a hash of the seed and of what is asked for. It is
written here, and pinned by a test, so that no release of TensorFlow changes an order.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import tensorflow as tf

from tfshards.loader.segments import cut_at_multiples

# What a hash is for: its first word after the seed, so that no two uses see the same bits.
RUNS, ROTATION, CROP, FLIP, MAP = range(5)


@dataclass(frozen=True)
class Order:
    """The order of the epochs of one population.

    Attributes:
        num_places: of an epoch, and the members of the population.
        run: how many neighbours stay together; 0 for the stored order.
        seed: of all epochs.
    """

    num_places: int
    run: int
    seed: int

    def runs(self, epoch: tf.Tensor) -> tf.Tensor:
        """Return the first member of each run of an epoch (scalar int64) in its order: a vector int64.

        It has ``num_places / run`` elements, rounded up, and none for the stored order.
        """
        if not self.run or not self.num_places:
            return tf.zeros([0], tf.int64)
        whole = self.num_places // self.run
        moved = tf.argsort(random_bits(self.seed, RUNS, epoch, tf.range(whole, dtype=tf.int64)), stable=True)
        # a last run that is shorter than the others stays at the end of the epoch
        rest = tf.range(whole, -(-self.num_places // self.run), dtype=tf.int64)
        moved = tf.concat([tf.cast(moved, tf.int64), rest], axis=0)
        return (random_bits(self.seed, ROTATION, epoch) + moved * self.run) % self.num_places

    def members(self, runs: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        """Return which members stand at ``places`` of the epoch with these ``runs``: int64, any shape."""
        if not self.run:
            return places
        return (tf.gather(runs, places // self.run) + places % self.run) % self.num_places

    def segments(self, runs: tf.Tensor, starts: tf.Tensor, counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return neighbours that stand at places ``[start, start + count)``, as first members and lengths.

        Args:
            runs: of the epoch.
            starts: shape ``(n,)`` int64.
            counts: shape ``(n,)`` int64.

        Returns:
            Two tensors of shape ``(segments,)`` int64. A segment may pass the end of the circle: then it goes
            on with the first member.
        """
        if not self.run:
            return starts, counts
        firsts, lengths = cut_at_multiples(starts, counts, self.run)
        return self.members(runs, firsts), lengths


def order_seed(seed: int, build_id: str) -> int:
    """Return the seed of a dataset's order, 63 bits: another dataset has another order."""
    digest = hashlib.sha256(f"{seed} {build_id}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def random_bits(seed: int, *words: tf.Tensor | int) -> tf.Tensor:
    """Return 63 random bits (int64, not negative) for each combination of the broadcast ``words`` (int64).

    Each word is added to the state, and the state is mixed by the finaliser of SplitMix64 (Steele, Lea and
    Flood, doi:10.1145/2660193.2660195), after Vigna's public-domain ``splitmix64.c``.
    """
    state = tf.constant(seed % 2**64, tf.uint64)
    for word in words:
        state = _splitmix64(state + tf.cast(tf.convert_to_tensor(word, tf.int64), tf.uint64))
    return _as_bits(state)


def _as_bits(state: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.bitwise.right_shift(state, tf.constant(1, tf.uint64)), tf.int64)


def _splitmix64(state: tf.Tensor) -> tf.Tensor:
    state = state + tf.constant(0x9E3779B97F4A7C15, tf.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ tf.bitwise.right_shift(state, tf.constant(shift, tf.uint64))) * tf.constant(
            factor, tf.uint64
        )
    return state ^ tf.bitwise.right_shift(state, tf.constant(31, tf.uint64))
