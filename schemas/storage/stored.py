"""What is done to files and folders, so that nobody asks whether they are on a disk or in a store.

On a disk a file gets its name when it is complete and flushed: it is
written under another name on the same file system, mostly in a folder of unfinished files, and renamed. An
object appears when its upload ends.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import BinaryIO, ClassVar, NamedTuple, Protocol

from tfshards.schemas.compression import MAX_RATIO, unpacked
from tfshards.schemas.digests import HASH, NUM_LAST_BYTES, digest_of
from tfshards.schemas.storage.reader import Item, RemoteStatus, Result, Status, in_flight
from tfshards.schemas.storage.stores import ChangedError

# Larger blocks no longer fit the caches of the cores, and are slower.
_BLOCK = 1 << 20
_PART_BYTES = 1 << 26


class Limit(NamedTuple):
    """The size up to which files of one kind, named with an article, are read into memory."""

    kind: str
    most_bytes: int

    def check(self, num_bytes: int, path: object) -> None:
        """Raise OSError if a file has more bytes."""
        if num_bytes > self.most_bytes:
            fault = f"has {num_bytes} bytes; {self.kind} has at most {self.most_bytes}"
            raise OSError(None, fault, str(path))


# The limits of docs/rules.md: of what grows with the numbers of shards, classes and options ...
METADATA = Limit("a manifest or a file of metadata", 1 << 28)
# The parser of YAML reads about 100 KB per second.
OPTIONS = Limit("a file of options", 1 << 20)
# ... and of what grows with the number of examples, or is of an unfinished build.
LISTS = Limit("a list of examples", 1 << 32)


class Sink(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> None:
        """Write bytes after those that were written before."""

    def finish(self) -> None:
        """Make it a file that survives a power failure."""

    def abandon(self) -> None:
        """Leave nothing of it."""


class Stored(ABC):
    """What is done alike to files on disks and to objects; ``LocalPath`` says what the other methods do.

    Attributes:
        is_far: whether each operation is a request, which takes a round trip: many are made at the same time,
            and files are neither mapped, renamed nor locked.
    """

    is_far: ClassVar[bool]

    @property
    @abstractmethod
    def parent(self) -> Stored: ...
    @abstractmethod
    def __truediv__(self, other: str) -> Stored: ...
    @abstractmethod
    def stat(self) -> Status: ...
    @abstractmethod
    def real_name(self) -> str: ...
    @abstractmethod
    def open_regular(self, buffering: int = -1) -> BinaryIO: ...
    @abstractmethod
    def get(self, most_bytes: int) -> tuple[Status, bytes | None]: ...
    @abstractmethod
    def read_range(self, start: int, end: int, version: str | None = None) -> bytes | memoryview: ...
    @abstractmethod
    def new_file(self, unfinished: Stored | None = None) -> Sink: ...
    @abstractmethod
    def unlink(self, missing_ok: bool = False) -> None: ...
    @abstractmethod
    def sync(self, *inner: str) -> None: ...
    @abstractmethod
    def files_below(self) -> Iterator[tuple[Stored, Status]]: ...

    def is_inside(self, folder: Stored) -> bool:
        """Return whether it is a folder or below it, also by links."""
        inside, real = self.real_name(), folder.real_name()
        return inside == real or inside.startswith(os.path.join(real, ""))

    def open_unpacked(self, compression: str, buffering: int = -1) -> tuple[BinaryIO, int]:
        """Open a file for reading uncompressed bytes, and return it with the most bytes that it can hold."""
        file = self.open_regular(buffering)
        num_bytes = size_of(file)
        if compression == "none":
            return file, num_bytes
        return unpacked(file), num_bytes * MAX_RATIO

    def read_whole(self, limit: Limit) -> bytes:
        """Return the content of a regular file, or of an object by one request, which is within a limit."""
        status, data = self.get(limit.most_bytes)
        limit.check(status.st_size, self)
        if data is None:
            raise ChangedError(None, "has changed while it was read", str(self))
        return data

    def read_once(self, tick: Callable[[int], object] | None = None) -> tuple[int, str, str]:
        """Return the size, the digest in the form of the manifest, and the last bytes in hex.

        ``tick`` is called with the number of bytes of each block after it was read.
        """
        digest = HASH()
        block = memoryview(bytearray(_BLOCK))
        size, last = 0, b""
        with self.open_regular(buffering=0) as file:
            while num_bytes := file.readinto(block):  # type: ignore[attr-defined]
                digest.update(block[:num_bytes])
                size += num_bytes
                last = (last + block[:num_bytes][-NUM_LAST_BYTES:])[-NUM_LAST_BYTES:]
                if tick:
                    tick(num_bytes)
        return size, digest_of(digest), last.hex()

    def digest(self, tick: Callable[[int], object] | None = None) -> str:
        """Return the digest of a file, in the form of the manifest; see ``read_once``."""
        return self.read_once(tick)[1]

    def write(self, blocks: Iterable[bytes], unfinished: Stored | None = None) -> None:
        """Write blocks to a file of ``new_file``; an error, also of the iterable, leaves the old file."""
        sink = self.new_file(unfinished)
        try:
            for block in blocks:
                sink.write(block)
            sink.finish()
        except BaseException:
            sink.abandon()
            raise
        if unfinished is None:
            self.parent.sync()

    def version(self) -> RemoteStatus | None:
        """Return the version for ``replace_if``, or None if there is no such file.

        Ask for it before the content is read: then a newer one is not replaced.
        """
        with suppress(FileNotFoundError):
            status = self.stat()
            if isinstance(status, RemoteStatus):
                return status
            return RemoteStatus(status.st_size, status.st_mtime_ns, "", "")
        return None

    def is_as_written(self, digest: str, e_tag: str) -> bool:
        """Return whether a file has a digest, or an object the ETag that it had after it was written.

        Reading an object again would take as long as writing it, and it cannot change in part.
        """
        status = self.version()
        return status is not None and (status.e_tag == e_tag if e_tag else self.digest() == digest)

    def delete_files(self, names: Iterable[str]) -> None:
        """Remove files of a folder, given by their paths in it; missing ones are no error."""
        self.each(lambda name: (self / name).unlink(missing_ok=True), names)

    def each(self, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Return the result of a call for each item; to a store, many requests are made at the same time."""
        return [*(in_flight(call, items) if self.is_far else map(call, items))]

    def sizes_below(self) -> dict[str, int]:
        """Return the size of each file of ``files_below``, by its path in the folder."""
        start = len(str(self / "x")) - 1
        return {str(path)[start:]: status.st_size for path, status in self.files_below()}


def size_of(file: BinaryIO) -> int:
    """Return the size of a file that was just opened."""
    with suppress(io.UnsupportedOperation):
        return os.fstat(file.fileno()).st_size
    num_bytes = file.seek(0, os.SEEK_END)
    file.seek(0)
    return num_bytes


def read_gradually(file: BinaryIO, num_bytes: int) -> bytes:
    """Return the next bytes of a file, or all that are left, in memory that grows with what is read."""
    if num_bytes <= _PART_BYTES:
        return file.read(num_bytes)
    found = io.BytesIO()
    while part := file.read(min(num_bytes - found.tell(), _PART_BYTES)):
        found.write(part)
    # no copy
    return found.getvalue()
