"""What a store knows about an object; objects as files that fetch ahead, and requests at the same time."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# Requests of all open files of a process together.
NUM_REQUESTS = 32
# A round trip of 50 ms takes as long as a megabyte at 20 MB/s: smaller requests would mostly wait.
_BLOCK = 1 << 20
_MOST_AHEAD = 16
# Bytes of results that one iterator holds before they are needed; several are read at the same time.
_MOST_BYTES_AHEAD = 16 << 20


class RemoteStatus(NamedTuple):
    """What a store knows about an object; many stores know the time of writing in whole seconds only."""

    st_size: int
    st_mtime_ns: int
    e_tag: str
    version: str


Status: TypeAlias = "RemoteStatus | os.stat_result"


def status_of(meta: Any) -> RemoteStatus:  # noqa: ANN401 -- obstore's ObjectMeta, a dict
    """Return the status in the form that obstore has."""
    modified, e_tag = meta["last_modified"], meta["e_tag"] or ""
    nanoseconds = int(modified.timestamp()) * 1_000_000_000 + modified.microsecond * 1000
    # Azure's listings leave out the quotation marks, without which no condition matches.
    quoted = f'"{e_tag}"' if e_tag and '"' not in e_tag else e_tag
    return RemoteStatus(meta["size"], nanoseconds, quoted, meta["version"] or "")


def stamp_of(status: Status) -> int:
    """Return a number that changes with a file: its time, or of an object's ETag, which copies share."""
    if not isinstance(status, RemoteStatus) or not status.e_tag:
        return status.st_mtime_ns
    return int.from_bytes(hashlib.blake2b(status.e_tag.encode(), digest_size=8).digest(), "little") >> 1


class RemoteReader(io.RawIOBase):
    """An object as a file; a sequential read fetches more and more ahead."""

    def __init__(self, status: RemoteStatus, read_range: Callable[[int, int], memoryview]) -> None:
        """Open a version of an object; ``read_range`` returns bytes ``[start, end)`` of it."""
        self.status = status
        self._read_range = read_range
        self._at = self._start = 0
        self._block = memoryview(b"")
        self._next: Iterator[memoryview] = iter(())

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset, and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.status.st_size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 -- any writable buffer
        """Read up to as many bytes as the buffer holds, and return their number; 0 at the end."""
        if self._at >= self.status.st_size:
            return 0
        start = self._at - self._at % _BLOCK
        if start != self._start or not self._block:
            if start != self._start + _BLOCK or not self._block:
                starts = range(start, self.status.st_size, _BLOCK)
                self._next = in_flight(self._fetch, starts, _MOST_AHEAD, at_first=0)
            # after an error, the next read requests it again
            self._block = memoryview(b"")
            self._block, self._start = next(self._next), start
        data = self._block[self._at - start :][: len(buffer)]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _fetch(self, start: int) -> memoryview:
        return self._read_range(start, min(start + _BLOCK, self.status.st_size))


def in_flight(
    call: Callable[[Item], Result],
    items: Iterable[Item],
    ahead: int = NUM_REQUESTS,
    at_first: int | None = None,
    num_bytes: Callable[[Item], int] | None = None,
) -> Iterator[Result]:
    """Yield the result of a call for each item, in order, while ``ahead`` calls for the next items are made.

    With ``at_first`` there are fewer in the beginning, and twice as many after each result. With
    ``num_bytes``, the size of each result, those of the next items have at most 16 MiB, but always one is
    requested. The call must not itself wait for calls in flight, as reading an object as a file does: all
    threads could then wait for each other.
    """
    with _starting:
        requests = _requests(os.getpid())
    waiting: deque[tuple[Future[Result], int]] = deque()
    bound = ahead if at_first is None else at_first
    try:
        for item in items:
            size = num_bytes(item) if num_bytes else 0
            while waiting and size + sum(each for _, each in waiting) > _MOST_BYTES_AHEAD:
                yield waiting.popleft()[0].result()
            waiting.append((requests.submit(call, item), size))
            while len(waiting) > bound:
                yield waiting.popleft()[0].result()
                bound = min(max(2 * bound, 1), ahead)
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        for future, _ in waiting:
            future.cancel()


_starting = threading.Lock()


@cache
def _requests(_process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(NUM_REQUESTS, thread_name_prefix="tfshards-storage")
