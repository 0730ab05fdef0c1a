"""Read ranges of files, and know their versions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tfshards.schemas.storage.faults import ChangedError, as_os_errors, too_short
from tfshards.schemas.storage.listing import RemoteStatus, status_of
from tfshards.schemas.storage.remote_path import AnyPath, RemotePath
from tfshards.schemas.storage.untrusted import open_regular

if TYPE_CHECKING:
    from tfshards.schemas.storage.remote_path import AnyPath


def version_of(path: AnyPath) -> str:
    """Return a text that differs after a file was replaced: its ETag, or size, time and number of the file.

    Raises:
        OSError: there is no such file.
    """
    if isinstance(path, Path):
        status = os.stat(path)
        return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
    return path.stat().e_tag


def create(path: AnyPath, data: bytes) -> None:
    """Write a file that must not exist yet.

    Raises:
        FileExistsError: there is one.
        OSError: it cannot be written.
    """
    if isinstance(path, Path):
        with path.open("xb") as file:
            file.write(data)
    else:
        path.write_if(data, None)


def read_range(path: AnyPath, start: int, end: int, version: str | None = None) -> bytes:
    """Return the bytes ``[start, end)`` of a file.

    Args:
        path: the file.
        start: the first byte.
        end: the byte after the last one.
        version: what ``version_of`` returned; only this version is read.

    Raises:
        ChangedError: the file is another version, or is shorter.
        OSError: it cannot be read.
    """
    if isinstance(path, RemotePath):
        return path.read_range(start, end, version)
    with open_regular(path, buffering=0) as file:
        if version is not None and version != version_of(path):
            raise ChangedError(None, "was replaced in the meantime", str(path))
        file.seek(start)
        data = file.read(end - start)
    if len(data) != end - start:
        raise too_short(path, start + len(data), end)
    return data


def read_object(path: RemotePath, most_bytes: int) -> tuple[RemoteStatus, bytes | None]:
    """Return what the store knows about an object, and its content by the same request.

    Args:
        path: the object.
        most_bytes: of a larger object, None is returned instead of the content, which is not fetched.

    Raises:
        OSError: it cannot be read.
    """
    with as_os_errors(path):
        found = path.store.get(path.key)
        status = status_of(found.meta)
        return status, bytes(found.bytes()) if status.st_size <= most_bytes else None


def read_start(path: RemotePath, most_bytes: int) -> tuple[RemoteStatus, bytes]:
    """Return what the store knows about an object, and its first bytes, at most ``most_bytes``.

    Raises:
        OSError: it cannot be read; some stores also refuse to read an empty one.
    """
    with as_os_errors(path):
        found = path.store.get(path.key, options={"range": (0, most_bytes)})
        return status_of(found.meta), bytes(found.bytes())
