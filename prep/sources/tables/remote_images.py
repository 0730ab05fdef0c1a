"""The images of a table that are in object stores: where they are, and their sizes."""

from __future__ import annotations

import os
import posixpath
import re
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import lru_cache

from tfshards.prep.imaging.formats import HEAD_BYTES, SUFFIXES
from tfshards.prep.sources.fetching import stamp_of, unreadable
from tfshards.prep.sources.keys import to_text
from tfshards.prep.sources.tree import starts_like_an_image, suffix_of
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.storage import RemotePath, RemoteStatus, any_path
from tfshards.schemas.storage.reading import in_background, read_start

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
        return starts_like_an_image(read_start(path, HEAD_BYTES)[1], suffix)
    except (OSError, UnicodeError):
        return False


def _shown(path: bytes) -> bytes:
    """Return a web address without what may be secret: user, password and query."""
    scheme, _, rest = re.split(rb"[?#]", path)[0].partition(b"://")
    host, slash, name = rest.partition(b"/")
    return scheme + b"://" + host.rpartition(b"@")[2] + slash + name
