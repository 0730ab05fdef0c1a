"""Files that are being written: they get their names when they are complete, and survive a power failure."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tfshards.schemas.storage.faults import as_os_errors
from tfshards.schemas.storage.remote_path import AnyPath, RemotePath
from tfshards.schemas.storage.stores import require_obstore, store_of

# Much larger writes make the kernel look for larger free pages, which can cost three times the system time.
_WRITE_BYTES = 1 << 16
# The parts of an upload: S3 takes 10,000 of at least 5 MiB, so that a shard may have 80 GB.
_PART = 8 << 20
_PARTS_IN_FLIGHT = 4


def new_file(path: AnyPath, unfinished: AnyPath | None = None) -> Sink:
    """Return a file that gets its name, in place of another one, when it is finished.

    ``unfinished`` is a folder on the same file system; by default a hidden name in the folder of the file is
    used. Attempts at the same file, by threads or by hosts that share a disk, do not disturb each other.
    """
    return _LocalSink(unfinished_path(path, unfinished), path) if isinstance(path, Path) else _Upload(path)


def unfinished_path(path: Path, unfinished: AnyPath | None) -> Path:
    """Return a new path for a file on a disk that is about to get its name; see ``new_file``."""
    unique = secrets.token_hex(8)
    if unfinished is None:
        return path.with_name(f".{path.name}.{unique}.tmp")
    return Path(str(unfinished)) / f"{path.name}.{unique}"


class Sink(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> None:
        """Write bytes after those that were written before."""

    def finish(self) -> None:
        """Make it a file that survives a power failure."""

    def abandon(self) -> None:
        """Leave nothing of it."""


class _LocalSink:
    def __init__(self, unfinished: Path, path: Path) -> None:
        self._unfinished, self._path = unfinished, path
        self._file = unfinished.open("xb", buffering=0)

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            # a signal or a nearly full disk can cut a write short
            rest = rest[os.write(self._file.fileno(), rest[:_WRITE_BYTES]) :]

    def finish(self) -> None:
        os.fsync(self._file.fileno())
        self._file.close()
        self._unfinished.replace(self._path)

    def abandon(self) -> None:
        self._file.close()
        # on a full disk, the file that reports the error needs the space
        with suppress(OSError):
            self._unfinished.unlink()


class _Upload:
    def __init__(self, path: RemotePath) -> None:
        self._path = path
        with as_os_errors(path):
            self._file = require_obstore().open_writer(
                store_of(path.scheme, path.bucket, uploads=True),
                path.key,
                buffer_size=_PART,
                max_concurrency=_PARTS_IN_FLIGHT,
            )

    def write(self, data: bytes) -> None:
        with as_os_errors(self._path):
            self._file.write(data)

    def finish(self) -> None:
        with as_os_errors(self._path):
            self._file.close()

    def abandon(self) -> None:
        # an error makes obstore remove the parts
        error = InterruptedError()
        with suppress(OSError), as_os_errors(self._path):
            self._file.__exit__(InterruptedError, error, None)
