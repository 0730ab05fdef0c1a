"""The order of an epoch as arithmetic in the graph: which member of the population stands at a place.

An epoch is a sequence of places, a population a circle of members in stored order. Shuffled, the circle is
entered at a random member and cut into runs of equal length, which are permuted. Runs of one member make it a
permutation of all members. Nothing of an epoch depends on an earlier one, so that it is entered anywhere.

Each lane of the places (see ``assign.py``) is a circle, too, and entered at a random place. Else, where the
length of lanes is a multiple of the runs', all lanes would stand at the same place of their runs at any time,
and two examples that are a multiple of the runs apart would meet in a hundred times as many batches. What
stands at a place then are the slots of the runs, one behind the other, that its lane holds.

All randomness of the loader comes from ``random_bits``, a hash of the seed and of what is asked for. It is
written here, and pinned by a test, so that no release of TensorFlow changes an order.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfshards.loader.segments import cut_at_multiples, gather

# What a hash is for: its first word after the seed, so that no two uses see the same bits.
RUNS, ROTATION, CROP, FLIP, MAP, LANES = range(6)
# of SplitMix64
_STEP = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31


class Epoch(NamedTuple):
    """One epoch in the graph.

    Attributes:
        number: scalar int64.
        runs: vector int64: the first member of each run, in the epoch's order; empty for the stored order.
        entries: vector int64: how far behind its start each lane is entered; empty without lanes.
    """

    number: tf.Tensor
    runs: tf.Tensor
    entries: tf.Tensor


@dataclass(frozen=True)
class Order:
    """The order of the epochs of one population.

    Attributes:
        num_places: of an epoch, and the members of the population.
        run: how many neighbours stay together; 0 for the stored order.
        seed: of all epochs.
        lanes: of an epoch; 0 by steps.
        is_entered: whether lanes are entered at random places, if they have two at least.
    """

    num_places: int
    run: int
    seed: int
    lanes: int = 0
    is_entered: bool = True

    @property
    def num_runs(self) -> int:
        """The runs of an epoch; 0 for the stored order."""
        return -(-self.num_places // self.run) if self.run else 0

    def epoch(self, number: tf.Tensor) -> Epoch:
        """Return an epoch by its number, scalar int64."""
        entries = tf.zeros([self.lanes], tf.int64)
        if not self.num_runs:
            return Epoch(number, tf.zeros([0], tf.int64), entries)
        whole = self.num_places // self.run
        # a lane that is entered has two pieces, neither of them empty
        entered = self.lanes if self.is_entered and self.num_places >= 2 * self.lanes else 0
        # random_bits(seed, use, epoch, run or lane), hashed together, as there is less to be traced then
        uses = [_hashed(self.seed % 2**64, use) for use in (RUNS, LANES, ROTATION)]
        of_run, of_lane, rotation = tf.unstack(_hashed(tf.constant(np.array(uses, np.uint64)), number))
        words = tf.range(max(whole, entered), dtype=tf.int64)
        states = tf.concat([tf.fill([whole], of_run), tf.fill([entered], of_lane)], axis=0)
        bits = _as_bits(_hashed(states, tf.concat([words[:whole], words[:entered]], axis=0)))
        of_runs, of_lanes = tf.split(bits, [whole, entered])
        # the indices that sort them, of equal ones the first
        moved = tf.cast(tf.math.top_k(-1 - of_runs, whole).indices, tf.int64)
        if self.num_places % self.run:
            # a last run that is shorter than the others stays at the end of the epoch
            moved = tf.concat([moved, tf.constant([whole], tf.int64)], axis=0)
        runs = (_as_bits(rotation) + moved * self.run) % self.num_places
        if entered:
            bounds = np.arange(self.lanes + 1, dtype=np.int64) * self.num_places // self.lanes
            entries = 1 + of_lanes % (np.diff(bounds) - 1)
        return Epoch(number, runs, entries)

    def members(self, epoch: Epoch, slots: tf.Tensor) -> tf.Tensor:
        """Return which members stand at ``slots`` of the runs, one behind the other: vectors int64."""
        if not self.run:
            return slots
        return (gather(epoch.runs, slots // self.run) + slots % self.run) % self.num_places

    def segments(self, epoch: Epoch, starts: tf.Tensor, counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return neighbours that stand at slots ``[start, start + count)``, as first members and lengths.

        Args:
            epoch: which one.
            starts: shape ``(n,)`` int64.
            counts: shape ``(n,)`` int64.

        Returns:
            Two tensors of shape ``(segments,)`` int64. A segment may pass the end of the circle: then it goes
            on with the first member.
        """
        if not self.run:
            return starts, counts
        firsts, lengths = cut_at_multiples(starts, counts, self.run)
        return self.members(epoch, firsts), lengths


def lane_slots(
    begins: tf.Tensor, ends: tf.Tensor, entries: tf.Tensor, starts: tf.Tensor, counts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return which slots the places ``[start, start + count)`` of lanes are: starts and counts of two pieces.

    Args:
        begins: shape ``(n,)`` int64: where each lane begins.
        ends: shape ``(n,)`` int64: where it ends.
        entries: shape ``(n,)`` int64: how far behind its begin it is entered.
        starts: shape ``(n,)`` int64.
        counts: shape ``(n,)`` int64.

    Returns:
        Two tensors of shape ``(n, 2)`` int64: up to the lane's end, then from its begin; either may be empty.
    """
    bounds = tf.stack([starts + entries, starts + entries + counts])
    pieces = tf.stack([tf.minimum(bounds, ends), tf.maximum(bounds, ends) - (ends - begins)], axis=2)
    starts, stops = tf.unstack(pieces)
    return starts, stops - starts


def order_seed(seed: int, build_id: str) -> int:
    """Return the seed of a dataset's order, 63 bits: another dataset has another order."""
    digest = hashlib.sha256(f"{seed} {build_id}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def random_bits(seed: int, *words: tf.Tensor | int) -> tf.Tensor:
    """Return 63 random bits (int64, not negative) for each combination of the broadcast ``words`` (int64).

    Each word is added to the state, and the state is mixed by the finaliser of SplitMix64 (Steele, Lea and
    Flood, doi:10.1145/2660193.2660195), after Vigna's public-domain ``splitmix64.c``.
    """
    return _as_bits(_hashed(seed % 2**64, *words))


def _hashed(state: tf.Tensor | int, *words: tf.Tensor | int) -> tf.Tensor | int:
    """Return the state after these words; it stays a number as long as it depends on numbers only."""
    for word in words:
        if isinstance(state, int) and isinstance(word, int):
            state = _splitmix64_of_number((state + word) % 2**64)
        else:
            word = tf.cast(tf.convert_to_tensor(word, tf.int64), tf.uint64)
            state = _splitmix64(tf.convert_to_tensor(state, tf.uint64) + word)
    return state


def _as_bits(state: tf.Tensor | int) -> tf.Tensor:
    if isinstance(state, int):
        return tf.constant(state >> 1, tf.int64)
    return tf.cast(tf.bitwise.right_shift(state, tf.constant(1, tf.uint64)), tf.int64)


def _splitmix64_of_number(state: int) -> int:
    state = (state + _STEP) % 2**64
    for shift, factor in _ROUNDS:
        state = (state ^ state >> shift) * factor % 2**64
    return state ^ state >> _LAST_SHIFT


def _splitmix64(state: tf.Tensor) -> tf.Tensor:
    state = state + tf.constant(_STEP, tf.uint64)
    for shift, factor in _ROUNDS:
        shifted = tf.bitwise.right_shift(state, tf.constant(shift, tf.uint64))
        state = (state ^ shifted) * tf.constant(factor, tf.uint64)
    return state ^ tf.bitwise.right_shift(state, tf.constant(_LAST_SHIFT, tf.uint64))
