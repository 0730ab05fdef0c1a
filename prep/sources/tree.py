"""Find the image files in a folder, and count why others are skipped."""

from __future__ import annotations

import errno
import os
import stat
from array import array
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from tfshards.prep.imaging.formats import HEAD_BYTES, SUFFIXES, format_of, is_tiff
from tfshards.prep.sources.marks import Marks, note
from tfshards.schemas import InputError

# What systems and network storages leave in folders, in lower case: copies of images, with their names.
_OF_SYSTEMS = frozenset(
    b"__macosx $recycle.bin recycler @eadir @recycle @recently-snapshot @sharebin @tmp #recycle #snapshot "
    b"~snapshot lost+found thumbs.db ehthumbs.db desktop.ini".split()
) | {b"system volume information"}
# Sorting all names at the end needs twice their memory; they are far apart in it.
_SORTED_TOGETHER = 1 << 18
# Device and inode, which identify a folder independently of its path.
_FileId: TypeAlias = "tuple[int, int]"


class ImageFile(NamedTuple):
    """An image file in a folder: its relative path, number of bytes, and a number that changes with it."""

    key: bytes
    size: int
    stamp: int


class FolderNames:
    """The visible folders below a folder, and marks of other layouts, as far as a listing has seen them.

    Attributes:
        marks: the marks of other layouts; see ``note``.
    """

    def __init__(self) -> None:
        self.marks: Marks = {}
        # with a slash at the end
        self._seen: set[bytes] = set()

    def folders(self, name: bytes = b"") -> list[bytes]:
        """Return the names of the folders in a folder, sorted."""
        above = name + b"/" if name else b""
        below = (path[len(above) : -1] for path in self._seen if path.startswith(above))
        return sorted(path for path in below if path and b"/" not in path)

    def paths(self) -> Iterator[bytes]:
        """Return the paths of all folders, in arbitrary order."""
        return (path[:-1] for path in self._seen)

    def is_dir(self, path: bytes) -> bool:
        """Return whether there is a folder."""
        return path + b"/" in self._seen

    def add_folder(self, above: bytes, name: bytes) -> None:
        """Note a folder; the path of the one above it ends with a slash, unless it is empty."""
        self._seen.add(above + name + b"/")
        note(self.marks, above, name + b"/")


class LocalTree(FolderNames):
    """A folder on a disk, with everything below it; paths in it are relative, with slashes.

    Attributes:
        root: the folder, as a real path.
        follow_links: whether to follow links to folders, and to files outside ``root``.
    """

    def __init__(self, root: bytes, *, follow_links: bool) -> None:
        super().__init__()
        self.root = root
        self.follow_links = follow_links

    def images(self, skipped: Counter[str]) -> Iterator[ImageFile]:
        """Yield the image files, and count in ``skipped`` why others are not, by reason.

        Where folders hold either folders or files, and not too many, they are in the order of their keys.

        Raises:
            InputError: there is no such folder.
            OSError: a folder cannot be read, or a file cannot be read whose suffix is not that of an image.
        """
        if not os.path.isdir(self.root):
            problem = "is not a folder" if os.path.exists(self.root) else "does not exist"
            raise InputError("folder-problem", folder=os.fsdecode(self.root), problem=problem)
        # not recursive, because folders may be nested more deeply than Python allows calls to be
        folders = [(b"", False, frozenset({_file_id(os.stat(self.root))}))]
        while folders:
            prefix, in_hidden, above = folders.pop()
            inside: list[tuple[bytes, bool, frozenset[_FileId]]] = []
            names: list[bytes] = []
            sizes, stamps = array("q"), array("q")
            with os.scandir(os.path.join(self.root, prefix)) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        hidden = in_hidden or is_hidden(entry.name)
                        # only links can form loops
                        seen = above | {_file_id(entry.stat())} if self.follow_links else above
                        inside.append((prefix + entry.name + b"/", hidden, seen))
                        if not hidden:
                            self.add_folder(prefix, entry.name)
                        continue
                    hidden = in_hidden or entry.name.startswith(b".")
                    status = None if hidden else _status(entry)
                    reason = "hidden" if hidden else self._reason(entry, status)
                    if status and reason == "link to a folder" and self.follow_links:
                        if _file_id(status) not in above:
                            inside.append((prefix + entry.name + b"/", hidden, above | {_file_id(status)}))
                            self.add_folder(prefix, entry.name)
                            continue
                        reason = "link loop"
                    if reason == "not an image":
                        note(self.marks, prefix, entry.name)
                    if reason or not status:
                        skipped[reason or "broken link"] += 1
                        continue
                    names.append(prefix + entry.name)
                    sizes.append(status.st_size)
                    stamps.append(status.st_mtime_ns)
                    if len(names) == _SORTED_TOGETHER:
                        yield from _by_key(names, sizes, stamps)
                        names, sizes, stamps = [], array("q"), array("q")
            yield from _by_key(names, sizes, stamps)
            folders += sorted(inside, key=itemgetter(0), reverse=True)

    def at(self, path: bytes) -> bytes:
        """Return the full path of a file or folder, for ``read_content``."""
        return os.path.join(self.root, path)

    def below(self, path: bytes) -> LocalTree:
        """Return a folder, which need not be in this one."""
        return LocalTree(os.path.realpath(self.at(path)), follow_links=self.follow_links)

    def path(self, name: str) -> bytes:
        """Return a path as a user gives it, relative to the folder, spelled in one way."""
        given = os.path.normpath(os.fsencode(name))
        if os.path.isabs(given):
            return os.path.relpath(os.path.realpath(given), self.root)
        # not following a relative link, which other machines may not have
        return os.path.relpath(os.path.normpath(self.at(given)), self.root)

    def _reason(self, entry: os.DirEntry[bytes], status: os.stat_result | None) -> str | None:
        """Return why a visible entry is not an image file, or None if it is one."""
        if status is None:
            return "broken link"
        if stat.S_ISDIR(status.st_mode):
            return "hidden" if is_hidden(entry.name) else "link to a folder"
        if not stat.S_ISREG(status.st_mode):
            return "special file"
        # most entries are not links, which is known without a further look at the file
        if not self.follow_links and entry.is_symlink() and self._leads_out(entry.path):
            return "link out of the root"
        suffix = suffix_of(entry.name)
        if suffix in SUFFIXES:
            return None
        if is_hidden(entry.name):
            return "hidden"
        return None if _begins_like_an_image(entry.path, suffix) else "not an image"

    def _leads_out(self, path: bytes) -> bool:
        return not os.path.realpath(path).startswith(os.path.join(self.root, b""))


def _by_key(names: list[bytes], sizes: array[int], stamps: array[int]) -> Iterator[ImageFile]:
    # a tuple for each file that lived until then would make Python look for garbage among all keys
    order = sorted(range(len(names)), key=names.__getitem__)
    return map(ImageFile, *(map(column.__getitem__, order) for column in (names, sizes, stamps)))


def is_hidden(name: bytes) -> bool:
    """Return whether a file or folder of this name is hidden, or one that systems leave in folders."""
    return name.startswith(b".") or name.lower() in _OF_SYSTEMS


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


def _begins_like_an_image(path: bytes, suffix: bytes) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return starts_like_an_image(os.read(descriptor, HEAD_BYTES), suffix)
    finally:
        os.close(descriptor)


def starts_like_an_image(head: bytes, suffix: bytes) -> bool:
    """Return whether a file with these first ``HEAD_BYTES`` is an image, whatever its suffix."""
    # camera raw files start like TIFF files, but they have suffixes
    return format_of(head) is not None or (not suffix and is_tiff(head))


def suffix_of(name: bytes) -> bytes:
    """Return the suffix of a visible name in lower case, with its dot, or nothing."""
    # hidden names, which start with a dot, have another reason
    dot = name.rfind(b".")
    return name[dot:].lower() if dot > 0 else b""
