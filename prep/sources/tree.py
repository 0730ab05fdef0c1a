"""Find the image files in a folder and its subfolders, and count why other entries are skipped."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from tfshards.prep.imaging.formats import HEAD_BYTES, SUFFIXES, format_of, is_tiff

# What archives of macOS have of each file: no images, but with their names.
_RESOURCE_FORKS = b"__MACOSX"
# Device and inode, which identify a folder independently of its path.
_FileId: TypeAlias = "tuple[int, int]"


class ImageFile(NamedTuple):
    """An image file in a folder.

    Attributes:
        key: path relative to the folder.
        size: number of bytes.
        stamp: modification time in nanoseconds since 1970.
    """

    key: bytes
    size: int
    stamp: int


def images_in(root: bytes, skipped: Counter[str], *, follow_links: bool) -> Iterator[ImageFile]:
    """Yield the image files below ``root`` in arbitrary order, and count in ``skipped`` why others are not.

    Args:
        root: the folder, as a real path.
        skipped: number of skipped entries by reason; the counts are increased.
        follow_links: follow links to folders, and to files outside ``root``; a link to a folder that
            contains it is skipped.

    Raises:
        OSError: a folder cannot be read, or a file cannot be read whose suffix is not that of an image.
    """
    # not recursive, because folders may be nested more deeply than Python allows calls to be
    folders = [(b"", False, frozenset({_file_id(os.stat(root))}))]
    while folders:
        prefix, is_hidden, above = folders.pop()
        with os.scandir(os.path.join(root, prefix)) as entries:
            for entry in entries:
                hidden = is_hidden or _is_hidden(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    # only links can form loops
                    inside = above | {_file_id(entry.stat())} if follow_links else above
                    folders.append((prefix + entry.name + b"/", hidden, inside))
                    continue
                status = None if hidden else _status(entry)
                reason = "hidden" if hidden else _reason(entry, status, root, follow_links=follow_links)
                if status and reason == "link to a folder" and follow_links:
                    if _file_id(status) in above:
                        reason = "link loop"
                    else:
                        folders.append((prefix + entry.name + b"/", hidden, above | {_file_id(status)}))
                        continue
                if reason or not status:
                    skipped[reason or "broken link"] += 1
                else:
                    yield ImageFile(prefix + entry.name, status.st_size, status.st_mtime_ns)


def folders_in(root: bytes, name: bytes = b"", *, follow_links: bool) -> list[bytes]:
    """Return the names of the visible folders in ``root``, or in its folder ``name``, sorted.

    A link to a folder that contains the link is left out.
    """
    folder = os.path.join(root, name)
    above = {_file_id(os.stat(root)), _file_id(os.stat(folder))}
    with os.scandir(folder) as entries:
        return sorted(
            entry.name
            for entry in entries
            if entry.is_dir(follow_symlinks=follow_links)
            and not _is_hidden(entry.name)
            and not (entry.is_symlink() and _file_id(entry.stat()) in above)
        )


def _is_hidden(name: bytes) -> bool:
    return name.startswith(b".") or name == _RESOURCE_FORKS


def _file_id(status: os.stat_result) -> _FileId:
    return status.st_dev, status.st_ino


def _status(entry: os.DirEntry[bytes]) -> os.stat_result | None:
    """Return the status of the entry, or of the target of a link; None if a link is broken."""
    try:
        return entry.stat()
    except OSError as error:
        if entry.is_symlink() and error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise


def _reason(
    entry: os.DirEntry[bytes], status: os.stat_result | None, root: bytes, *, follow_links: bool
) -> str | None:
    """Return why a visible entry is not an image file, or None if it is one."""
    if status is None:
        return "broken link"
    if stat.S_ISDIR(status.st_mode):
        return "link to a folder"
    if not stat.S_ISREG(status.st_mode):
        return "special file"
    # most entries are no links, which is known without a further look at the file
    if not follow_links and entry.is_symlink() and is_link_out(entry.path, root):
        return "link out of the root"
    # hidden names, which start with a dot, have another reason
    dot = entry.name.rfind(b".")
    suffix = entry.name[dot:].lower() if dot > 0 else b""
    return None if suffix in SUFFIXES or looks_like_an_image(entry.path, suffix) else "not an image"


def is_link_out(path: bytes, root: bytes) -> bool:
    """Return whether a file is a link to one that is not below ``root``, a real path."""
    return os.path.islink(path) and not os.path.realpath(path).startswith(os.path.join(root, b""))


def looks_like_an_image(path: bytes, suffix: bytes) -> bool:
    """Return whether a file begins like an image, whatever its suffix.

    Raises:
        OSError: the file cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        head = os.read(descriptor, HEAD_BYTES)
    finally:
        os.close(descriptor)
    # camera raw files start like TIFF files, but they have suffixes
    return format_of(head) is not None or (not suffix and is_tiff(head))
