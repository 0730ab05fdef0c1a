"""Objects as files that fetch ahead, and requests that are made at the same time."""

from __future__ import annotations

import io
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

from tfshards.schemas.storage.listing import RemoteStatus

Item = TypeVar("Item")
Result = TypeVar("Result")

# Requests of all open files of a process together.
NUM_REQUESTS = 32
# A round trip of 50 ms takes as long as a megabyte at 20 MB/s: smaller requests would mostly wait.
_BLOCK = 1 << 20
_MOST_AHEAD = 16


class RemoteReader(io.RawIOBase):
    """An object as a file; a sequential read fetches more and more ahead."""

    def __init__(self, status: RemoteStatus, read_range: Callable[[int, int], bytes]) -> None:
        """Open a version of an object; ``read_range`` returns bytes ``[start, end)`` of it."""
        self.status = status
        self._read_range = read_range
        self._at = 0
        self._blocks: dict[int, Future[bytes]] = {}
        self._next, self._ahead = 0, 1

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

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 -- any writable buffer
        """Read up to as many bytes as the buffer holds, and return their number; 0 at the end."""
        if self._at >= self.status.st_size:
            return 0
        number, offset = divmod(self._at, _BLOCK)
        data = memoryview(self._block(number))[offset : offset + len(buffer)]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        """Drop what was fetched ahead."""
        for request in self._blocks.values():
            request.cancel()
        self._blocks.clear()
        super().close()

    def _block(self, number: int) -> bytes:
        if number == self._next:
            self._ahead = min(2 * self._ahead, _MOST_AHEAD)
            self._next += 1
        elif number != self._next - 1:
            self._ahead, self._next = 1, number + 1
        last = -(-self.status.st_size // _BLOCK)
        wanted = range(number, min(number + self._ahead, last))
        for gone in self._blocks.keys() - set(wanted):
            self._blocks.pop(gone).cancel()
        for each in wanted:
            if each not in self._blocks:
                end = min((each + 1) * _BLOCK, self.status.st_size)
                self._blocks[each] = in_background(self._read_range, each * _BLOCK, end)
        return self._blocks[number].result()


def in_background(call: Callable[..., Any], *arguments: object) -> Future[Any]:
    """Start a request, of which ``NUM_REQUESTS`` are made at the same time."""
    with _starting:
        requests = _requests(os.getpid())
    return requests.submit(call, *arguments)


def in_flight(
    call: Callable[[Item], Result], items: Iterable[Item], ahead: int = NUM_REQUESTS
) -> Iterator[Result]:
    """Yield the result of a call for each item, in order, while ``ahead`` calls for the next items are made.

    The call must not wait for ``in_background`` itself, as reading an object as a file does: all threads
    could then wait for each other.
    """
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(in_background(call, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


_starting = threading.Lock()


@cache
def _requests(_process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(NUM_REQUESTS, thread_name_prefix="tfshards-storage")
