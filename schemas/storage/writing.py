"""Write and copy files, and end uploads that were left unfinished."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tfshards.schemas.storage.faults import as_os_errors
from tfshards.schemas.storage.listing import s3_errors
from tfshards.schemas.storage.remote_path import AnyPath, RemotePath
from tfshards.schemas.storage.stores import require_obstore, s3_client, store_of
from tfshards.schemas.storage.untrusted import open_regular

# The largest object that S3 copies in one request; see CopyObject in its reference.
MAX_COPIED_BYTES = 5 << 30
_BLOCK = 1 << 20
# Much larger writes make the kernel look for larger free pages, which can cost three times the system time.
_WRITE_BYTES = 1 << 16
# The parts of an upload: S3 takes 10,000 of at least 5 MiB, so that a shard may have 80 GB.
_PART = 8 << 20
_PARTS_IN_FLIGHT = 4


def open_sink(path: AnyPath) -> Sink:
    """Return a new file; on a disk it must not exist yet, and in a store it appears when it is finished."""
    return _LocalSink(path) if isinstance(path, Path) else _Upload(path)


def local_sink(unfinished: Path, path: Path) -> Sink:
    """Return a new file that is renamed to ``path`` when it is finished."""
    return _LocalSink(unfinished, path)


def write_new(path: AnyPath, blocks: Iterable[bytes]) -> None:
    """Write blocks to a file of ``open_sink``, of which an error leaves nothing."""
    sink = open_sink(path)
    try:
        for block in blocks:
            sink.write(block)
        sink.finish()
    except BaseException:
        sink.abandon()
        raise


def link_file(source: AnyPath, target: AnyPath) -> None:
    """Create a hard link to a file, or copy it where that is not possible, as in a store."""
    if isinstance(source, Path) and isinstance(target, Path):
        # some file systems have no hard links
        with suppress(OSError):
            os.link(source, target)
            return
    copy_file(source, target)


def copy_file(source: AnyPath, target: AnyPath) -> None:
    """Copy a file to one that does not exist, or to an object; inside a bucket nothing is transferred."""
    if (
        not isinstance(source, Path)
        and not isinstance(target, Path)
        and (source.scheme, source.bucket) == (target.scheme, target.bucket)
        and source.stat().st_size <= MAX_COPIED_BYTES
    ):
        source.copy_to(target)
        return
    with open_regular(source, buffering=0) as file:
        write_new(target, iter(partial(file.read, _BLOCK), b""))


class Sink(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> None:
        """Write bytes after those that were written before."""

    def finish(self) -> None:
        """Make it a file that survives a power failure."""

    def abandon(self) -> None:
        """Leave nothing of it."""


class _LocalSink:
    def __init__(self, path: Path, final: Path | None = None) -> None:
        self._path, self._final = path, final
        self._file = path.open("xb", buffering=0)

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            # a signal or a nearly full disk can cut a write short
            rest = rest[os.write(self._file.fileno(), rest[:_WRITE_BYTES]) :]

    def finish(self) -> None:
        os.fsync(self._file.fileno())
        self._file.close()
        if self._final is not None:
            self._path.replace(self._final)

    def abandon(self) -> None:
        self._file.close()
        # on a full disk, the file that reports the error needs the space
        with suppress(OSError):
            self._path.unlink()


class _Upload:
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
        self._crc = _crc32c().extend(self._crc, data)
        with as_os_errors(self._path):
            self._num_bytes += self._file.write(data)

    def finish(self) -> None:
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
        # An upload that is not finished never becomes an object; an error makes obstore remove its parts.
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


def abort_uploads(folder: RemotePath, before: datetime | None = None) -> int:
    """Abort the unfinished uploads of objects in a folder, begun before a time, and return their number.

    Only S3 lists them. Azure removes unfinished uploads after a week. In Google's store, and also in S3, a
    lifecycle rule of the bucket can abort them after some days; see docs/storage.md.
    """
    if folder.scheme != "s3":
        return 0
    before = before or datetime.now(timezone.utc)
    with s3_errors("unfinished uploads cannot be removed", str(folder)):
        client = s3_client()
        pages = client.get_paginator("list_multipart_uploads").paginate(
            Bucket=folder.bucket, Prefix=f"{folder.key}/" if folder.key else ""
        )
        found = [
            upload for page in pages for upload in page.get("Uploads", ()) if upload["Initiated"] <= before
        ]
        for upload in found:
            client.abort_multipart_upload(
                Bucket=folder.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
            )
    return len(found)
