"""``BlockFetcher``: gives TensorFlow the local files of blocks, fetched in the order of their uses.

The order is known, so blocks are planned use by use: kept in the folder by Belady's rule, or fetched for one
use only, and then no more than its records. Plans are made and files removed under one lock, whenever the
graph asks for a block; threads fetch.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfshards.loader.fetching.blocks import BlockTable, Piece
from tfshards.loader.fetching.files import NUM_THREADS, BlockFile, BlockFiles
from tfshards.loader.fetching.folder import BlockFolder
from tfshards.loader.fetching.schedule import STREAMS_AHEAD, Pass, epoch_after, schedule
from tfshards.loader.order.plan import ReadPlan
from tfshards.loader.order.steps import PADDING
from tfshards.schemas.storage import AnyPath

_NOTHING = os.devnull.encode()
_URGENT = -1
# Pieces outside the plan, which a second iterator of the same dataset asks for.
_MOST_EXTRAS = 512
_MOST_RESTARTS = 3
_SECONDS_RESTARTS = 10.0
# A thread that asks for nothing for so long has ended, or has opened its file.
_SECONDS_TO_OPEN = 60.0


@dataclass(frozen=True, kw_only=True)
class Room:
    """How many bytes a fetcher may have on disk.

    Attributes:
        staging: for blocks that are read now or were fetched ahead, and are not kept.
        ahead: how far is fetched ahead, a part of ``staging``.
        piece: how much is fetched by one request.
    """

    staging: int
    ahead: int
    piece: int


# The fetchers of this process, which make room for each other.
_running: weakref.WeakSet[BlockFetcher] = weakref.WeakSet()


class BlockFetcher:
    """Fetches the blocks of a pipeline; see ``records.shards.Fetcher``.

    Any number of threads may ask for blocks. Whoever asks waits only for requests to the store, which end by
    themselves, and never for space or for another reader, so that no reader can block another one.
    """

    def __init__(
        self,
        plan: ReadPlan,
        table: BlockTable,
        paths: Sequence[AnyPath],
        folder: BlockFolder,
        room: Room,
        *,
        is_kept: bool = True,
    ) -> None:
        """Prepare to fetch; nothing is fetched before the first block is asked for."""
        self._plan, self._table = plan, table
        self._room = room
        # What is not kept gets no more space than it turns out to need.
        reserve = 0 if is_kept else room.staging
        self._files = BlockFiles(table, paths, folder, reserve=reserve, most=room.staging)
        self._passes: deque[Pass] = deque()
        # what is planned for a use: by pass and use; and the bytes of those that are not read yet
        self._planned: dict[tuple[Pass, int], BlockFile] = {}
        self._staged: dict[tuple[Pass, int], int] = {}
        self._ahead = 0
        self._num_streams = 0
        # what lanes read now, and what a second iterator reads
        self._held: dict[int, list[BlockFile]] = {}
        self._extras: dict[tuple[int, int, int], BlockFile] = {}
        # by thread: the file that it got last, and when; TensorFlow opens it in that thread
        self._given: dict[int, tuple[float, BlockFile]] = {}
        self._restarts: deque[float] = deque(maxlen=_MOST_RESTARTS)
        self._current = 0
        weakref.finalize(self, folder.close, self._files.names)
        _running.add(self)
        for other in list(_running):
            other.make_room()

    def locate(
        self, epoch: np.int64, shard: np.int64, first: np.int64, count: np.int64, number: np.int64
    ) -> tuple[bytes, np.int64]:
        """Return a local file with these records, and the byte of the shard with which it starts."""
        wanted = self._table.piece(int(shard), int(first), int(first) + int(count))
        thread = threading.get_ident()
        with self._files.lock:
            self._release_given(thread)
            file = self._extra(wanted) if number == PADDING else self._next(int(epoch), int(number), wanted)
            self._fetch_ahead()
            self._give(thread, file)
        path = file.path.result()
        if path is None and file.is_damaged:
            # each use of a damaged block fetches its own records
            with self._files.lock:
                self._release_given(thread)
                file = self._extra(wanted)
                self._give(thread, file)
            path = file.path.result()
        with self._files.lock:
            self._given[thread] = time.monotonic(), file
        if path is None:
            # TensorFlow finds no records there, and then asks for an explanation.
            return _NOTHING, np.int64(wanted.start)
        return os.fsencode(path), np.int64(file.piece.start)

    def explain(self, number: np.int64) -> bytes:
        """Return a message about why the example ``number``, or one after it, could not be read."""
        return self._files.explain(int(number)).encode()

    def make_room(self) -> None:
        """Keep fewer blocks if other pipelines have begun, or more if some have ended."""
        with self._files.lock:
            self._files.refresh()

    def _give(self, thread: int, file: BlockFile) -> None:
        """Let a file stay until TensorFlow has opened it, even if another iterator ends its use."""
        file.num_users += 1
        # how long it is fetched does not count
        self._given[thread] = math.inf, file

    def _release_given(self, thread: int) -> None:
        """Release what a thread got before: it has opened that file, since it asks for the next one."""
        now = time.monotonic()
        ended = [each for each, (since, _) in self._given.items() if now - since > _SECONDS_TO_OPEN]
        for each in {thread, *ended} & self._given.keys():
            self._files.release(self._given.pop(each)[1])

    @property
    def memory_bytes(self) -> int:
        """The maximum size of the blocks in memory: each thread has one, and a copy of a record at a time."""
        return 2 * NUM_THREADS * self._room.piece

    # Which use an example belongs to

    def _next(self, epoch: int, number: int, wanted: Piece) -> BlockFile:
        """Return the file of the use that continues with an example."""
        found = self._find(epoch, number)
        if found is None and self._may_restart(epoch, number):
            self._restart(epoch)
            found = self._find(epoch, number)
        if found is None:
            return self._extra(wanted)
        reading, use = found
        self._enter(reading, int(reading.uses.lanes[use]))
        is_new = reading.done[use] < reading.uses.numbers[use]
        reading.read(use, number)
        planned = self._planned.get((reading, use))
        if planned is None or not (planned.num_users or planned.is_kept):
            # not planned in time, or its stream was thought to have ended
            self._plan_use(reading, use, urgently=True)
            is_new = True
        self._ahead -= self._staged.pop((reading, use), 0)
        file = self._planned[reading, use]
        if is_new:
            held = reading.reader_of(use)
            # what the lane read before, or streams that have ended
            ended = (
                [held] if reading.by_lanes else [each for each in self._held if each <= held - STREAMS_AHEAD]
            )
            for each in ended:
                for read in self._held.pop(each, ()):
                    self._files.release(read)
            self._held.setdefault(held, []).append(file)
        return file

    def _find(self, epoch: int, number: int) -> tuple[Pass, int] | None:
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
        """Release what was planned for a pass and is not read."""
        for key in [key for key in self._planned if key[0] is abandoned]:
            file = self._planned.pop(key)
            if key in self._staged:
                self._ahead -= self._staged.pop(key)
                self._files.release(file)

    # What is fetched when

    def _fetch_ahead(self) -> None:
        """Plan uses in order, until enough is fetched ahead or there is no space."""
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
                if self._ahead >= self._room.ahead:
                    return
                use = each.cursor
                is_planned = (each, use) in self._planned or each.done[use] >= each.uses.numbers[use]
                if not is_planned and not self._plan_use(each, use):
                    return
                each.cursor += 1

    def _plan_use(self, reading: Pass, use: int, *, urgently: bool = False) -> bool:
        """Decide how a use gets its records; return False if that has to wait for space."""
        files, block = self._files, int(reading.blocks[use])
        file = files.blocks.get(block)
        # The decision stands if there is no space yet: the block is then one of those to keep.
        is_kept = files.keep(block, int(reading.next_uses[use]))
        urgency = _URGENT if urgently else reading.when(use)
        if file is None:
            piece = self._piece(reading, use, is_kept)
            is_late = urgently or self._ahead < self._room.ahead // 2
            if is_late and not files.has_room(piece.num_bytes):
                files.reserve_more(piece.num_bytes, urgently=urgently)
                is_kept = block in files.kept
                piece = self._piece(reading, use, is_kept)
            if not urgently and not files.has_room(piece.num_bytes):
                return False
            file = files.start(piece, block if is_kept else None, urgency)
        elif not file.is_started:
            files.begin(file, urgency)
        if file.block is not None:
            file.is_kept = is_kept
        file.num_users += 1
        self._planned[reading, use] = file
        self._staged[reading, use] = file.piece.num_bytes
        self._ahead += file.piece.num_bytes
        return True

    def _piece(self, reading: Pass, use: int, is_kept: bool) -> Piece:
        """Return what is fetched for a use: the whole block if it is kept, or else only what is read."""
        if is_kept:
            return self._table.block(int(reading.blocks[use]))
        uses = reading.uses
        return self._table.piece(int(uses.shards[use]), int(uses.firsts[use]), int(uses.ends[use]))

    def _extra(self, wanted: Piece) -> BlockFile:
        """Return the file of a piece that is not in the plan, as of padding, or for a second iterator."""
        key = wanted.shard, wanted.start, wanted.end
        file = self._extras.get(key)
        # one that could not be fetched is fetched again
        if file is None or file.is_removed:
            file = self._extras[key] = self._files.start(wanted, None, _URGENT)
            file.num_users = 1
            if len(self._extras) > _MOST_EXTRAS:
                self._files.release(self._extras.pop(next(iter(self._extras))))
        return file
