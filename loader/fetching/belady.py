"""Which blocks are kept: those that the known order needs first (Belady's rule), with bypass.

Nothing here knows files or time: a use is a number that grows along the order.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

# The next use of a block that the known order does not need again.
NEVER = 1 << 62


class Kept:
    """The blocks that are kept, of bounded size together.

    A block whose next use is later than that of all kept ones is not kept (bypass): it would be evicted
    before them. For blocks of one size, no other rule fetches fewer (Belady 1966, doi:10.1147/sj.52.0078).

    Attributes:
        capacity: the bytes of all kept blocks together.
        num_bytes: the bytes of the blocks that are kept now.
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
        """Note that ``block`` is used.

        Args:
            block: the block.
            num_bytes: its size.
            next_use: when it is used again; ``NEVER`` if it is not known to be.

        Returns:
            Whether it is kept from now on, and the blocks that are evicted for it.
        """
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
