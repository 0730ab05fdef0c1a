"""Versions of files, and writes on the condition that no one else has written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

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
