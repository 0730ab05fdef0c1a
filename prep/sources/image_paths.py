"""The images that rows name by path or URL: where they are, their sizes and their modification times."""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import NamedTuple, TypeAlias

import numpy as np

from tfshards.prep.sources.fetching import Boundary, outside, unreadable
from tfshards.prep.sources.keys import in_any_form, to_text
from tfshards.prep.sources.roles import flag, is_template
from tfshards.prep.sources.tree import RemoteTree, tree_of
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import listed
from tfshards.schemas.index import IntArray
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.reader import Status, in_flight, stamp_of
from tfshards.schemas.storage.stores import SCHEMES

_STORE_URL = re.compile(f"({'|'.join(SCHEMES)})://".encode(), re.IGNORECASE)
# A page of a listing takes as long as so many requests, which are made at the same time.
_LISTED_PER_IMAGE = 32
_LEAST_LISTED = 2000
_SHOWN, _SHOWN_CHARACTERS = 3, 100
# Size and stamp.
_Status: TypeAlias = "tuple[int, int]"
_MISSING: _Status = (-1, -1)


class ImageFiles(NamedTuple):
    """The files of one column of images, one for each row.

    Attributes:
        given: path or URL of each, as the row has it; empty for none.
        paths: the same as it exists: its Unicode form may be another one.
        sizes: number of bytes of each, shape ``(num_rows,)`` int64; -1 where there is none.
        stamps: stamp of each, see ``base.Row``; 0 for images that are in the row itself.
        real: path with links followed, relative to the root: equal for all names of one file; empty for rows
            without a file.
    """

    given: Sequence[bytes]
    paths: Sequence[bytes]
    sizes: IntArray
    stamps: IntArray
    real: Sequence[bytes]


def stat_images(
    root: bytes, paths: Sequence[bytes], embedded: IntArray | None, *, follow_links: bool
) -> ImageFiles:
    """Return the files of a column of images.

    Args:
        root: folder, or its URL, to which the paths are relative.
        paths: path of each row; empty for none.
        embedded: size of the image in each row, -1 where the path names it; None if paths name all.
        follow_links: allow files outside ``root``.

    Raises:
        InputError: a path leaves ``root``, or names a web address.
    """
    is_far, inside = is_url(root), Boundary(root, follow_links=follow_links)
    found: list[_Status] = []
    names, real = [*paths], [b""] * len(paths)
    remote: dict[int, AnyPath] = {}
    held = [-1] * len(paths) if embedded is None else embedded.tolist()
    for row, (path, size) in enumerate(zip(paths, held, strict=True)):
        status = _MISSING
        if size >= 0:
            status = (size, 0)
        elif path and b"\0" not in path:
            where = location_of(root, path) if is_far or b"://" in path else None
            if where is not None:
                folder = _folder(root)
                is_below = folder and not path.startswith(b"/") and where.is_inside(folder.folder)
                if not (is_below or follow_links):
                    raise outside(root, to_text(path))
                remote[row], real[row] = where, path if is_url(path) else posixpath.normpath(path)
            else:
                names[row], status = _local(root, path)
                real[row] = inside.check(os.path.join(root, names[row]), to_text(path))
        found.append(status)
    if remote:
        statuses = _remote_statuses([*remote.values()])
        for row, status in zip(remote, statuses, strict=True):
            found[row] = status
    sizes, stamps = np.array(found, np.int64).reshape(-1, 2).T
    return ImageFiles(paths, names, sizes, stamps, real)


def check_found(column: str, files: ImageFiles, root: bytes) -> None:
    """Raise InputError if no file of a column of paths exists, which is a wrong root rather than damage."""
    first = next(filter(None, files.paths), None)
    if first and len(files.sizes) and files.sizes.max() < 0:
        text = to_text(first)[:_SHOWN_CHARACTERS]
        template = f"{flag(f'{{{column}}}.jpg', 'image')} {flag(column, 'drop')}"
        remedy = f"write paths with slashes and suffixes, or add these by {template}"
        if is_template(column):
            remedy = f"write another template, such as {flag('train/{id}.jpg', 'image')}"
        where = os.fsdecode(root)
        raise InputError(
            f"column {column!r}: none of the image files exists, such as {text!r} in {where}; {remedy}, or "
            "name the folder of the images with root=DIR, or in append after the table"
        )


def unmentioned(root: bytes, paths: set[bytes], *, follow_links: bool) -> list[str]:
    """Return a warning if image files below ``root`` are not among ``paths``."""
    named = {os.path.normpath(path) for path in paths}
    try:
        found = {*tree_of(root, follow_links=follow_links).files().keys}
    except OSError:
        # other files in the folder need not be readable
        return []
    left = [repr(to_text(key)) for key in sorted(found - named)]
    line = f"image files below {os.fsdecode(root)} that are not in any row: {listed(left, _SHOWN)}"
    return [line] if left else []


def is_url(path: bytes) -> bool:
    """Return whether a path is the URL of an object."""
    return _STORE_URL.match(path) is not None


def is_relative(path: bytes) -> bool:
    """Return whether a path in a row is that of a file below the folder of the images."""
    return bool(path) and not path.startswith(b"/") and not is_url(path)


def location_of(root: bytes, path: bytes) -> AnyPath | None:
    """Return the object that a path, or a URL, in rows with this root names, or None if it is a file."""
    if path.lower().startswith((b"http://", b"https://")):
        # without the address, which may hold a password
        raise InputError(
            "a row names a web address, from which nothing is fetched; download the images, for example "
            "with img2dataset, and name their files"
        )
    if is_url(path):
        try:
            return any_path(to_text(path))
        except OptionsError as error:
            raise InputError(str(error)) from None
    folder = _folder(root)
    return None if folder is None else folder.at(path)


@lru_cache(maxsize=8)
def _folder(root: bytes) -> RemoteTree | None:
    folder = tree_of(root, follow_links=True)
    return folder if isinstance(folder, RemoteTree) else None


def _local(root: bytes, path: bytes) -> tuple[bytes, _Status]:
    """Return a path and its status; of a missing file, those of another Unicode form if only one exists."""

    def existing(path: bytes) -> tuple[bytes, _Status] | None:
        where = os.path.join(root, path)
        try:
            status = os.stat(where)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
                return None
            raise unreadable(where, error) from None
        is_file = stat.S_ISREG(status.st_mode)
        return (path, (status.st_size, status.st_mtime_ns)) if is_file else None

    return in_any_form(path, existing) or (path, _MISSING)


def _remote_statuses(paths: Sequence[AnyPath]) -> list[_Status]:
    """Return the size and the stamp of each object.

    The folder of all of them is listed, but not much further than there are objects to find in it. Each one
    that is not found by then takes a request.
    """
    texts = [str(path) for path in paths]
    # the folder that holds all of them, cut at a slash; "s3:/" if they are in several buckets
    above = os.path.commonprefix([min(texts), max(texts)]).rpartition("/")[0]  # noqa: RUF071
    folder = any_path(above) if above.count("/") > 1 else None
    found: dict[AnyPath, _Status] = {}
    try:
        if folder is not None:
            most = max(_LEAST_LISTED, _LISTED_PER_IMAGE * len(paths))
            wanted = {*paths}
            # a key that cannot be named may be in the folder: then each image is asked for
            with suppress(OSError):
                listing: Iterator[tuple[AnyPath, Status]] = folder.files_below()
                for path, status in islice(listing, most):
                    if path in wanted:
                        found[path] = (status.st_size, stamp_of(status))
        left = [path for path in dict.fromkeys(paths) if path not in found]
        found.update(zip(left, in_flight(_remote_status, left), strict=True))
    except OSError as error:
        raise unreadable(folder or paths[0], error) from None
    return [found[path] for path in paths]


def _remote_status(path: AnyPath) -> _Status:
    try:
        status = path.stat()
    except FileNotFoundError:
        return _MISSING
    return status.st_size, stamp_of(status)
