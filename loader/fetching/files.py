"""The files of a pipeline's blocks: fetched by threads, checked, counted, and removed."""

from __future__ import annotations

import itertools
import os
import queue
import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tfshards.loader.fetching.blocks import BlockTable, Piece
from tfshards.loader.fetching.folder import BlockFolder
from tfshards.loader.fetching.schedule import NEVER, Kept
from tfshards.loader.records.intervals import REMEDY
from tfshards.loader.stored.frames import REMOTE_REMEDY, data_checksum
from tfshards.schemas.digests import masked_crc32c_of_rows
from tfshards.schemas.index import FOOTER_BYTES, HEADER_BYTES
from tfshards.schemas.storage import AnyPath, ChangedError, RemotePath, read_range
from tfshards.schemas.storage.untrusted import Limit, read_whole

NUM_THREADS = 32

_numbers = itertools.count()
_lock = threading.Lock()
_queues: dict[int, queue.PriorityQueue[tuple[int, int, Callable[[], None]]]] = {}


def start(urgency: int, call: Callable[[], None]) -> None:
    """Run ``call``, which raises nothing, in another thread; the lowest ``urgency`` is started first."""
    with _lock:
        # a process that was forked has none of the threads
        waiting = _queues.get(os.getpid())
        if waiting is None:
            waiting = _queues[os.getpid()] = queue.PriorityQueue()
            for index in range(NUM_THREADS):
                name = f"tfshards-fetching-{index}"
                threading.Thread(target=_work, args=(waiting,), name=name, daemon=True).start()
    waiting.put((urgency, next(_numbers), call))


def _work(waiting: queue.PriorityQueue[tuple[int, int, Callable[[], None]]]) -> None:
    while True:
        call = waiting.get()[2]
        call()
        # while it waits, a thread must not keep alive what the call refers to
        del call


_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")


def sound_records(data: bytes, known: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Return how many records are sound at the start of ``data``, and their bytes; all bytes if all are.

    Args:
        known: int64, ascending: offsets in ``data`` at which records must start.
    """
    starts, at, is_sound = [], 0, True
    while is_sound and at + HEADER_BYTES + FOOTER_BYTES <= len(data):
        end = at + HEADER_BYTES + _LENGTH.unpack_from(data, at)[0]
        if end + FOOTER_BYTES > len(data):
            break
        is_sound = data_checksum(data[at + HEADER_BYTES : end]) == _CHECKSUM.unpack_from(data, end)[0]
        starts.append(at)
        at = end + FOOTER_BYTES
    found = np.array(starts, np.int64)
    num_sound = len(starts) - (not is_sound)
    # A wrong length leads to a wrong place, from which nothing is read.
    rows = np.frombuffer(data, np.uint8)[found[:, np.newaxis] + np.arange(HEADER_BYTES)]
    stated = np.ascontiguousarray(rows[:, 8:]).view("<u4")[:, 0]
    wrong = np.flatnonzero(stated != masked_crc32c_of_rows(rows[:, :8]))
    num_sound = min(num_sound, int(wrong[0])) if len(wrong) else num_sound
    # The record before a known offset at which none starts has a length that differs from the index.
    reached = known[known < at]
    missed = reached[found[np.searchsorted(found, reached, side="right") - 1] != reached]
    if len(missed):
        num_sound = min(num_sound, max(0, int(np.searchsorted(found, missed[0])) - 1))
    if num_sound == len(starts):
        return num_sound, at
    return num_sound, int(found[num_sound])


@dataclass(eq=False)
class BlockFile:
    """A file of the folder, or one that is fetched.

    Attributes:
        block: the number of the block; None for a piece that is fetched for one use.
        is_kept: whether it stays after its uses.
        num_users: the planned uses that have not ended.
        path: its path when it is there; None if it could not be fetched, or is damaged.
        is_started: whether it is fetched or checked, or was.
        is_damaged: whether records of a block are damaged, so that each use fetches its own.
        is_removed: whether it counts no longer.
    """

    piece: Piece
    name: str
    block: int | None = None
    is_kept: bool = False
    num_users: int = 0
    path: Future[Path | None] = field(default_factory=Future)
    is_started: bool = False
    is_damaged: bool = False
    is_removed: bool = False


class BlockFiles:
    """The files of one pipeline. Whoever calls a method without an underscore holds ``lock``.

    Attributes:
        blocks: the files of whole blocks that are in the folder, or fetched for it.
    """

    def __init__(
        self, table: BlockTable, paths: Sequence[AnyPath], folder: BlockFolder, *, reserve: int, most: int
    ) -> None:
        """Prepare to fetch."""
        self.lock: threading.RLock = threading.RLock()
        # by shard: the damaged records with the bytes at which they start, and what could not be fetched
        self._damage: dict[int, dict[int, int]] = {}
        self._failures: dict[int, OSError] = {}
        self.kept: Kept = Kept(max(0, folder.share - reserve))
        self.blocks: dict[int, BlockFile] = {}
        self.names: set[str] = set()
        self._table, self._paths, self._folder = table, paths, folder
        self._reserve, self._most = reserve, most
        self._used = 0
        self._numbers = itertools.count()

    def has_room(self, num_bytes: int) -> bool:
        """Return whether a file of this size fits the folder's share."""
        return self._used + num_bytes <= self._folder.share

    def refresh(self) -> None:
        """Keep fewer blocks if other pipelines have begun, or more if some have ended."""
        if self._folder.refresh():
            self._keep_less()

    def reserve_more(self, num_bytes: int, *, urgently: bool) -> None:
        """Keep fewer blocks, because a file of this size that is not kept has no room."""
        while True:
            self._reserve = min(self._reserve + num_bytes, self._most)
            self._keep_less()
            if not urgently or self.has_room(num_bytes) or self._reserve == self._most:
                return

    def keep(self, block: int, next_use: int) -> bool:
        """Note that a block is used, and return whether it is kept."""
        is_kept, evicted = self.kept.use(block, int(self._table.sizes[block]), next_use)
        for each in evicted:
            self._no_longer_keep(each)
        return is_kept

    def adopt(self, next_uses: dict[int, int]) -> None:
        """Keep the blocks of ended pipelines that are used first; they are checked before they are read."""
        self.kept.replan(next_uses)
        for name, num_bytes in self._folder.found.items():
            block = self._table.find(name)
            if block is not None and self.keep(block, next_uses.get(block, NEVER)):
                self.blocks[block] = BlockFile(self._table.block(block), name, block, is_kept=True)
                self.names.add(name)
                self._used += num_bytes
            else:
                self._folder.remove(name)
        self._folder.found.clear()

    def start(self, piece: Piece, block: int | None, urgency: int) -> BlockFile:
        """Fetch a piece, or the block of this number; the lowest ``urgency`` first."""
        name = self._table.name(piece) if block is not None else f"piece-{next(self._numbers)}"
        file = BlockFile(piece, name, block)
        self._used += piece.num_bytes
        if block is not None:
            self.blocks[block] = file
            self.names.add(name)
        self.begin(file, urgency)
        return file

    def begin(self, file: BlockFile, urgency: int) -> None:
        """Fetch a file, or check the one of an ended pipeline."""
        file.is_started = True
        start(urgency, partial(self._fetch, file))

    def release(self, file: BlockFile) -> None:
        """End one use of a file."""
        file.num_users -= 1
        if file.num_users == 0 and not file.is_kept:
            self._discard(file)

    def _keep_less(self) -> None:
        for block in self.kept.shrink(max(0, self._folder.share - self._reserve)):
            self._no_longer_keep(block)

    def _no_longer_keep(self, block: int) -> None:
        file = self.blocks.get(block)
        if file is not None:
            file.is_kept = False
            if file.num_users == 0:
                self._discard(file)

    def _discard(self, file: BlockFile) -> None:
        """Remove a file that nobody uses."""
        if file.block is not None and self.blocks.get(file.block) is file:
            del self.blocks[file.block]
            self.names.discard(file.name)
        if file.is_removed:
            return
        # what is being fetched is removed then
        if file.path.done() or not file.is_started:
            self._remove(file)

    def _remove(self, file: BlockFile) -> None:
        self._used -= file.piece.num_bytes
        file.is_removed = True
        # the same block may have been fetched again
        if file.block is None or file.block not in self.blocks:
            self._folder.remove(file.name)

    def explain(self, number: int) -> str:
        """Return the message about the first fault at the example ``number`` or after it, in its shard."""
        shards = self._table.shards
        shard = int(np.searchsorted(np.cumsum(shards.sizes), number, side="right"))
        record = number - int(shards.bases[shard])
        path = self._paths[shard]
        with self.lock:
            damage, failure = dict(self._damage.get(shard, {})), self._failures.get(shard)
        if damage:
            first = min((each for each in damage if each >= record), default=max(damage))
            remedy = f"; {REMOTE_REMEDY}" if isinstance(path, RemotePath) else REMEDY
            return f"shard {path} is damaged at record {first}, offset {damage[first]}{remedy}"
        if isinstance(failure, ChangedError):
            why = (
                f"was changed after it was opened: it {failure.strerror}; load the dataset again, since the "
                "rest may not belong to what was read"
            )
        elif failure is not None:
            # a file of the cache, or the shard itself
            where = str(failure.filename or path)
            place = "" if where == str(path) else f"{where}: "
            why = (
                f"cannot be read: {place}{failure.strerror or failure}; once that is fixed, the run can be "
                "resumed from its position"
            )
        else:
            why = (
                "cannot be read: its blocks in the cache were removed or damaged while they were read; load "
                "the dataset again"
            )
        return f"shard {path} {why}"

    # In a thread of its own

    def _fetch(self, file: BlockFile) -> None:
        """Fetch a file, and set its path."""
        path: Path | None = None
        try:
            path = self._obtain(file)
        except OSError as error:
            with self.lock:
                self._failures[file.piece.shard] = error
        except BaseException as error:
            file.path.set_exception(error)
            return
        with self.lock:
            if path is None:
                if file.block is not None and self.blocks.get(file.block) is file:
                    del self.blocks[file.block]
                    self.names.discard(file.name)
                    self.kept.drop(file.block)
                self._used -= file.piece.num_bytes
                file.is_removed = True
            elif not file.num_users and not file.is_kept:
                self._remove(file)
            file.path.set_result(path)

    def _obtain(self, file: BlockFile) -> Path | None:
        """Return the path of a file after checking its records; None if a block is damaged."""
        piece, path = file.piece, self._folder.path / file.name
        if file.block is not None and (path.exists() or self._folder.link(file.name, piece.num_bytes)):
            with suppress(OSError):
                data = read_whole(path, Limit("a block", piece.num_bytes))
                if sound_records(data, piece.known)[1] == piece.num_bytes:
                    return path
            self._folder.remove(file.name)
        versions = self._table.shards.versions
        version = versions[piece.shard] or None if versions else None
        # what was damaged on its way is sound the second time
        for _ in range(2):
            data = read_range(self._paths[piece.shard], piece.start, piece.end, version)
            num_sound, sound_bytes = sound_records(data, piece.known)
            if sound_bytes == len(data):
                return self._folder.write(file.name, data)
        if file.block is not None:
            file.is_damaged = True
            return None
        with self.lock:
            damage = self._damage.setdefault(piece.shard, {})
            damage[piece.first + num_sound] = piece.start + sound_bytes
        return self._folder.write(file.name, data[:sound_bytes])
