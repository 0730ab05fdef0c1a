"""The order of a run as arithmetic, and all randomness of the loader.

An epoch is a sequence of ranks. Its runs of neighbors are permuted, which gives the member of the population
at each rank, and steps divide the ranks. With a global batch size ``G``:

* By steps, for the stored order and for full permutations: step ``t`` of all workers together is the
  ranks ``[t * G, (t + 1) * G)``; worker ``w`` has the ``w``-th slice of ``batch_size`` ranks of it.
* By lanes, for runs of neighbors: the sequence is cut into ``lanes`` contiguous lanes whose lengths differ
  by at most 1, each of which is a circle that is entered at a random rank. Each lane gives ``G / lanes``
  ranks to each step. Worker ``w`` of ``W`` reads the lanes ``[w * lanes / W, (w + 1) * lanes / W)``, so that
  the global batches do not depend on ``W``.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfshards.loader.options.load_options import Remainder
from tfshards.loader.options.worker import Worker
from tfshards.loader.order.population import Population
from tfshards.loader.reading.damage import PADDING
from tfshards.schemas.digests import STEP, mixed
from tfshards.schemas.index import IntArray as Ints

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Order:
    """The order of a run, and which part of it one worker reads. Any number of threads may ask.

    Attributes:
        run: the number of neighbors that stay together; 0 for the stored order, 1 for a full permutation.
        lanes: number of lanes of all workers together; 0 by steps.
    """

    population: Population
    batch_size: int
    worker: Worker
    remainder: Remainder
    seed: int
    run: int
    lanes: int
    # the epochs that were asked for last: one may end while the next one begins
    _epochs: list[Epoch] = field(default_factory=list, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def num_positions(self) -> int:
        """The number of positions of an epoch."""
        return self.population.num_positions

    @property
    def global_batch_size(self) -> int:
        """The number of examples in one step of all workers together."""
        return self.batch_size * self.worker.count

    @property
    def num_steps(self) -> int:
        """The steps of one epoch, the same for each worker: rounded down for "drop", up for the others."""
        if self.remainder == "drop":
            return self.num_positions // self.global_batch_size
        return -(-self.num_positions // self.global_batch_size)

    @property
    def rows_per_lane(self) -> int:
        """The number of positions that each lane contributes to a step."""
        return self.global_batch_size // self.lanes

    @property
    def worker_lanes(self) -> int:
        """The number of lanes of this worker."""
        return self.lanes // self.worker.count

    def numbers(self, epoch: int, step: int, end: int | None = None) -> Ints:
        """Return the numbers of the examples of the steps ``[step, end)`` of an epoch; by default of one.

        Returns:
            Shape ``(steps, batch_size)`` int64, in the order in which ``load`` delivers them; ``PADDING`` for
            rows that the last step of an epoch lacks.
        """
        steps = 1 if end is None else end - step
        lanes = self.of_lanes(epoch, step, step + steps)
        found: Ints = lanes.reshape(len(lanes), steps, -1).swapaxes(0, 1).reshape(steps, -1)
        return found

    def of_lanes(self, epoch: int, step: int, end: int) -> Ints:
        """Return the same numbers by lane, in which neighbors are: shape ``(lanes, steps * rows)``.

        By steps it is one lane of all rows.
        """
        opened = self._opened(epoch)
        if self.lanes:
            own = slice(first := self.worker.index * self.worker_lanes, first + self.worker_lanes)
            bounds = lane_bounds(self.num_positions, self.lanes)
            begins, lengths = (each[own, np.newaxis] for each in (bounds[:-1], np.diff(bounds)))
            within = np.arange(step * self.rows_per_lane, end * self.rows_per_lane)
            is_real = within < lengths
            # each lane is a circle
            ranks = opened.entries[own, np.newaxis] + within
            ranks = begins + np.where(ranks >= lengths, ranks - lengths, ranks)
        else:
            begins = np.arange(step, end) * self.global_batch_size + self.worker.index * self.batch_size
            ranks = (begins[:, np.newaxis] + np.arange(self.batch_size)).reshape(1, -1)
            is_real = ranks < self.num_positions
        is_whole = bool(is_real.all())
        members = self._members(opened, ranks if is_whole else ranks[is_real])
        numbers = self.population.numbers(epoch, members)
        if is_whole:
            return numbers
        found = np.full(ranks.shape, PADDING, np.int64)
        found[is_real] = numbers
        return found

    def _members(self, epoch: Epoch, ranks: Ints) -> Ints:
        """Return the members of these ranks."""
        if not self.run:
            return ranks
        run, within = np.divmod(ranks, self.run)
        members = epoch.runs[run] + within
        # a run may pass the end of the circle
        members[members >= self.num_positions] -= self.num_positions
        return members

    def _opened(self, number: int) -> Epoch:
        with self._lock:
            found = next((each for each in self._epochs if each.number == number), None)
            if found is None:
                found = self._epoch(number)
                self._epochs[:] = [found, *self._epochs[:1]]
            return found

    def _epoch(self, number: int) -> Epoch:
        count, entries = self.num_positions, np.zeros(self.lanes, np.int64)
        if not self.run or not count:
            return Epoch(number, np.zeros(0, np.int64), entries)
        whole, rest = divmod(count, self.run)
        moved = _ascending(random_bits(self.seed, RUNS, number, np.arange(whole)))
        if rest:
            # A shorter last run stays at the end of the epoch.
            moved = np.append(moved, whole)
        runs = (random_bits(self.seed, ROTATION, number) + moved * self.run) % count
        # A lane that is entered at a random rank has two nonempty pieces.
        if count >= 2 * self.lanes > 0:
            lengths = np.diff(lane_bounds(count, self.lanes))
            entries = 1 + random_bits(self.seed, LANES, number, np.arange(self.lanes)) % (lengths - 1)
        return Epoch(number, runs, entries)


def lane_bounds(num_positions: int, lanes: int) -> Ints:
    """Return the position at which each lane starts, and the end: shape ``(lanes + 1,)`` int64."""
    return np.arange(lanes + 1, dtype=np.int64) * num_positions // lanes


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
