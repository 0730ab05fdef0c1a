"""The staged copy of a table: an Arrow file that workers map, and the keys in it."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from tfshards.prep.sources.keys import LazyKeys
from tfshards.schemas.storage import AnyPath, RemotePath
from tfshards.schemas.storage.untrusted import open_regular

# Columns of the file. Prefixes keep the names of the user's columns apart from these.
KEY, SPLIT, BYTES, SAME = "key", "split", "bytes", "same"
VALUE, PATH, SIZE, STAMP, DROPPED = "value/", "path/", "size/", "stamp/", "dropped/"
# encoded images that are in the table itself
IMAGE = "image/"
# width and height that annotations state of the image of a row
WIDTH, HEIGHT = "width", "height"


def stage_table(table: pa.Table, path: Path) -> None:
    """Write the table into a file that ``mapped_table`` maps."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def mapped_table(path: AnyPath) -> pa.Table:
    """Return a staged table, mapped into memory rather than read; one in a store is fetched once."""
    if isinstance(path, RemotePath):
        return _fetched(path)
    status = os.stat(path)
    return _mapped(str(path), status.st_ino, status.st_mtime_ns)


# Only one table is cached, because a deleted file occupies disk space as long as it is mapped.
@lru_cache(maxsize=1)
def _mapped(path: str, _inode: int, _stamp: int) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(path)).read_all()


@lru_cache(maxsize=1)
def _fetched(path: RemotePath) -> pa.Table:
    with open_regular(path, buffering=0) as file:
        return pa.ipc.open_file(pa.py_buffer(file.read())).read_all()


class ArrowKeys(LazyKeys):
    """A sorted column of keys in a staged file."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        self._column = array
        # as_py is several times slower
        _, offsets, data = array.buffers()
        self._offsets = memoryview(offsets).cast("q")[array.offset :]
        self._data = memoryview(data or b"")

    def __len__(self) -> int:
        return len(self._column)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self[:])

    def at(self, number: int) -> bytes:
        """Return a key by its number."""
        return bytes(self._data[self._offsets[number] : self._offsets[number + 1]])

    def some(self, numbers: slice) -> list[bytes]:
        """Return some of the keys."""
        keys: list[bytes] = self._column[numbers].to_pylist()
        return keys

    def find(self, key: bytes) -> int:
        """Return the index of a key."""
        index = bisect_left(self, key)
        if index == len(self) or self[index] != key:
            raise KeyError(key)
        return index
