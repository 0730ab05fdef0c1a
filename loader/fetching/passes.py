"""A pass over an epoch: its uses in order, and how far they are fetched and read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tfshards.loader.fetching.belady import NEVER
from tfshards.loader.fetching.schedule import STREAMS_AHEAD, Schedule
from tfshards.loader.order.plan import Plan

# Uses are numbered along all passes: those of a pass start at a multiple of this number.
_WIDTH = 1 << 40


@dataclass(eq=False)
class Pass:
    """One pass over an epoch.

    Attributes:
        index: the number of passes before it.
        epoch: the epoch that is read.
        uses: the uses of blocks, in order.
        blocks: shape ``(n,)`` int64: the block of each use.
        by_lanes: whether the uses are those of lanes, rather than of streams.
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


def epoch_after(plan: Plan, epoch: int) -> tuple[int, bool]:
    """Return the epoch that is expected to follow, and whether the same iteration reads it.

    After its last epoch, a dataset is expected to be iterated again.
    """
    if plan.is_next_epoch_each_time:
        return epoch + 1, False
    if plan.epochs is not None and epoch + 1 >= plan.epochs:
        return plan.begin.epoch, False
    return epoch + 1, True
