"""Open files that somebody else may have written: only regular ones, and whole ones only up to a limit.

A pipe blocks whoever opens it, a device may never end, and a sparse file has terabytes without using a disk.
"""

from __future__ import annotations

import io
import os
import stat
from contextlib import suppress
from typing import BinaryIO, NamedTuple

_PART_BYTES = 1 << 26
_FLAGS = os.O_NONBLOCK | os.O_NOCTTY


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


def open_regular(path: str | bytes | os.PathLike[str], buffering: int = -1) -> BinaryIO:
    """Open a file of a disk; see ``Stored.open_regular``."""
    name = os.fspath(path)
    # some devices react to being opened
    _check_regular(os.stat(name), name)
    return open(name, "rb", buffering=buffering, opener=_opened)


def read_most(path: str | bytes, most_bytes: int) -> tuple[os.stat_result, bytes | None]:
    """Return the status and the content of a file; no content if it has more than ``most_bytes``.

    It is fast for many small files, and does not check that they are regular.
    """
    # os.open makes a third of the system calls of open; O_NONBLOCK, because the file may have become a pipe
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        data = os.read(descriptor, most_bytes)
        while len(data) < most_bytes and (more := os.read(descriptor, most_bytes - len(data))):
            data += more
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return status, data if len(data) == status.st_size else None


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


def _opened(path: str, flags: int) -> int:
    # the file may have become a pipe
    descriptor = os.open(path, flags | _FLAGS)
    try:
        _check_regular(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_regular(status: os.stat_result, path: str | bytes) -> None:
    # of a folder, ``open`` itself reports what it is
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise OSError(None, "is not a regular file", os.fsdecode(path))
