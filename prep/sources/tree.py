"""The image files in a folder and all folders below it, and why every other entry is none."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from tfshards.prep.formats import HEAD_BYTES, SUFFIXES, format_of, is_tiff

# What tells a folder from another, by whatever path it was reached.
_Place: TypeAlias = "tuple[int, int]"


class ImageFile(NamedTuple):
    """An image file in a folder.

    Attributes:
        key: its path relative to the folder.
        size: in bytes.
        stamp: modification time in nanoseconds since 1970.
    """

    key: bytes
    size: int
    stamp: int


def images_in(root: bytes, skipped: Counter[str], *, follow_links: bool) -> Iterator[ImageFile]:
    """Yield each image file below ``root``, in no order, counting in ``skipped`` why other entries are none.

    Args:
        root: a real path.
        skipped: counts by reason.
        follow_links: also take files that links lead to out of ``root``, and go into folders behind links; a
            link to a folder that it lies in is none of them.

    Raises:
        OSError: a folder, or a file that its name does not tell, cannot be read.
    """
    # no recursion: folders may be nested deeper than calls can be
    folders = [(b"", False, frozenset({_place(os.stat(root))}))]
    while folders:
        prefix, is_hidden, above = folders.pop()
        with os.scandir(os.path.join(root, prefix)) as entries:
            for entry in entries:
                hidden = is_hidden or entry.name.startswith(b".")
                if entry.is_dir(follow_symlinks=False):
                    # only links make loops
                    inside = above | {_place(entry.stat())} if follow_links else above
                    folders.append((prefix + entry.name + b"/", hidden, inside))
                    continue
                status = None if hidden else _status(entry)
                reason = "hidden" if hidden else _reason(entry, status, root, follow_links=follow_links)
                if status and reason == "link to a folder" and follow_links:
                    if _place(status) in above:
                        reason = "link loop"
                    else:
                        folders.append((prefix + entry.name + b"/", hidden, above | {_place(status)}))
                        continue
                if reason or not status:
                    skipped[reason or "broken link"] += 1
                else:
                    yield ImageFile(prefix + entry.name, status.st_size, status.st_mtime_ns)


def folders_in(root: bytes, name: bytes = b"", *, follow_links: bool) -> list[bytes]:
    """Return the names of the folders in ``root``, or in its folder ``name``, that are not hidden, sorted.

    A link to a folder that it lies in is none.
    """
    folder = os.path.join(root, name)
    above = {_place(os.stat(root)), _place(os.stat(folder))}
    with os.scandir(folder) as entries:
        return sorted(
            entry.name
            for entry in entries
            if entry.is_dir(follow_symlinks=follow_links)
            and not entry.name.startswith(b".")
            and not (entry.is_symlink() and _place(entry.stat()) in above)
        )


def _place(status: os.stat_result) -> _Place:
    return status.st_dev, status.st_ino


def _status(entry: os.DirEntry[bytes]) -> os.stat_result | None:
    """Return what the entry, or what it links to, is; None if a link leads nowhere."""
    try:
        return entry.stat()
    except OSError as error:
        if entry.is_symlink() and error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise


def _reason(
    entry: os.DirEntry[bytes], status: os.stat_result | None, root: bytes, *, follow_links: bool
) -> str | None:
    """Return why an entry that is not hidden is no image file, or None if it is one."""
    if status is None:
        return "broken link"
    if stat.S_ISDIR(status.st_mode):
        return "link to a folder"
    if not stat.S_ISREG(status.st_mode):
        return "special file"
    if (
        entry.is_symlink()
        and not follow_links
        and not os.path.realpath(entry.path).startswith(os.path.join(root, b""))
    ):
        return "link out of the root"
    suffix = os.path.splitext(entry.name)[1].lower()
    return None if suffix in SUFFIXES or _looks_like_an_image(entry.path, suffix) else "not an image"


def _looks_like_an_image(path: bytes, suffix: bytes) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        head = os.read(descriptor, HEAD_BYTES)
    finally:
        os.close(descriptor)
    # raw files of cameras begin like TIFF, and have suffixes
    return format_of(head) is not None or (not suffix and is_tiff(head))
