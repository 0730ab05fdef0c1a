"""Files that are being written: they get their names when they are complete, and survive a power failure."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from tfshards.schemas.storage.faults import as_os_errors
from tfshards.schemas.storage.remote_path import RemotePath
from tfshards.schemas.storage.stores import require_obstore, store_of

# Much larger writes make the kernel look for larger free pages, which can cost three times the system time.
_WRITE_BYTES = 1 << 16
# The parts of an upload: S3 takes 10,000 of at least 5 MiB, so that a shard may have 80 GB.
_PART = 8 << 20
_PARTS_IN_FLIGHT = 4


class Sink(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> None:
        """Write bytes after those that were written before."""

    def finish(self) -> None:
        """Make it a file that survives a power failure."""

    def abandon(self) -> None:
        """Leave nothing of it."""


class LocalSink:
    """A file on a disk, which is renamed when it is finished."""

    def __init__(self, unfinished: Path, path: Path) -> None:
        self._unfinished, self._path = unfinished, path
        self._file = unfinished.open("xb", buffering=0)

    def write(self, data: bytes) -> None:
        """See ``Sink``."""
        rest = memoryview(data)
        while rest:
            # a signal or a nearly full disk can cut a write short
            rest = rest[os.write(self._file.fileno(), rest[:_WRITE_BYTES]) :]

    def finish(self) -> None:
        """See ``Sink``; the caller flushes the folder."""
        os.fsync(self._file.fileno())
        self._file.close()
        self._unfinished.replace(self._path)

    def abandon(self) -> None:
        """See ``Sink``."""
        self._file.close()
        # on a full disk, the file that reports the error needs the space
        with suppress(OSError):
            self._unfinished.unlink()


class Upload:
    """An object, which appears when it is finished."""

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        self._num_bytes = self._crc = 0
        with as_os_errors(path):
            self._file = require_obstore().open_writer(
                store_of(path.scheme, path.bucket, uploads=True),
                path.key,
                buffer_size=_PART,
                max_concurrency=_PARTS_IN_FLIGHT,
            )

    def write(self, data: bytes) -> None:
        """See ``Sink``."""
        self._crc = _crc32c().extend(self._crc, data)
        with as_os_errors(self._path):
            self._num_bytes += self._file.write(data)

    def finish(self) -> None:
        """See ``Sink``."""
        try:
            with as_os_errors(self._path):
                self._file.close()
        except OSError:
            # The answer to the last request may be lost, and a second one finds no upload.
            with suppress(OSError):
                if self._is_stored():
                    return
            raise

    def abandon(self) -> None:
        """See ``Sink``; an error makes obstore remove the parts."""
        error = InterruptedError()
        with suppress(OSError), as_os_errors(self._path):
            self._file.__exit__(InterruptedError, error, None)

    def _is_stored(self) -> bool:
        """Return whether the object has the content that was written, and is not an older one."""
        if self._path.stat().st_size != self._num_bytes:
            return False
        crc = 0
        with self._path.open() as file:
            while some := file.read(_PART):
                crc = _crc32c().extend(crc, some)
        return crc == self._crc


def _crc32c() -> Any:  # noqa: ANN401 -- a module
    import google_crc32c

    return google_crc32c
