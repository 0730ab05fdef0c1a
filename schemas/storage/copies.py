"""Copy files between disks and buckets."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tfshards.schemas.storage.untrusted import open_regular
from tfshards.schemas.storage.writing import open_sink

if TYPE_CHECKING:
    from tfshards.schemas.storage.remote_path import AnyPath

# The largest object that S3 copies in one request; see CopyObject in its reference.
MAX_COPIED_BYTES = 5 << 30
_BLOCK = 1 << 20


def link_file(source: AnyPath, target: AnyPath) -> None:
    """Create a hard link to a file, or copy it where that is not possible, as in a store.

    Raises:
        OSError: the file cannot be read, or the copy cannot be written.
    """
    if isinstance(source, Path) and isinstance(target, Path):
        # some file systems have no hard links
        with suppress(OSError):
            os.link(source, target)
            return
    copy_file(source, target)


def copy_file(source: AnyPath, target: AnyPath) -> None:
    """Copy a file to one that does not exist, or to an object; inside a bucket nothing is transferred.

    Raises:
        OSError: the file cannot be read, or the copy cannot be written.
    """
    if (
        not isinstance(source, Path)
        and not isinstance(target, Path)
        and (source.scheme, source.bucket) == (target.scheme, target.bucket)
        and source.stat().st_size <= MAX_COPIED_BYTES
    ):
        source.copy_to(target)
        return
    sink = open_sink(target)
    try:
        with open_regular(source, buffering=0) as file:
            while block := file.read(_BLOCK):
                sink.write([block])
        sink.finish()
    except BaseException:
        sink.abandon()
        raise
