"""The blocks of a pipeline: fetched by threads, checked, held in memory, and kept in files of the cache."""

from __future__ import annotations

import itertools
import os
import queue
import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from tfshards.loader.fetching.blocks import BlockTable, Piece
from tfshards.loader.fetching.folder import BlockFolder
from tfshards.loader.fetching.schedule import NEVER, Kept
from tfshards.loader.stored.frames import REMEDY
from tfshards.schemas.frames import header_of, masked_crc32c_of
from tfshards.schemas.index import FOOTER_BYTES, FRAME_OVERHEAD, HEADER_BYTES
from tfshards.schemas.storage import AnyPath, ChangedError, view_range
from tfshards.schemas.storage.untrusted import Limit, read_whole

# A request that is answered after 50 ms brings 1 MiB: 64 of them are 1.3 GB/s.
NUM_THREADS = 64

# How long a block waits for those that it replaces in the cache.
_SECONDS_TO_READ = 0.1

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


def sound_records(data: bytes | memoryview, known: npt.NDArray[np.int64]) -> tuple[list[bytes], int]:
    """Return the sound records at the start of ``data``, and their bytes in it; all bytes if all are sound.

    Args:
        data: the records with their frames.
        known: int64, ascending: offsets in ``data`` at which records must start.
    """
    view = memoryview(data)
    flat = np.frombuffer(view, np.uint8)
    edges = _edges(view, flat, known)
    starts, ends = edges[:-1], edges[1:]
    rows = zip((starts + HEADER_BYTES).tolist(), (ends - FOOTER_BYTES).tolist(), strict=True)
    records = [bytes(view[low:high]) for low, high in rows]
    headers = flat[starts[:, np.newaxis] + np.arange(HEADER_BYTES)]
    footers = flat[(ends - FOOTER_BYTES)[:, np.newaxis] + np.arange(FOOTER_BYTES)]
    # A wrong length leads to a wrong place, from which nothing is read.
    right = b"".join(header_of(size) for size in (ends - starts - FRAME_OVERHEAD).tolist())
    wrong = (headers != np.frombuffer(right, np.uint8).reshape(headers.shape)).any(axis=1)
    wrong |= footers.view("<u4")[:, 0] != masked_crc32c_of(records)
    faults = np.flatnonzero(wrong)
    num_sound = int(faults[0]) if len(faults) else len(records)
    # The record before a known offset at which none starts has a length that differs from the index.
    reached = known[known < edges[-1]]
    missed = reached[edges[np.searchsorted(edges, reached, side="right") - 1] != reached]
    if len(missed):
        num_sound = min(num_sound, max(0, int(np.searchsorted(starts, missed[0])) - 1))
    return records[:num_sound], int(edges[num_sound])


def _edges(
    view: memoryview, flat: npt.NDArray[np.uint8], known: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return where records start according to their lengths, and where the last whole one ends."""
    # Records of one size, and those whose offsets are all known, need no loop.
    size = FRAME_OVERHEAD + _LENGTH.unpack_from(view)[0] if len(view) >= FRAME_OVERHEAD else 0
    for edges in (np.append(known, len(view)), np.arange(0, len(view) + 1, size or 1)):
        sizes = np.diff(edges)
        if size and edges[-1] == len(view) and (sizes >= FRAME_OVERHEAD).all():
            lengths = flat[edges[:-1, np.newaxis] + np.arange(_LENGTH.size)].view("<u8")[:, 0]
            if (lengths == sizes - FRAME_OVERHEAD).all():
                return edges
    found, at = [0], 0
    while at + FRAME_OVERHEAD <= len(view):
        at += FRAME_OVERHEAD + _LENGTH.unpack_from(view, at)[0]
        if at > len(view):
            break
        found.append(at)
    return np.array(found, np.int64)


@dataclass(eq=False)
class Fetch:
    """A piece in memory, or on its way there.

    Attributes:
        block: the number of the block; None for a piece that is fetched for one use.
        num_users: the planned uses that have not ended.
        records: its records up to the first damaged one; None if it could not be fetched, or ``is_damaged``.
        is_loaded: whether files of the cache are no longer read or written for it.
        is_failed: whether it has no records.
        is_damaged: whether that is because some of a block are damaged, so that each use fetches its own.
    """

    piece: Piece
    block: int | None = None
    num_users: int = 0
    records: Future[list[bytes] | None] = field(default_factory=Future)
    is_loaded: bool = False
    is_failed: bool = False
    is_damaged: bool = False


class BlockFiles:
    """What one pipeline has fetched. Whoever calls a method without an underscore holds ``lock``.

    Attributes:
        fetches: the blocks in memory, by number.
        names: the names of the blocks in the folder.
    """

    def __init__(self, table: BlockTable, paths: Sequence[AnyPath], folder: BlockFolder | None) -> None:
        """Prepare to fetch; without a folder, nothing is kept."""
        self.lock: threading.RLock = threading.RLock()
        # by shard: the damaged records with the bytes at which they start, and what could not be fetched
        self._damage: dict[int, dict[int, int]] = {}
        self._failures: dict[int, OSError] = {}
        self.kept: Kept = Kept(0 if folder is None else folder.share)
        self.fetches: dict[int, Fetch] = {}
        self.names: set[str] = set()
        self._table, self._paths, self._folder = table, paths, folder
        # the blocks in the folder, and those that are being written
        self._stored: set[int] = set()
        self._used = 0
        self._removed = threading.Condition(self.lock)

    def refresh(self) -> None:
        """Keep fewer blocks if other pipelines have begun, or more if some have ended."""
        if self._folder is not None and self._folder.refresh():
            for block in self.kept.shrink(self._folder.share):
                self._no_longer_keep(block)

    def keep(self, block: int, next_use: int) -> bool:
        """Note that a block is used, and return whether it is kept."""
        is_kept, evicted = self.kept.use(block, int(self._table.sizes[block]), next_use)
        for each in evicted:
            self._no_longer_keep(each)
        return is_kept

    def adopt(self, next_uses: dict[int, int]) -> None:
        """Keep the blocks of ended pipelines that are used first; they are checked before they are read."""
        self.kept.replan(next_uses)
        if self._folder is None:
            return
        for name in self._folder.found:
            block = self._table.find(name)
            if block is not None and self.keep(block, next_uses.get(block, NEVER)):
                self._count(block)
            else:
                self._folder.remove(name)
        self._folder.found.clear()

    def start(self, piece: Piece, block: int | None, urgency: int) -> Fetch:
        """Fetch a piece, which is the block of this number; the lowest ``urgency`` first."""
        fetch = Fetch(piece, block)
        if block is not None:
            self.fetches[block] = fetch
        start(urgency, partial(self._fetch, fetch))
        return fetch

    def release(self, fetch: Fetch) -> None:
        """End one use of a piece; after the last one it leaves the memory."""
        fetch.num_users -= 1
        # a block that has failed is gone, and may be fetched again
        if not fetch.num_users and fetch.is_loaded and not fetch.is_failed and fetch.block is not None:
            del self.fetches[fetch.block]

    def _no_longer_keep(self, block: int) -> None:
        fetch = self.fetches.get(block)
        # otherwise it is removed when it has been read
        if block in self._stored and (fetch is None or fetch.is_loaded):
            self._remove(block)

    def _count(self, block: int) -> None:
        self._stored.add(block)
        self.names.add(self._name(block))
        self._used += int(self._table.sizes[block])

    def _remove(self, block: int) -> None:
        assert self._folder is not None
        self._stored.remove(block)
        self.names.remove(self._name(block))
        self._used -= int(self._table.sizes[block])
        self._folder.remove(self._name(block))
        self._removed.notify_all()

    def _name(self, block: int) -> str:
        return self._table.name(self._table.block(block))

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
            return f"shard {path} is damaged at record {first}, offset {damage[first]}; {REMEDY}"
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
            why = "has fewer records than its index; load the dataset again"
        return f"shard {path} {why}"

    # In a thread of its own

    def _fetch(self, fetch: Fetch) -> None:
        """Fetch a piece, and set its records."""
        records: list[bytes] | None = None
        error: BaseException | None = None
        try:
            records = self._obtain(fetch)
        except OSError as fault:
            with self.lock:
                self._failures[fetch.piece.shard] = fault
        except BaseException as fault:
            error = fault
        with self.lock:
            fetch.is_loaded, fetch.is_failed = True, records is None
            if fetch.block is not None:
                self._settle(fetch, fetch.block)
        if error is None:
            fetch.records.set_result(records)
        else:
            fetch.records.set_exception(error)

    def _settle(self, fetch: Fetch, block: int) -> None:
        if fetch.is_failed:
            self.kept.drop(block)
        if block in self._stored and block not in self.kept:
            self._remove(block)
        if fetch.is_failed or not fetch.num_users:
            del self.fetches[block]

    def _obtain(self, fetch: Fetch) -> list[bytes] | None:
        """Return the records of a piece after checking them; None if a block is damaged."""
        piece, block = fetch.piece, fetch.block
        if block is not None and self._is_stored(block, piece):
            records, num_bytes = self._read_stored(block, piece)
            if num_bytes == piece.num_bytes:
                return records
            with self.lock:
                self._remove(block)
        versions = self._table.shards.versions
        version = versions[piece.shard] or None if versions else None
        # what was damaged on its way is sound the second time
        for _ in range(2):
            data = view_range(self._paths[piece.shard], piece.start, piece.end, version)
            records, num_bytes = sound_records(data, piece.known)
            if num_bytes == piece.num_bytes:
                if block is not None:
                    self._store(block, data)
                return records
        if block is not None:
            fetch.is_damaged = True
            return None
        with self.lock:
            damage = self._damage.setdefault(piece.shard, {})
            damage[piece.first + len(records)] = piece.start + num_bytes
        return records

    def _read_stored(self, block: int, piece: Piece) -> tuple[list[bytes], int]:
        assert self._folder is not None
        try:
            data = read_whole(self._folder.path / self._name(block), Limit("a block", piece.num_bytes))
        except OSError:
            return [], 0
        return sound_records(data, piece.known)

    def _is_stored(self, block: int, piece: Piece) -> bool:
        """Return whether a block is in the folder, also after taking the one of another pipeline."""
        with self.lock:
            if block in self._stored or not self._reserve(block):
                return block in self._stored
        assert self._folder is not None
        is_linked = self._folder.link(self._name(block), piece.num_bytes)
        if not is_linked:
            with self.lock:
                self._remove(block)
        return is_linked

    def _store(self, block: int, data: bytes | memoryview) -> None:
        assert self._folder is not None
        with self.lock:
            # the blocks that it replaces are removed as soon as they have been read
            if not self._removed.wait_for(lambda: self._fits(block), _SECONDS_TO_READ):
                self.kept.drop(block)
            if not self._reserve(block):
                return
        try:
            self._folder.write(self._name(block), data)
        except BaseException:
            with self.lock:
                self._remove(block)
            raise

    def _reserve(self, block: int) -> bool:
        """Count a block as one of the folder, if it is kept and fits."""
        if block not in self.kept or not self._fits(block):
            return False
        self._count(block)
        return True

    def _fits(self, block: int) -> bool:
        assert self._folder is not None
        return self._used + int(self._table.sizes[block]) <= self._folder.share
