"""Copy .npy files from object stores into files that can be mapped.

A shard has its rows in random order, so that reading them in place would be a request per row.
"""

from __future__ import annotations

import io
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

from tfshards.prep.sources.arrays.mapped import MappedFile, mapped_fields
from tfshards.prep.sources.arrays.npy import read_header
from tfshards.prep.sources.fetching import stamp_of, unreadable
from tfshards.schemas import InputError
from tfshards.schemas.storage import any_path
from tfshards.schemas.storage.reading import RemoteReader
from tfshards.schemas.storage.remote_path import RemotePath

_COPY_BYTES = 1 << 20


def copied_object_bytes(url: str) -> int:
    """Return the size of the copy of an object.

    Raises:
        InputError: there is no such object.
    """
    try:
        return any_path(url).stat().st_size
    except OSError as error:
        raise unreadable(url, error) from None


def stage_object(path: RemotePath, target: Path, *, preview: bool) -> dict[tuple[str, ...], MappedFile]:
    """Copy an array to ``target``; return it with the name ``()``, or its fields by their names.

    Args:
        path: the .npy file.
        target: the file to write.
        preview: copy only an array with one axis.

    Raises:
        InputError: the object cannot be read, is not an array, or is replaced while it is read.
    """
    try:
        raw = RemoteReader(path)
        with io.BufferedReader(raw) as file:
            size = raw.status.st_size
            header = read_header(file, str(path), size)
            is_copied = not preview or len(header.shape) == 1
            file.seek(0)
            if is_copied:
                copy_blocks(file, target)
            else:
                # a sparse file of the right size, because only the layout of the fields is read
                target.write_bytes(file.read(header.offset))
                os.truncate(target, size)
    except OSError as error:
        raise unreadable(path, error) from None
    identity = f"{size} bytes at {stamp_of(raw.status)}"
    fields = mapped_fields(str(target), header, "", identity=identity, is_copy=True)
    if is_copied:
        return fields
    target.unlink()
    return {names: replace(array, path="") for names, array in fields.items()}


def copy_blocks(source: IO[bytes], target: Path) -> None:
    """Copy a file in blocks.

    Raises:
        InputError: the copy cannot be written.
    """
    with target.open("wb") as file:
        for block in iter(partial(source.read, _COPY_BYTES), b""):
            try:
                file.write(block)
            except OSError as error:
                raise InputError("copy-unwritable", target=target, why=error.strerror) from None
