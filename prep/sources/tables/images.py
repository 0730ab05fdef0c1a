"""Find the image files that a table names, with their sizes and times, and those that it does not name."""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import stat
from collections import Counter
from collections.abc import Sequence
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.boundary import Boundary, outside
from tfshards.prep.sources.keys import to_text
from tfshards.prep.sources.tables.features import TEXT
from tfshards.prep.sources.tables.remote_images import is_url, leaves, location_of, statuses
from tfshards.prep.sources.tables.staging import IMAGE, PATH, SAME, SIZE, STAMP, VALUE
from tfshards.prep.sources.tree_of import tree_of
from tfshards.schemas import InputError
from tfshards.schemas.index import IntArray
from tfshards.schemas.storage import RemotePath

_SHOWN = 3
# Number of rows that are hashed at a time, in which images may be embedded.
_ROWS = 256


def stat_images(root: bytes, rows: pa.Table, images: Sequence[str], *, follow_links: bool) -> pa.Table:
    """Return the rows with the size and modification time of each image; both are -1 for missing files.

    Images that are in the table itself have the time 0. A row whose image is missing there may name a file.

    Raises:
        InputError: a file is outside ``root``.
    """
    is_far = is_url(root)
    inside = Boundary(root, follow_links=follow_links or is_far)
    for name in images:
        sizes: list[int] = []
        stamps: list[int] = []
        remote: dict[int, RemotePath] = {}
        paths = rows[PATH + name].to_pylist()
        lengths = [None] * len(paths)
        if IMAGE + name in rows.column_names:
            lengths = pc.binary_length(rows[IMAGE + name]).to_pylist()
        for path, length in zip(paths, lengths, strict=True):
            if length is not None:
                sizes.append(length)
                stamps.append(0)
                continue
            where = None
            if (is_far or b"://" in path) and path and b"\0" not in path:
                where = location_of(root, path)
            if where is not None:
                if leaves(root, path) and not follow_links:
                    raise outside(root, to_text(path))
                remote[len(sizes)] = where
                sizes.append(0)
                stamps.append(0)
                continue
            full = os.path.join(root, path)
            inside.check(full, to_text(path))
            size, stamp = _stat(full) if path and not is_far else (-1, -1)
            sizes.append(size)
            stamps.append(stamp)
        for number, status in zip(remote, statuses([*remote.values()]), strict=True):
            sizes[number], stamps[number] = status
        rows = rows.append_column(SIZE + name, pa.array(sizes, pa.int64()))
        rows = rows.append_column(STAMP + name, pa.array(stamps, pa.int64()))
    return rows


def combined(rows: pa.Table, images: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Return the size of all images of each row, and one stamp for their times and for the other columns.

    Both have shape ``(num_rows,)`` int64. Without images, stamps are 0.
    """
    sizes = np.zeros(rows.num_rows, dtype=np.int64)
    if not images:
        return sizes, np.zeros_like(sizes)
    for name in images:
        sizes += np.maximum(rows[SIZE + name].to_numpy(), 0)
    # the sum of the sizes does not show the size of each image
    names = [name for name in rows.column_names if name.startswith((VALUE, IMAGE, PATH, SIZE, STAMP))]
    stamps: list[int] = []
    for batch in rows.select(names).to_batches(max_chunksize=_ROWS):
        columns = [_hashable(name, column) for name, column in zip(names, batch.columns, strict=True)]
        stamps += [_hash(repr(row).encode("utf-8", "surrogateescape")) for row in zip(*columns, strict=True)]
    return sizes, np.array(stamps, np.int64)


def _hashable(name: str, column: pa.Array) -> list[object]:
    values: list[object] = column.to_pylist()
    if not name.startswith(IMAGE):
        return values
    return [crc32(value) if isinstance(value, bytes) else None for value in values]


def same_images(root: bytes, rows: pa.Table, images: Sequence[str]) -> pa.Table:
    """Return the rows with the real path of their first image, which is equal for all names of one file.

    The paths are relative to ``root``. There are none if an image is in the table, without a path.
    """
    if not images:
        return rows
    paths = rows[PATH + images[0]].to_pylist()
    if IMAGE + images[0] in rows.column_names:
        named = paths
    else:
        folders: dict[bytes, bytes] = {}
        named = [
            (_real(root, path, folders) if not is_url(path) else path) if path and b"\0" not in path else b""
            for path in paths
        ]
    if not all(named):
        # a row without an image is alone
        named = [name or b"\0%d" % number for number, name in enumerate(named)]
    return rows.append_column(SAME, pa.array(named, TEXT))


def _real(root: bytes, path: bytes, folders: dict[bytes, bytes]) -> bytes:
    """Return the path of a file relative to ``root``, with all links followed.

    ``folders`` caches the relative paths of folders, with a slash at their end, by their paths as given.
    """
    if is_url(root):
        return posixpath.normpath(path)
    folder, _, name = path.rpartition(b"/")
    if path.startswith(b"/") and not folder:
        folder = b"/"
    full = os.path.join(root, path)
    if name in (b"", b".", b"..") or os.path.islink(full):
        return os.path.relpath(os.path.realpath(full), root)
    if folder not in folders:
        above = os.path.join(root, folder or (b"/" if path.startswith(b"/") else b""))
        folders[folder] = os.path.join(os.path.relpath(os.path.realpath(above), root), b"").removeprefix(
            b"./"
        )
    return folders[folder] + name


def unmentioned(root: bytes, rows: pa.Table, images: Sequence[str], *, follow_links: bool) -> list[str]:
    """Return a warning if image files below ``root`` are not in any row."""
    files = [name for name in images if IMAGE + name not in rows.column_names]
    if not files:
        return []
    named = {os.path.normpath(path) for name in files for path in rows[PATH + name].to_pylist()}
    try:
        found = {file.key for file in tree_of(root, follow_links=follow_links).images(Counter())}
    except OSError:
        # other files in the folder need not be readable
        return []
    left = sorted(found - named)
    if not left:
        return []
    shown = ", ".join(repr(to_text(key)) for key in left[:_SHOWN])
    files_are = "image files are" if len(left) > 1 else "image file is"
    return [f"{len(left):,} {files_are} below {os.fsdecode(root)}, but not in any row, such as {shown}"]


def _stat(path: bytes) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return -1, -1
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return -1, -1
        raise InputError("unreadable", path=os.fsdecode(path), why=error.strerror) from None
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else (-1, -1)


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1
