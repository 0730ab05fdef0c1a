"""The images that a table names: on a disk or in object stores, with their sizes and times."""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import re
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.boundary import Boundary, outside
from tfshards.prep.sources.fetching import stamp_of, unreadable
from tfshards.prep.sources.keys import to_text
from tfshards.prep.sources.remote_tree import RemoteTree, tree_of
from tfshards.prep.sources.tables.features import TEXT
from tfshards.prep.sources.tables.staging import IMAGE, PATH, SAME, SIZE, STAMP, VALUE
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import listed
from tfshards.schemas.index import IntArray
from tfshards.schemas.storage import RemotePath, any_path
from tfshards.schemas.storage.reader import in_flight
from tfshards.schemas.storage.stores import SCHEMES

_STORE_URL = re.compile(f"({'|'.join(SCHEMES)})://".encode(), re.IGNORECASE)
# A page of a listing takes as long as so many requests, which are made at the same time.
_LISTED_PER_IMAGE = 32
_LEAST_LISTED = 2000
# Size and stamp.
_Status: TypeAlias = "tuple[int, int]"
_MISSING: _Status = (-1, -1)


def is_url(path: bytes) -> bool:
    """Return whether a path of a table is the URL of an object."""
    return _STORE_URL.match(path) is not None


def location_of(root: bytes, path: bytes) -> RemotePath | None:
    """Return the object that a path, or a URL, in a table with this root names, or None if it is a file."""
    if path.lower().startswith((b"http://", b"https://")):
        # without the address, which may hold a password
        raise InputError("image-on-web")
    if is_url(path):
        try:
            found = any_path(to_text(path))
        except OptionsError as error:
            raise InputError("image-url", text=str(error)) from None
        assert isinstance(found, RemotePath)
        return found
    folder = _folder(root)
    return None if folder is None else folder.at(path)


@lru_cache(maxsize=8)
def _folder(root: bytes) -> RemoteTree | None:
    folder = tree_of(root, follow_links=True)
    return folder if isinstance(folder, RemoteTree) else None


def leaves(root: bytes, path: bytes) -> bool:
    """Return whether a path, or the URL of an object, leaves the folder to which it is relative."""
    if is_url(path):
        folder, found = _folder(root), location_of(root, path)
        return folder is None or found is None or folder.folder not in found.parents
    return path.startswith(b"/") or posixpath.normpath(path).split(b"/")[0] == b".."


def _statuses(paths: Sequence[RemotePath]) -> list[_Status]:
    """Return the size and the stamp of each object.

    The folder of all of them is listed; but not much further than there are objects to find in it.
    """
    found: dict[tuple[str, str], dict[str, _Status]] = {}
    for path in paths:
        found.setdefault((path.scheme, path.bucket), {})[path.key] = _MISSING
    for (scheme, bucket), wanted in found.items():
        # the folder that holds all of them
        prefix = os.path.commonprefix([min(wanted), max(wanted)])  # noqa: RUF071 -- cut at a slash
        folder = RemotePath(scheme, bucket, prefix.rpartition("/")[0])
        try:
            if not _list_statuses(folder, wanted):
                left = [key for key, status in wanted.items() if status == _MISSING]
                objects = [RemotePath(scheme, bucket, key) for key in left]
                wanted.update(zip(left, in_flight(_remote_status, objects), strict=True))
        except OSError as error:
            raise unreadable(folder, error) from None
    return [found[path.scheme, path.bucket][path.key] for path in paths]


def _list_statuses(folder: RemotePath, wanted: dict[str, _Status]) -> bool:
    """Look for objects in a listing; return whether it came to its end."""
    most = max(_LEAST_LISTED, _LISTED_PER_IMAGE * len(wanted))
    for number, (path, status) in enumerate(folder.walk([])):
        if number == most:
            return False
        if path.key in wanted:
            wanted[path.key] = (status.st_size, stamp_of(status))
    return True


def _remote_status(path: RemotePath) -> _Status:
    try:
        status = path.stat()
    except FileNotFoundError:
        return _MISSING
    return status.st_size, stamp_of(status)


_SHOWN, _SHOWN_CHARACTERS = 3, 100
# Number of rows that are hashed at a time, in which images may be embedded.
_ROWS = 256


def stat_images(root: bytes, rows: pa.Table, images: Sequence[str], *, follow_links: bool) -> pa.Table:
    """Return the rows with the size and modification time of each image; both are -1 for missing files.

    Images that are in the table itself have the time 0. A row whose image is missing there may name a file.
    ``SAME`` is the real path of the first image relative to ``root``, which is equal for all names of one
    file. There are none if an image is in the table, without a path.
    """
    is_far = is_url(root)
    inside = Boundary(root, follow_links=follow_links)
    for name in images:
        paths = rows[PATH + name].to_pylist()
        is_embedded = IMAGE + name in rows.column_names
        lengths = pc.binary_length(rows[IMAGE + name]).to_pylist() if is_embedded else [None] * len(paths)
        found: list[_Status] = []
        same: list[bytes] = []
        remote: dict[int, RemotePath] = {}
        for row, (path, length) in enumerate(zip(paths, lengths, strict=True)):
            status, real = _MISSING, b""
            if length is not None:
                status = (length, 0)
            elif path and b"\0" not in path:
                where = location_of(root, path) if is_far or b"://" in path else None
                if where is not None:
                    if leaves(root, path) and not follow_links:
                        raise outside(root, to_text(path))
                    remote[row], real = where, path if is_url(path) else posixpath.normpath(path)
                else:
                    full = os.path.join(root, path)
                    real = inside.check(full, to_text(path))
                    status = _status(full)
            found.append(status)
            # a row without an image is alone
            same.append((path if is_embedded else real) or b"\0%d" % row)
        for row, status in zip(remote, _statuses([*remote.values()]), strict=True):
            found[row] = status
        sizes, stamps = zip(*found, strict=True)
        rows = rows.append_column(SIZE + name, pa.array(sizes, pa.int64()))
        rows = rows.append_column(STAMP + name, pa.array(stamps, pa.int64()))
        if name == images[0]:
            rows = rows.append_column(SAME, pa.array(same, TEXT))
    return rows


def check_found(rows: pa.Table, images: Mapping[str, str], root: bytes) -> None:
    """Raise InputError if no file of a column of paths exists, which is a wrong root rather than damage."""
    for column, feature in images.items():
        if IMAGE + feature in rows.column_names:
            continue
        first = next(filter(None, rows[PATH + feature].to_pylist()), None)
        if first and pc.max(rows[SIZE + feature]).as_py() < 0:
            text = to_text(first)[:_SHOWN_CHARACTERS]
            raise InputError("column-no-image-exists", column=column, first=text, root=os.fsdecode(root))


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
        for row in zip(*columns, strict=True):
            digest = hashlib.blake2b(repr(row).encode("utf-8", "surrogateescape"), digest_size=8).digest()
            stamps.append(int.from_bytes(digest, "little") >> 1)
    return sizes, np.array(stamps, np.int64)


def _hashable(name: str, column: pa.Array) -> list[object]:
    values: list[object] = column.to_pylist()
    if not name.startswith(IMAGE):
        return values
    return [crc32(value) if isinstance(value, bytes) else None for value in values]


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
    shown = listed([repr(to_text(key)) for key in left], _SHOWN)
    return [f"image files below {os.fsdecode(root)} that are not in any row: {shown}"]


def _status(path: bytes) -> _Status:
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            return _MISSING
        raise InputError("unreadable", path=os.fsdecode(path), why=error.strerror) from None
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else _MISSING
