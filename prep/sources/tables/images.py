"""The images that a table names: on a disk or in object stores, with their sizes and times."""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import re
import stat
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import lru_cache
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.imaging.formats import HEAD_BYTES, SUFFIXES
from tfshards.prep.sources.boundary import Boundary, outside
from tfshards.prep.sources.fetching import stamp_of, unreadable
from tfshards.prep.sources.keys import to_text
from tfshards.prep.sources.remote_tree import tree_of
from tfshards.prep.sources.tables.features import TEXT
from tfshards.prep.sources.tables.staging import IMAGE, PATH, SAME, SIZE, STAMP, VALUE
from tfshards.prep.sources.tree import starts_like_an_image, suffix_of
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.index import IntArray
from tfshards.schemas.storage import RemotePath, RemoteStatus, any_path
from tfshards.schemas.storage.reader import in_background

_STORE_URL = re.compile(rb"(s3|gs|az)://", re.IGNORECASE)
_WEB_URL = re.compile(rb"https?://", re.IGNORECASE)
# A page of a listing takes as long as so many requests, which are made at the same time.
_LISTED_PER_IMAGE = 32
_LEAST_LISTED = 2000
_WAITING = 128


def is_url(path: bytes) -> bool:
    """Return whether a path of a table is the URL of an object."""
    return _STORE_URL.match(path) is not None


def location_of(root: bytes, path: bytes) -> RemotePath | None:
    """Return the object of an image, or None if it is a file of this machine.

    Args:
        root: folder to which paths are relative, or its URL.
        path: the path, as the table has it.

    Raises:
        InputError: it is a URL that cannot be one of an object.
    """
    if _WEB_URL.match(path):
        shown = to_text(_shown(path))
        raise InputError("image-on-web", shown=shown)
    if _STORE_URL.match(path):
        try:
            found = any_path(to_text(path))
        except OptionsError as error:
            raise InputError("image-url", text=str(error)) from None
        assert isinstance(found, RemotePath)
        return found
    folder = _folder(root)
    if folder is None:
        return None
    key = posixpath.normpath(f"/{folder.key}/{to_text(path)}").strip("/")
    return RemotePath(folder.scheme, folder.bucket, key)


@lru_cache(maxsize=8)
def _folder(root: bytes) -> RemotePath | None:
    found = any_path(to_text(root)) if is_url(root) else None
    return found if isinstance(found, RemotePath) else None


def leaves(root: bytes, path: bytes) -> bool:
    """Return whether a path, or the URL of an object, leaves the folder to which it is relative."""
    if is_url(path):
        folder, found = _folder(root), location_of(root, path)
        return folder is None or folder not in (found.parents if found else ())
    return path.startswith(b"/") or posixpath.normpath(path).split(b"/")[0] == b".."


def statuses(paths: Sequence[RemotePath]) -> list[tuple[int, int]]:
    """Return the size and the stamp of each object; both are -1 for missing ones.

    The folder of all of them is listed; but not much further than there are objects to find in it.

    Raises:
        InputError: the store does not allow it.
    """
    found: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
    for path in paths:
        found.setdefault((path.scheme, path.bucket), {})[path.key] = (-1, -1)
    for (scheme, bucket), wanted in found.items():
        # the folder that holds all of them
        prefix = os.path.commonprefix([min(wanted), max(wanted)])  # noqa: RUF071 -- cut at a slash
        folder = RemotePath(scheme, bucket, prefix.rpartition("/")[0])
        try:
            if not _listed(folder, wanted):
                _asked_for(folder, wanted)
        except OSError as error:
            raise unreadable(folder, error) from None
    return [found[path.scheme, path.bucket][path.key] for path in paths]


def _listed(folder: RemotePath, wanted: dict[str, tuple[int, int]]) -> bool:
    """Look for objects in a listing; return whether it came to its end."""
    most = max(_LEAST_LISTED, _LISTED_PER_IMAGE * len(wanted))
    for number, (path, status) in enumerate(folder.walk([])):
        if number == most:
            return False
        if path.key in wanted:
            wanted[path.key] = (status.st_size, stamp_of(status))
    return True


def _asked_for(folder: RemotePath, wanted: dict[str, tuple[int, int]]) -> None:
    """Ask for each object that is not found yet, many at the same time."""
    waiting: deque[tuple[str, Future[RemoteStatus]]] = deque()

    def finish() -> None:
        key, future = waiting.popleft()
        try:
            status = future.result()
        except FileNotFoundError:
            return
        wanted[key] = (status.st_size, stamp_of(status))

    for key in [key for key, (size, _) in wanted.items() if size < 0]:
        path = RemotePath(folder.scheme, folder.bucket, key)
        waiting.append((key, in_background(path.stat)))
        if len(waiting) > _WAITING:
            finish()
    while waiting:
        finish()


def are_images(root: bytes, values: Sequence[bytes]) -> list[bool]:
    """Return for each value whether it is the path of an image in a folder of objects."""
    futures = [in_background(_is_image, root, value) for value in values]
    return [future.result() for future in futures]


def _is_image(root: bytes, value: bytes) -> bool:
    # keys have at most 1024 bytes, and no control characters
    if not value or is_url(value) or leaves(root, value) or len(value) > 1024 or min(value) < 32:
        return False
    path = location_of(root, value)
    assert isinstance(path, RemotePath)
    suffix = suffix_of(value.rpartition(b"/")[2])
    try:
        if suffix in SUFFIXES:
            return path.is_file()
        return starts_like_an_image(path.get_start(HEAD_BYTES)[1], suffix)
    except (OSError, UnicodeError):
        return False


def _shown(path: bytes) -> bytes:
    """Return a web address without what may be secret: user, password and query."""
    scheme, _, rest = re.split(rb"[?#]", path)[0].partition(b"://")
    host, slash, name = rest.partition(b"/")
    return scheme + b"://" + host.rpartition(b"@")[2] + slash + name


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
