"""The order of an epoch as arithmetic in the graph: which member of the population stands at a place.

An epoch is a sequence of places, a population a circle of members in stored order. Shuffled, the circle is
entered at a random member and cut into runs of equal length, which are permuted. Runs of one member make it a
permutation of all members. Nothing of an epoch depends on an earlier one, so that it is entered anywhere.

Each lane of the places (see ``assign.py``) is a circle, too, and entered at a random place. Else, where the
length of lanes is a multiple of the runs', all lanes would stand at the same place of their runs at any time,
and two examples that are a multiple of the runs apart would meet in a hundred times as many batches.

All randomness of the loader comes from ``random_bits``, a hash of the seed and of what is asked for. It is
written here, and pinned by a test, so that no release of TensorFlow changes an order.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfshards.loader.segments import cut_at_multiples, split

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
        runs: vector int64: the first member of each run, in the epoch's order.
        ends: vector int64: where pieces of the sequence of places end, two pieces a lane.
        shifts: vector int64: how far each piece is moved, since its lane is entered at a random place.
    """

    number: tf.Tensor
    runs: tf.Tensor
    ends: tf.Tensor
    shifts: tf.Tensor


@dataclass(frozen=True)
class Order:
    """The order of the epochs of one population.

    Attributes:
        num_places: of an epoch, and the members of the population.
        run: how many neighbours stay together; 0 for the stored order.
        seed: of all epochs.
        lanes: that are entered at random places if they have two at least; 0 without lanes.
    """

    num_places: int
    run: int
    seed: int
    lanes: int = 0

    def epoch(self, number: tf.Tensor) -> Epoch:
        """Return an epoch by its number, scalar int64.

        It has ``num_places / run`` runs, rounded up, and none for the stored order.
        """
        none = tf.zeros([0], tf.int64)
        if not self.run or not self.num_places:
            return Epoch(number, none, none, none)
        return Epoch(number, self._runs(number), *(self._pieces(number) if self._enters else (none, none)))

    @property
    def _enters(self) -> bool:
        # a lane has two pieces, neither of them empty
        return self.lanes > 0 and self.num_places >= 2 * self.lanes

    def _pieces(self, epoch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        bounds = np.arange(self.lanes + 1, dtype=np.int64) * self.num_places // self.lanes
        lengths = np.diff(bounds)
        bits = random_bits(self.seed, LANES, epoch, tf.range(self.lanes, dtype=tf.int64))
        entered = 1 + bits % (lengths - 1)
        # from the entry to the lane's end, then from its start to the entry
        ends = tf.stack([bounds[1:] - entered, tf.constant(bounds[1:])], axis=1)
        shifts = tf.stack([entered, entered - lengths], axis=1)
        return tf.reshape(ends, [-1]), tf.reshape(shifts, [-1])

    def _runs(self, epoch: tf.Tensor) -> tf.Tensor:
        whole = self.num_places // self.run
        # the states behind random_bits(seed, RUNS, epoch, run) and random_bits(seed, ROTATION, epoch)
        uses = [_hashed(self.seed % 2**64, use) for use in (RUNS, ROTATION)]
        state, rotation = tf.unstack(_hashed(tf.constant(np.array(uses, np.uint64)), epoch))
        bits = _as_bits(_hashed(state, tf.range(whole, dtype=tf.int64)))
        # the indices that sort them, of equal ones the first
        moved = tf.cast(tf.math.top_k(-1 - bits, whole).indices, tf.int64)
        if self.num_places % self.run:
            # a last run that is shorter than the others stays at the end of the epoch
            moved = tf.concat([moved, tf.constant([whole], tf.int64)], axis=0)
        return (_as_bits(rotation) + moved * self.run) % self.num_places

    def members(self, epoch: Epoch, places: tf.Tensor) -> tf.Tensor:
        """Return which members stand at ``places`` of an epoch: vectors int64."""
        if not self.run:
            return places
        if self._enters:
            places += tf.gather(epoch.shifts, tf.searchsorted(epoch.ends, places, side="right"))
        return self._members(epoch, places)

    def _members(self, epoch: Epoch, places: tf.Tensor) -> tf.Tensor:
        return (tf.gather(epoch.runs, places // self.run) + places % self.run) % self.num_places

    def segments(self, epoch: Epoch, starts: tf.Tensor, counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return neighbours that stand at places ``[start, start + count)``, as first members and lengths.

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
        if self._enters:
            _, piece, starts, counts = split(epoch.ends, starts, counts)
            starts += tf.gather(epoch.shifts, piece)
        firsts, lengths = cut_at_multiples(starts, counts, self.run)
        return self._members(epoch, firsts), lengths


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
