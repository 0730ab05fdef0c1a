"""``BlockFetcher``: gives TensorFlow the records of blocks, fetched in the order of their uses.

The order is known, so blocks are planned use by use: kept in the folder by Belady's rule, or fetched for one
use only, and then no more than its records. Plans are made and files removed under one lock, whenever the
graph asks for records; threads fetch and check.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tfshards.loader.fetching.blocks import BlockTable
from tfshards.loader.fetching.files import BlockFiles, Fetch
from tfshards.loader.fetching.folder import BlockFolder
from tfshards.loader.fetching.schedule import Pass, epoch_after, schedule
from tfshards.loader.order.plan import ReadPlan
from tfshards.loader.order.steps import PADDING
from tfshards.loader.records.intervals import MISSING_NUMBER
from tfshards.schemas.storage import AnyPath

_URGENT = -1
# Pieces outside the plan that stay in memory: padding repeats one; a second iterator reads each once.
_MOST_EXTRAS = 4
_MOST_RESTARTS = 3
_SECONDS_RESTARTS = 10.0

# The fetchers of this process, which make room for each other.
_running: weakref.WeakSet[BlockFetcher] = weakref.WeakSet()


class BlockFetcher:
    """Fetches the blocks of a pipeline; see ``records.shards.Fetcher``.

    Any number of threads may ask for records. Whoever asks waits only for requests to the store, which end by
    themselves, and never for space or for another reader, so that no reader can block another one.
    """

    def __init__(
        self,
        plan: ReadPlan,
        table: BlockTable,
        paths: Sequence[AnyPath],
        folder: BlockFolder | None,
        *,
        ahead: int,
        memory_bytes: int,
    ) -> None:
        """Prepare to fetch; nothing is fetched before the first records are asked for.

        Args:
            folder: where blocks are kept; None to keep none.
            ahead: the bytes that are planned and not yet read, by which fetching ahead ends.
            memory_bytes: see ``records.shards.Fetcher``.
        """
        self.memory_bytes: int = memory_bytes
        self._plan, self._table = plan, table
        self._most_ahead = ahead
        self._files = BlockFiles(table, paths, folder)
        self._passes: deque[Pass] = deque()
        # what is planned for a use and was not read to its end: by pass and use
        self._planned: dict[tuple[Pass, int], Fetch] = {}
        # the bytes of those of which nothing was read
        self._staged: dict[tuple[Pass, int], int] = {}
        self._ahead = 0
        self._num_streams = 0
        self._extras: dict[tuple[int, int, int], Fetch] = {}
        self._restarts: deque[float] = deque(maxlen=_MOST_RESTARTS)
        self._current = 0
        if folder is not None:
            weakref.finalize(self, folder.close, self._files.names)
        _running.add(self)
        for other in list(_running):
            other.make_room()

    def read(
        self, epoch: np.int64, shard: np.int64, first: np.int64, count: np.int64, number: np.int64
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.object_]]:
        """Return the numbers and the records of an interval, both of shape ``(count,)``."""
        wanted = int(shard), int(first), int(first) + int(count)
        with self._files.lock:
            fetch, ended = None, None
            if number != PADDING and (found := self._find(int(epoch), int(number))) is not None:
                fetch = self._next(*found, int(number))
                ended = found if wanted[2] >= found[0].uses.ends[found[1]] else None
            fetch = fetch or self._extra(*wanted)
            self._fetch_ahead()
        sound = fetch.records.result()
        if ended is not None:
            with self._files.lock:
                self._end(*ended)
        if sound is None and fetch.is_damaged:
            # each use of a damaged block fetches its own records
            with self._files.lock:
                fetch = self._extra(*wanted)
            sound = fetch.records.result()
        offset = wanted[1] - fetch.piece.first
        taken = (sound or [])[offset : offset + int(count)]
        records = np.full(count, b"", object)
        records[: len(taken)] = taken
        numbers = np.arange(number, number + count, dtype=np.int64)
        numbers[len(taken) :] = MISSING_NUMBER - max(int(number), 0)
        return numbers, records

    def explain(self, number: np.int64) -> bytes:
        """Return a message about why the example ``number``, or one after it, could not be read."""
        return self._files.explain(int(number)).encode()

    def make_room(self) -> None:
        """Keep fewer blocks if other pipelines have begun, or more if some have ended."""
        with self._files.lock:
            self._files.refresh()

    # Which use an example belongs to

    def _find(self, epoch: int, number: int) -> tuple[Pass, int] | None:
        """Return the use that continues with an example, and begin anew if a new iterator needs that."""
        found = self._find_planned(epoch, number)
        if found is None and self._may_restart(epoch, number):
            self._restart(epoch)
            found = self._find_planned(epoch, number)
        return found

    def _next(self, reading: Pass, use: int, number: int) -> Fetch:
        """Return what was planned for a use that is read."""
        self._enter(reading, int(reading.uses.lanes[use]))
        reading.read(use, number)
        if (reading, use) not in self._planned:
            # not planned in time
            self._plan_use(reading, use, _URGENT)
        self._ahead -= self._staged.pop((reading, use), 0)
        return self._planned[reading, use]

    def _end(self, reading: Pass, use: int) -> None:
        """Release what was planned for a use; another iterator may have done so."""
        fetch = self._planned.pop((reading, use), None)
        if fetch is not None:
            self._ahead -= self._staged.pop((reading, use), 0)
            self._files.release(fetch)

    def _find_planned(self, epoch: int, number: int) -> tuple[Pass, int] | None:
        for each in self._passes:
            if each.epoch == epoch:
                use = each.uses.use_of(number)
                if use is not None and number > each.done[use]:
                    return each, use
        return None

    def _enter(self, reading: Pass, lane: int) -> None:
        """Make the following pass known when the first use of a pass is read, and forget abandoned ones."""
        self._current = max(self._current, reading.index)
        while self._passes[0].index + 1 < reading.index or (
            self._passes[0].index < reading.index and self._passes[0].is_abandoned(lane)
        ):
            self._forget(self._passes.popleft())
        if self._passes[-1] is reading:
            self._append(epoch_after(self._plan, reading.epoch)[0])

    def _append(self, epoch: int) -> Pass:
        """Add a pass after the last one."""
        uses = schedule(self._table.shards, self._plan, epoch)
        index = self._passes[-1].index + 1 if self._passes else self._current + 1
        blocks = self._table.block_of(uses.shards, uses.firsts)
        added = Pass(index, epoch, uses, blocks, bool(self._plan.assignment.lanes), self._num_streams)
        self._num_streams += uses.num_lanes
        if self._passes:
            self._passes[-1].precede(added)
        self._passes.append(added)
        return added

    def _may_restart(self, epoch: int, number: int) -> bool:
        """Return whether to plan anew: not for each of several iterators that are used at the same time."""
        known = [each.uses for each in self._passes if each.epoch == epoch]
        uses = [(each, each.use_of(number)) for each in known]
        if known and not any(use is not None and each.is_begin(use) for each, use in uses):
            return False
        now = time.monotonic()
        if len(self._restarts) == _MOST_RESTARTS and now - self._restarts[0] < _SECONDS_RESTARTS:
            return False
        self._restarts.append(now)
        return True

    def _restart(self, epoch: int) -> None:
        """Plan from the start of an epoch."""
        while self._passes:
            self._forget(self._passes.popleft())
        first = self._append(epoch)
        following = self._append(epoch_after(self._plan, epoch)[0])
        next_uses = following.first_uses() | first.first_uses()
        self._files.refresh()
        self._files.adopt(next_uses)

    def _forget(self, abandoned: Pass) -> None:
        """Release what was planned for a pass that is not read on."""
        for key in [key for key in self._planned if key[0] is abandoned]:
            self._end(*key)

    # What is fetched when

    def _fetch_ahead(self) -> None:
        """Plan uses in order, until enough is fetched ahead."""
        self._files.refresh()
        before: Pass | None = None
        for each in list(self._passes):
            if each.index > self._current + 1:
                return
            # after the last epoch, nobody knows whether the dataset is iterated again
            if each.index > self._current and before and not epoch_after(self._plan, before.epoch)[1]:
                return
            before = each
            if each is self._passes[-1] and each.cursor < len(each.uses):
                self._append(epoch_after(self._plan, each.epoch)[0])
            while each.cursor < len(each.uses):
                if self._ahead >= self._most_ahead:
                    return
                use = each.cursor
                if (each, use) not in self._planned and each.done[use] < each.uses.numbers[use]:
                    self._plan_use(each, use, each.when(use))
                each.cursor += 1

    def _plan_use(self, reading: Pass, use: int, urgency: int) -> None:
        """Decide how a use gets its records, and fetch them unless they are in memory."""
        files, block = self._files, int(reading.blocks[use])
        is_kept = files.keep(block, int(reading.next_uses[use]))
        fetch = files.fetches.get(block)
        if fetch is None and is_kept:
            fetch = files.start(self._table.block(block), block, urgency)
        elif fetch is None:
            uses = reading.uses
            piece = self._table.piece(int(uses.shards[use]), int(uses.firsts[use]), int(uses.ends[use]))
            fetch = files.start(piece, None, urgency)
        fetch.num_users += 1
        self._planned[reading, use] = fetch
        self._staged[reading, use] = fetch.piece.num_bytes
        self._ahead += fetch.piece.num_bytes

    def _extra(self, shard: int, first: int, end: int) -> Fetch:
        """Return a piece that is not in the plan, as of padding, or for a second iterator."""
        wanted = self._table.piece(shard, first, end)
        key = wanted.shard, wanted.start, wanted.end
        fetch = self._extras.get(key)
        # one that could not be fetched is fetched again
        if fetch is None or fetch.is_failed:
            fetch = self._extras[key] = self._files.start(wanted, None, _URGENT)
            if len(self._extras) > _MOST_EXTRAS:
                del self._extras[next(iter(self._extras))]
        return fetch
