"""The order of an epoch as arithmetic, and all randomness of the loader."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.schemas.digests import STEP, mixed

Ints: TypeAlias = npt.NDArray[np.int64]

# The uses of a hash; each is the first word after the seed, so that no two uses get the same bits.
RUNS, ROTATION, CROP, FLIP, MAP, LANES = range(6)


def order_seed(seed: int, build_id: str) -> int:
    """Return the seed of a dataset's order, 63 bits, so that different datasets have different orders."""
    digest = hashlib.sha256(f"{seed} {build_id}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def random_bits(seed: int, *words: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return 63 random bits (int64, not negative) for each combination of the broadcast ``words`` (int64).

    The result of scalars has shape ``(1,)``.

    Each word is added to the state, and the state is mixed by the finalizer of SplitMix64 (Steele, Lea and
    Flood, doi:10.1145/2660193.2660195), after Vigna's public-domain ``splitmix64.c``.
    """
    state = np.full(1, seed % 2**64, np.uint64)
    for word in words:
        # arrays wrap around; NumPy would warn about scalars
        state = mixed(state + np.asarray(word, np.int64).astype(np.uint64) + np.uint64(STEP))
    bits: Ints = (state >> np.uint64(1)).astype(np.int64)
    return bits


class Epoch(NamedTuple):
    """One epoch.

    Attributes:
        runs: int64 vector: the first member of each run, in run order; empty for the stored order.
        entries: int64 vector: the number of ranks after its first at which each lane is entered.
    """

    number: int
    runs: Ints
    entries: Ints


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

    def epoch(self, number: int) -> Epoch:
        """Return the epoch with this number."""
        entries = np.zeros(self.lanes, np.int64)
        if not self.run or not self.num_positions:
            return Epoch(number, np.zeros(0, np.int64), entries)
        whole, rest = divmod(self.num_positions, self.run)
        moved = _ascending(random_bits(self.seed, RUNS, number, np.arange(whole)))
        if rest:
            # A shorter last run stays at the end of the epoch.
            moved = np.append(moved, whole)
        runs = (random_bits(self.seed, ROTATION, number) + moved * self.run) % self.num_positions
        # A lane that is entered at a random rank has two nonempty pieces.
        if self.is_entered and self.num_positions >= 2 * self.lanes > 0:
            lengths = np.diff(lane_bounds(self.num_positions, self.lanes))
            entries = 1 + random_bits(self.seed, LANES, number, np.arange(self.lanes)) % (lengths - 1)
        return Epoch(number, runs, entries)

    def members(self, epoch: Epoch, ranks: Ints) -> Ints:
        """Return the members of these ranks, int64 arrays."""
        if not self.run:
            return ranks
        run, within = np.divmod(ranks, self.run)
        members = epoch.runs[run] + within
        # a run may pass the end of the circle
        members[members >= self.num_positions] -= self.num_positions
        return members


def lane_bounds(num_positions: int, lanes: int) -> Ints:
    """Return the position at which each lane starts, and the end: shape ``(lanes + 1,)`` int64."""
    return np.array([lane * num_positions // lanes for lane in range(lanes + 1)], np.int64)


def _ascending(values: Ints) -> Ints:
    """Return what ``np.argsort(values, kind="stable")`` does, in a quarter of its time: by sorting values."""
    bits = len(values).bit_length()
    # the upper bits of each value, and its index
    packed = np.sort(values >> bits << bits | np.arange(len(values)))
    order = packed & ((1 << bits) - 1)
    is_tied = np.diff(packed >> bits) == 0
    if is_tied.any():
        tied = np.append(is_tied, False) | np.append(False, is_tied)
        rows = order[tied]
        order[tied] = rows[np.lexsort((rows, values[rows]))]
    return order
