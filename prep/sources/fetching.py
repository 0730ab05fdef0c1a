"""Read what is far away: many requests at the same time, before the content is needed, in bounded memory."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, TypeVar

from tfshards.prep.sources.base import Outcome
from tfshards.schemas import InputError
from tfshards.schemas.storage import AnyPath, RemotePath, RemoteStatus, is_remote
from tfshards.schemas.storage.reader import in_background

# Bytes that a process holds before they are needed; what finds no room is read when it is needed.
_MOST_AHEAD = 256 << 20

Found = TypeVar("Found")


class FetchedContent(NamedTuple):
    """A file or an object when it was read; ``data`` is None if there are more bytes than were allowed."""

    size: int
    stamp: int
    data: bytes | None


def stamp_of(status: RemoteStatus) -> int:
    """Return a number that changes with an object: of its ETag, which equal objects mostly share."""
    if not status.e_tag:
        return status.st_mtime_ns
    return int.from_bytes(hashlib.blake2b(status.e_tag.encode(), digest_size=8).digest(), "little") >> 1


def read_content(path: bytes | RemotePath, most_bytes: int) -> FetchedContent:
    """Return a file or an object, without its bytes if there are too many, or raise OSError."""
    if isinstance(path, RemotePath):
        found, content = path.get(most_bytes)
        return FetchedContent(found.st_size, stamp_of(found), content)
    # os.open makes a third of the system calls of open, which matters for small files;
    # O_NONBLOCK, because the file may have become a pipe
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        data = os.read(descriptor, most_bytes)
        while len(data) < most_bytes and (more := os.read(descriptor, most_bytes - len(data))):
            data += more
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return FetchedContent(status.st_size, status.st_mtime_ns, data if len(data) == status.st_size else None)


def read_as_listed(path: bytes | RemotePath, size: int, stamp: int, most_bytes: int) -> FetchedContent:
    """Return a file or an object; without its bytes, and unread, if there are more than ``most_bytes``.

    Raises:
        InputError: it cannot be read, or has changed since it was listed with ``size`` and ``stamp``.
    """
    if size > most_bytes:
        return FetchedContent(size, stamp, None)
    try:
        content = read_content(path, size)
    except OSError as error:
        raise unreadable(path, error) from None
    if (content.size, content.stamp) != (size, stamp) or content.data is None:
        raise changed(path)
    return content


def unreadable(path: AnyPath | bytes | str, error: OSError) -> InputError:
    """Return the error for an input that cannot be read."""
    why = error.strerror or error
    if not is_remote(shown := os.fsdecode(path) if isinstance(path, bytes) else str(path)):
        return InputError("unreadable", path=shown, why=why)
    remedy = "" if error.errno in (errno.ENOENT, errno.EACCES) else "; run the same command again to resume"
    return InputError("unreadable-remote", path=path, why=why, remedy=remedy)


def changed(path: AnyPath | bytes) -> InputError:
    """Return the error for an input that was replaced since it was listed."""
    return InputError("changed-file", path=os.fsdecode(path) if isinstance(path, bytes) else path)


class FetchRequest(Generic[Found]):
    """What a function returns: in the background, or, if there is no room for it, when it is asked for."""

    _lock = threading.Lock()
    # bytes of all requests of the process
    _held: ClassVar[int] = 0

    def __init__(self, read: Callable[[], Found], num_bytes: int) -> None:
        self._read = read
        self._num_bytes = num_bytes
        self._ahead: Future[Found | None] = in_background(self._read_ahead)

    def result(self) -> Found:
        """Return what was read, and do not count its bytes any longer."""
        found = self._ahead.result()
        if found is None:
            return self._read()
        self._count(-self._num_bytes)
        return found

    def cancel(self) -> None:
        """Do not read it, or drop what was read."""
        if not self._ahead.cancel():
            self._ahead.add_done_callback(self._drop)

    def _read_ahead(self) -> Found | None:
        if not self._count(self._num_bytes):
            return None
        try:
            return self._read()
        except BaseException:
            self._count(-self._num_bytes)
            raise

    def _drop(self, ahead: Future[Found | None]) -> None:
        if not ahead.exception() and ahead.result() is not None:
            self._count(-self._num_bytes)

    @staticmethod
    def _count(num_bytes: int) -> bool:
        """Count bytes that are held, or return False if there is no room for more."""
        with FetchRequest._lock:
            if num_bytes > 0 and FetchRequest._held + num_bytes > _MOST_AHEAD:
                return False
            FetchRequest._held += num_bytes
            return True


@dataclass(frozen=True)
class StartedRows(Generic[Found]):
    """Rows whose content is being read: what is requested for each, and how it becomes an outcome."""

    requests: Sequence[FetchRequest[Found] | None]
    decode: Callable[[int, Found | None], Outcome]

    def result(self) -> list[Outcome]:
        """Return the outcome of each row, see ``Reader.read``."""
        outcomes: list[Outcome] = []
        try:
            for index, request in enumerate(self.requests):
                outcomes.append(self.decode(index, request.result() if request else None))
        except BaseException:
            # the next build of this process needs the room of those that are left
            for left in self.requests[len(outcomes) + 1 :]:
                if left:
                    left.cancel()
            raise
        return outcomes

    def cancel(self) -> None:
        """Read no more."""
        for request in self.requests:
            if request:
                request.cancel()
