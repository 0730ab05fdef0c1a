"""The order of an epoch as arithmetic, in NumPy or in the graph, and all randomness of the loader."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tfshards.loader.order.intervals import cut_at_multiples
from tfshards.loader.order.ops import NUMPY, Array, Ops
from tfshards.schemas.digests import LAST_SHIFT, ROUNDS, STEP

# The uses of a hash; each is the first word after the seed, so that no two uses get the same bits.
RUNS, ROTATION, CROP, FLIP, MAP, LANES = range(6)


def order_seed(seed: int, build_id: str) -> int:
    """Return the seed of a dataset's order, 63 bits, so that different datasets have different orders."""
    digest = hashlib.sha256(f"{seed} {build_id}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def random_bits(ops: Ops, seed: int, *words: Array) -> Array:
    """Return 63 random bits (int64, not negative) for each combination of the broadcast ``words`` (int64).

    Each word is added to the state, and the state is mixed by the finalizer of SplitMix64 (Steele, Lea and
    Flood, doi:10.1145/2660193.2660195), after Vigna's public-domain ``splitmix64.c``.
    """
    return as_bits(ops, hashed(ops, seed % 2**64, *words))


def hashed(ops: Ops, state: Array, *words: Array) -> Array:
    """Return the state after these words: a Python integer if all of them are integers, else uint64."""
    # arrays wrap around, as they should, but NumPy warns about scalars
    with np.errstate(over="ignore"):
        for word in words:
            if isinstance(state, int) and isinstance(word, int):
                state = (state + word + STEP) % 2**64
                for shift, factor in ROUNDS:
                    state = (state ^ state >> shift) * factor % 2**64
                state ^= state >> LAST_SHIFT
            else:
                state = ops.unsigned(state) + ops.unsigned(word) + np.uint64(STEP)
                for shift, factor in ROUNDS:
                    state = (state ^ ops.shifted(state, shift)) * np.uint64(factor)
                state = state ^ ops.shifted(state, LAST_SHIFT)
    return state


def as_bits(ops: Ops, state: Array) -> Array:
    """Return the upper 63 bits of a state, int64."""
    return ops.signed(ops.shifted(ops.unsigned(state), 1))


class Epoch(NamedTuple):
    """One epoch.

    Attributes:
        number: scalar int64.
        runs: int64 vector: the first member of each run, in run order; empty for the stored order.
        entries: int64 vector: the number of ranks after its first at which each lane is entered; empty
            without lanes.
    """

    number: Array
    runs: Array
    entries: Array


@dataclass(frozen=True, kw_only=True)
class RunOrder:
    """The run order of each epoch of a population.

    Attributes:
        run: the number of neighbors that stay together; 0 for the stored order.
        lanes: number of lanes of an epoch; 0 by steps.
        is_entered: whether lanes are entered at random ranks, if they have at least two.
        ops: the library that computes it.
    """

    num_positions: int
    run: int
    seed: int
    lanes: int
    is_entered: bool
    ops: Ops = NUMPY

    @property
    def num_runs(self) -> int:
        """The runs of an epoch; 0 for the stored order."""
        return -(-self.num_positions // self.run) if self.run else 0

    def epoch(self, number: Array) -> Epoch:
        """Return the epoch with this number, scalar int64; all readers of the epoch share the result."""
        ops, zero = self.ops, np.int64(0)
        entries = ops.full(self.lanes, zero)
        if not self.num_runs:
            return Epoch(number, ops.full(0, zero), entries)
        whole = self.num_positions // self.run
        # A lane that is entered at a random rank has two nonempty pieces.
        entered = self.lanes if self.is_entered and self.num_positions >= 2 * self.lanes else 0
        # random_bits(seed, use, epoch, run or lane), hashed together because that traces fewer operations.
        uses = np.array([hashed(ops, self.seed, use) for use in (RUNS, LANES, ROTATION)], np.uint64)
        of_run, of_lane, rotation = ops.unstack(hashed(ops, uses, number))
        words = ops.arange(max(whole, entered))
        states = ops.concat([ops.full(whole, of_run), ops.full(entered, of_lane)])
        bits = as_bits(ops, hashed(ops, states, ops.concat([words[:whole], words[:entered]])))
        of_runs, of_lanes = ops.split(bits, [whole, entered])
        moved = ops.ascending(of_runs)
        if self.num_positions % self.run:
            # A shorter last run stays at the end of the epoch.
            moved = ops.concat([moved, np.array([whole], np.int64)])
        runs = (as_bits(ops, rotation) + moved * self.run) % self.num_positions
        if entered:
            bounds = np.arange(self.lanes + 1, dtype=np.int64) * self.num_positions // self.lanes
            entries = 1 + of_lanes % (np.diff(bounds) - 1)
        return Epoch(number, runs, entries)

    def members(self, epoch: Epoch, ranks: Array) -> Array:
        """Return the members of these ranks, int64 vectors."""
        if not self.run:
            return ranks
        firsts = self.ops.gather(epoch.runs, ranks // self.run)
        return (firsts + ranks % self.run) % self.num_positions

    def ranks(self, epoch: Epoch, members: Array) -> Array:
        """Return the ranks of these members, int64 vectors: the inverse of ``members``, in NumPy only."""
        if not self.num_runs:
            return members
        rotation = random_bits(NUMPY, self.seed, ROTATION, epoch.number) % self.num_positions
        # the places of runs in run order, by their numbers in the order of members
        places = np.empty(self.num_runs, np.int64)
        places[(epoch.runs - rotation) % self.num_positions // self.run] = np.arange(self.num_runs)
        run, within = np.divmod((members - rotation) % self.num_positions, self.run)
        return places[run] * self.run + within

    def intervals(self, epoch: Epoch, starts: Array, counts: Array) -> tuple[Array, Array]:
        """Return the intervals of neighbors that have the ranks ``[start, start + count)``, int64 vectors.

        They are first members and counts. An interval may pass the end of the circle; it then continues with
        the first member.
        """
        if not self.run:
            return starts, counts
        firsts, lengths = cut_at_multiples(self.ops, starts, counts, self.run)
        return self.members(epoch, firsts), lengths
