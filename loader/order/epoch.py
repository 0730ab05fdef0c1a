"""The order of an epoch as arithmetic in the graph, and all randomness of the loader."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfshards.loader.graph.intervals import cut_at_multiples
from tfshards.loader.graph.raw_ops import gather
from tfshards.schemas.digests import LAST_SHIFT, ROUNDS, STEP

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
            state = (state + word + STEP) % 2**64
            for shift, factor in ROUNDS:
                state = (state ^ state >> shift) * factor % 2**64
            state ^= state >> LAST_SHIFT
        else:
            word = tf.cast(tf.convert_to_tensor(word, tf.int64), tf.uint64)
            state = _splitmix64(tf.convert_to_tensor(state, tf.uint64) + word)
    return state


def as_bits(state: tf.Tensor | int) -> tf.Tensor:
    """Return the upper 63 bits of a state, int64."""
    if isinstance(state, int):
        return tf.constant(state >> 1, tf.int64)
    return tf.cast(tf.bitwise.right_shift(state, tf.constant(1, tf.uint64)), tf.int64)


def _splitmix64(state: tf.Tensor) -> tf.Tensor:
    state = state + tf.constant(STEP, tf.uint64)
    for shift, factor in ROUNDS:
        shifted = tf.bitwise.right_shift(state, tf.constant(shift, tf.uint64))
        state = (state ^ shifted) * tf.constant(factor, tf.uint64)
    return state ^ tf.bitwise.right_shift(state, tf.constant(LAST_SHIFT, tf.uint64))


class Epoch(NamedTuple):
    """One epoch in the graph.

    Attributes:
        number: scalar int64.
        runs: int64 vector: the first member of each run, in run order; empty for the stored order.
        entries: int64 vector: the number of ranks after its first at which each lane is entered; empty
            without lanes.
    """

    number: tf.Tensor
    runs: tf.Tensor
    entries: tf.Tensor


@dataclass(frozen=True, kw_only=True)
class RunOrder:
    """The run order of each epoch of a population.

    Attributes:
        run: the number of neighbors that stay together; 0 for the stored order.
        lanes: number of lanes of an epoch; 0 by steps.
        is_entered: whether lanes are entered at random ranks, if they have at least two.
    """

    num_positions: int
    run: int
    seed: int
    lanes: int
    is_entered: bool

    @property
    def num_runs(self) -> int:
        """The runs of an epoch; 0 for the stored order."""
        return -(-self.num_positions // self.run) if self.run else 0

    def epoch(self, number: tf.Tensor) -> Epoch:
        """Return the epoch with this number, scalar int64; all readers of the epoch share the result."""
        entries = tf.zeros([self.lanes], tf.int64)
        if not self.num_runs:
            return Epoch(number, tf.zeros([0], tf.int64), entries)
        whole = self.num_positions // self.run
        # A lane that is entered at a random rank has two nonempty pieces.
        entered = self.lanes if self.is_entered and self.num_positions >= 2 * self.lanes else 0
        # random_bits(seed, use, epoch, run or lane), hashed together because that traces fewer operations.
        uses = [hashed(self.seed, use) for use in (RUNS, LANES, ROTATION)]
        of_run, of_lane, rotation = tf.unstack(hashed(tf.constant(np.array(uses, np.uint64)), number))
        words = tf.range(max(whole, entered), dtype=tf.int64)
        states = tf.concat([tf.fill([whole], of_run), tf.fill([entered], of_lane)], axis=0)
        bits = as_bits(hashed(states, tf.concat([words[:whole], words[:entered]], axis=0)))
        of_runs, of_lanes = tf.split(bits, [whole, entered])
        # The indices that sort them; ties keep their order.
        moved = tf.cast(tf.math.top_k(-of_runs, whole).indices, tf.int64)
        if self.num_positions % self.run:
            # A shorter last run stays at the end of the epoch.
            moved = tf.concat([moved, tf.constant([whole], tf.int64)], axis=0)
        runs = (as_bits(rotation) + moved * self.run) % self.num_positions
        if entered:
            bounds = np.arange(self.lanes + 1, dtype=np.int64) * self.num_positions // self.lanes
            entries = 1 + of_lanes % (np.diff(bounds) - 1)
        return Epoch(number, runs, entries)

    def members(self, epoch: Epoch, ranks: tf.Tensor) -> tf.Tensor:
        """Return the members of these ranks, int64 vectors."""
        if not self.run:
            return ranks
        return (gather(epoch.runs, ranks // self.run) + ranks % self.run) % self.num_positions

    def intervals(self, epoch: Epoch, starts: tf.Tensor, counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the intervals of neighbors that have the ranks ``[start, start + count)``, int64 vectors.

        They are first members and counts. An interval may pass the end of the circle; it then continues with
        the first member.
        """
        if not self.run:
            return starts, counts
        firsts, lengths = cut_at_multiples(starts, counts, self.run)
        return self.members(epoch, firsts), lengths


def lane_ranks(
    begins: tf.Tensor, ends: tf.Tensor, entries: tf.Tensor, starts: tf.Tensor, counts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the ranks of the positions ``[start, start + count)`` of lanes: two intervals for each lane.

    Args:
        begins: shape ``(n,)`` int64: the first rank of each lane.
        ends: shape ``(n,)`` int64: the rank after its last one.
        entries: shape ``(n,)`` int64: the number of ranks after its first at which each lane is entered.
        starts: shape ``(n,)`` int64.
        counts: shape ``(n,)`` int64.

    Returns:
        Starts and counts, shape ``(n, 2)`` int64 each: up to the end of the lane, then from its beginning;
        either may be empty.
    """
    bounds = tf.stack([starts + entries, starts + entries + counts])
    pieces = tf.stack([tf.minimum(bounds, ends), tf.maximum(bounds, ends) - (ends - begins)], axis=2)
    starts, stops = tf.unstack(pieces)
    return starts, stops - starts
