"""Copy files between disks and buckets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tfshards.schemas.storage.writing import open_sink

if TYPE_CHECKING:
    from tfshards.schemas.storage.any_path import AnyPath

# The largest object that S3 copies in one request; see CopyObject in its reference.
MAX_COPIED_BYTES = 5 << 30
_BLOCK = 1 << 20


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
        with source.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                sink.write([block])
        sink.finish()
    except BaseException:
        sink.abandon()
        raise
