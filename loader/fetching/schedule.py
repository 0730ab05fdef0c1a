"""When a worker reads which records of an epoch, ahead of time, and which blocks are kept for it."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tfshards.loader.order.epoch import Epoch
from tfshards.loader.order.ops import NUMPY
from tfshards.loader.order.plan import ReadPlan
from tfshards.loader.order.ranks import ranks_of_lanes
from tfshards.loader.records.located import RecordIntervals, run_intervals
from tfshards.loader.records.shards import Shards

# The next use of a block that the known order does not need again.
NEVER = 1 << 62


class Kept:
    """The blocks that are kept, of bounded size together.

    A block that is used next after all kept ones is not kept (bypass): it would be evicted
    before them. For blocks of one size, no other rule fetches fewer (Belady 1966, doi:10.1147/sj.52.0078).
    """

    def __init__(self, capacity: int) -> None:
        self.capacity: int = capacity
        self.num_bytes: int = 0
        self._blocks: dict[int, tuple[int, int]] = {}
        # (-next use, block); entries that differ from _blocks are out of date
        self._latest: list[tuple[int, int]] = []

    def __contains__(self, block: int) -> bool:
        return block in self._blocks

    def use(self, block: int, num_bytes: int, next_use: int) -> tuple[bool, list[int]]:
        """Note that ``block`` is used; return whether it is kept now, and what is evicted for it."""
        if block in self._blocks:
            self._put(block, num_bytes, next_use)
            return True, []
        victims: dict[int, tuple[int, int]] = {}
        while self.num_bytes + num_bytes > self.capacity:
            found = self._last()
            if found is None or found[0] <= next_use:
                # evicting all that are used later is not enough
                for victim, (size, when) in victims.items():
                    self._put(victim, size, when)
                return False, []
            victims[found[1]] = self._blocks[found[1]]
            self.drop(found[1])
        self._put(block, num_bytes, next_use)
        return True, list(victims)

    def shrink(self, capacity: int) -> list[int]:
        """Set the capacity, and return the blocks that are evicted for it."""
        self.capacity = capacity
        victims: list[int] = []
        while self.num_bytes > capacity and (found := self._last()):
            victims.append(found[1])
            self.drop(found[1])
        return victims

    def drop(self, block: int) -> None:
        """Keep this block no longer, if it was kept."""
        if block in self._blocks:
            self.num_bytes -= self._blocks.pop(block)[0]

    def replan(self, next_uses: Mapping[int, int]) -> None:
        """Set when each kept block is used next; those that are not named never are."""
        for block, (num_bytes, _) in list(self._blocks.items()):
            self._blocks[block] = (num_bytes, next_uses.get(block, NEVER))
        self._latest = [(-when, block) for block, (_, when) in self._blocks.items()]
        heapq.heapify(self._latest)

    def _put(self, block: int, num_bytes: int, next_use: int) -> None:
        if block not in self._blocks:
            self.num_bytes += num_bytes
        self._blocks[block] = (num_bytes, next_use)
        heapq.heappush(self._latest, (-next_use, block))

    def _last(self) -> tuple[int, int] | None:
        """Return when the block is used that is used last, and the block."""
        while self._latest:
            when, block = -self._latest[0][0], self._latest[0][1]
            if self._blocks.get(block, (0, None))[1] == when:
                return when, block
            heapq.heappop(self._latest)
        return None


IntArray = npt.NDArray[np.int64]

# By steps, a stream has ended when the stream this many after it begins: TensorFlow reads two, and opens four
# ahead.
STREAMS_AHEAD = 8


@dataclass(frozen=True, eq=False)
class Schedule:
    """The uses of blocks in an epoch, in the order in which they begin; a use reads neighbors in a block.

    Attributes:
        lanes: shape ``(n,)`` int64: the lane of the worker that reads; by steps, the number of the stream.
        firsts: shape ``(n,)`` int64: the first record, counted in the shard.
        ends: shape ``(n,)`` int64: the record after the last one.
        numbers: shape ``(n,)`` int64: the example number of the first record.
    """

    lanes: IntArray
    shards: IntArray
    firsts: IntArray
    ends: IntArray
    numbers: IntArray
    num_lanes: int

    @cached_property
    def _by_number(self) -> IntArray:
        return np.argsort(self.numbers, kind="stable").astype(np.int64)

    def is_begin(self, use: int) -> bool:
        """Return whether a use is the first one of its lane."""
        return int(np.argmax(self.lanes == self.lanes[use])) == use

    def use_of(self, number: int) -> int | None:
        """Return the use that reads the example ``number``, or None."""
        row = int(np.searchsorted(self.numbers, number, side="right", sorter=self._by_number)) - 1
        if row < 0:
            return None
        use = int(self._by_number[row])
        return use if number - self.numbers[use] < self.ends[use] - self.firsts[use] else None

    def __len__(self) -> int:
        return len(self.lanes)


def schedule(shards: Shards, plan: ReadPlan, epoch: int) -> Schedule:
    """Return the uses of an epoch, from its first step or, in the first epoch, from ``plan.begin``."""
    first = plan.begin.step if epoch == plan.begin.epoch else 0
    find = _by_lanes if plan.assignment.lanes else _by_steps
    lanes, steps, pieces, num_lanes = find(shards, plan, plan.order.epoch(epoch), first)
    order = np.lexsort((lanes, steps))
    lanes, files, firsts, counts, numbers = (each[order] for each in (lanes, *pieces))
    # Neighbors in the order that are in one block are one use; by steps, with the records of other workers
    # between them.
    blocks = firsts // shards.unit
    same = (lanes[1:] == lanes[:-1]) & (files[1:] == files[:-1]) & (blocks[1:] == blocks[:-1])
    if plan.assignment.lanes:
        same &= firsts[1:] == (firsts + counts)[:-1]
    starts = np.flatnonzero(np.concatenate([[True], ~same])) if len(lanes) else np.zeros(0, np.int64)
    lasts = np.append(starts[1:], len(lanes)) - 1
    return Schedule(
        lanes=lanes[starts],
        shards=files[starts],
        firsts=firsts[starts],
        ends=(firsts + counts)[lasts],
        numbers=numbers[starts],
        num_lanes=num_lanes,
    )


def _by_lanes(
    shards: Shards, plan: ReadPlan, epoch: Epoch, first: int
) -> tuple[IntArray, IntArray, RecordIntervals, int]:
    """Return the lane and the step of each piece, the pieces, and the number of lanes."""
    assignment = plan.assignment
    ranks = [
        ranks_of_lanes(NUMPY, assignment, epoch, index, first, assignment.num_steps)[0]
        for index in range(assignment.num_readers)
    ]
    starts, counts = (np.concatenate(each) for each in zip(*ranks, strict=True))
    pieces = run_intervals(shards, plan, epoch, starts.reshape(-1), counts.reshape(-1))
    ends = np.cumsum(counts.sum(axis=1))
    before = np.cumsum(pieces.counts) - pieces.counts
    lanes = np.searchsorted(ends, before, side="right").astype(np.int64)
    positions = before - np.append(0, ends)[lanes]
    return lanes, first + positions // assignment.rows_per_lane, pieces, assignment.worker_lanes


def _by_steps(
    shards: Shards, plan: ReadPlan, epoch: Epoch, first: int
) -> tuple[IntArray, IntArray, RecordIntervals, int]:
    """Return the stream and the place in the order of each piece, the pieces, and the number of streams."""
    assignment = plan.assignment
    size, width = assignment.batch_size, assignment.chunk * assignment.group
    hop = width if assignment.worker.count == 1 else 1
    steps = np.arange(first, assignment.num_steps, hop, dtype=np.int64)
    starts = steps * assignment.global_batch_size + assignment.worker.index * size
    wanted = np.minimum(hop, assignment.num_steps - steps) * size
    counts = np.clip(assignment.num_positions - starts, 0, wanted)
    pieces = run_intervals(shards, plan, epoch, starts, counts)
    before = np.cumsum(pieces.counts) - pieces.counts
    row = np.searchsorted(np.cumsum(counts), before, side="right")
    streams = (steps[row] - first) // width
    num_streams = int(streams[-1]) + 1 if len(streams) else 0
    return streams, np.arange(len(before), dtype=np.int64), pieces, num_streams


# Uses are numbered along all passes; each pass starts at a multiple of this number.
_WIDTH = 1 << 40


@dataclass(eq=False)
class Pass:
    """One pass over an epoch.

    Attributes:
        index: the number of passes before it.
        blocks: shape ``(n,)`` int64: the block of each use.
        by_lanes: whether lanes use the blocks, rather than streams.
        num_before: the number of streams of all passes before it.
        next_uses: shape ``(n,)`` int64: when the block of each use is used next, as ``when`` counts.
        done: shape ``(n,)`` int64: the number of the last example that was read in each use.
        cursor: the first use that may not be planned yet.
    """

    index: int
    epoch: int
    uses: Schedule
    blocks: npt.NDArray[np.int64]
    by_lanes: bool
    num_before: int
    next_uses: npt.NDArray[np.int64] = field(init=False)
    done: npt.NDArray[np.int64] = field(init=False)
    cursor: int = 0

    def __post_init__(self) -> None:
        self.next_uses = np.full(len(self.uses), NEVER, np.int64)
        self.done = self.uses.numbers - 1
        self._left = np.bincount(self.uses.lanes, minlength=self.uses.num_lanes)

    def when(self, use: int) -> int:
        """Return the number of a use along all passes."""
        return self.index * _WIDTH + use

    def first_uses(self) -> dict[int, int]:
        """Return when each block is used first in this pass."""
        blocks, rows = np.unique(self.blocks, return_index=True)
        return dict(zip(blocks.tolist(), (self.index * _WIDTH + rows).tolist(), strict=True))

    def precede(self, following: Pass) -> None:
        """Set ``next_uses``, given the pass that follows."""
        later = np.concatenate([self.blocks, following.blocks])
        when = np.concatenate([each.index * _WIDTH + np.arange(len(each.uses)) for each in (self, following)])
        order = np.argsort(later, kind="stable")
        follows = later[order][1:] == later[order][:-1]
        found = np.full(len(later), NEVER, np.int64)
        found[order[:-1][follows]] = when[order[1:][follows]]
        self.next_uses = found[: len(self.uses)]

    def reader_of(self, use: int) -> int:
        """Return the lane of a use, or the number of its stream along all passes."""
        return int(self.uses.lanes[use]) + (0 if self.by_lanes else self.num_before)

    def read(self, use: int, number: int) -> None:
        """Note that a use has reached an example."""
        if self.done[use] < self.uses.numbers[use]:
            self._left[self.uses.lanes[use]] -= 1
        self.done[use] = number

    def is_abandoned(self, lane: int) -> bool:
        """Return whether this pass is not read on, given that ``lane`` reads the pass after it."""
        if self.by_lanes:
            return bool(self._left[lane])
        # a stream is opened while earlier ones are still read
        return bool(self._left[: max(0, len(self._left) + lane - STREAMS_AHEAD)].any())


def epoch_after(plan: ReadPlan, epoch: int) -> tuple[int, bool]:
    """Return the epoch that is expected to follow, and whether the same iteration reads it.

    After its last epoch, a dataset is expected to be iterated again.
    """
    if plan.is_next_epoch_each_time:
        return epoch + 1, False
    if plan.epochs is not None and epoch + 1 >= plan.epochs:
        return plan.begin.epoch, False
    return epoch + 1, True
