"""Find the image files in a folder, and count why others are skipped."""

from __future__ import annotations

import errno
import operator
import os
import stat
from array import array
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from typing import TypeAlias

import numpy as np

from tfshards.prep.imaging.formats import HEAD_BYTES, SUFFIXES, format_of, is_tiff
from tfshards.prep.sources.marks import Marks, note
from tfshards.schemas import InputError
from tfshards.schemas.index import IntArray

# What systems and network storages leave in folders, in lower case: copies of images, with their names.
_OF_SYSTEMS = frozenset(
    b"__macosx $recycle.bin recycler @eadir @recycle @recently-snapshot @sharebin @tmp #recycle #snapshot "
    b"~snapshot lost+found thumbs.db ehthumbs.db desktop.ini".split()
) | {b"system volume information"}
# Device and inode, which identify a folder independently of its path.
_FileId: TypeAlias = "tuple[int, int]"


@dataclass(frozen=True, eq=False)
class FolderFiles:
    """The image files in a folder, sorted by key, and what else is in it.

    Attributes:
        keys: path of each file relative to the folder, with slashes.
        sizes: number of bytes of each, shape ``(num_files,)`` int64.
        stamps: number that changes with the file, shape ``(num_files,)`` int64.
        folders: paths of the visible folders, with a slash at the end.
        marks: marks of other layouts; see ``marks.note``.
        skipped: number of other files by reason.
    """

    keys: Sequence[bytes]
    sizes: IntArray
    stamps: IntArray
    folders: Set[bytes]
    marks: Marks
    skipped: Counter[str]

    def take(self, numbers: IntArray) -> FolderFiles:
        """Return the files with these numbers, in this order."""
        keys = [self.keys[number] for number in numbers.tolist()]
        return replace(self, keys=keys, sizes=self.sizes[numbers], stamps=self.stamps[numbers])

    def keep(self, numbers: IntArray, reason: str) -> FolderFiles:
        """Return the files with these numbers, and count the others as skipped for a reason."""
        if len(numbers) == len(self.keys):
            return self
        left = Counter({reason: len(self.keys) - len(numbers)})
        return replace(self.take(numbers), skipped=self.skipped + left)


class FolderScan:
    """What a listing of a folder has found so far."""

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()
        self._folders: set[bytes] = set()
        self._marks: Marks = {}
        self._keys: list[bytes] = []
        self._sizes, self._stamps = array("q"), array("q")

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: bytes, size: int, stamp: int) -> None:
        """Add an image file."""
        self._keys.append(key)
        self._sizes.append(size)
        self._stamps.append(stamp)

    def sort(self, first: int) -> None:
        """Sort the files that were added after the ``first`` ones."""
        keys = self._keys[first:]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        self._keys[first:] = map(keys.__getitem__, order)
        for column in (self._sizes, self._stamps):
            column[first:] = array("q", map(column[first:].__getitem__, order))

    def add_folder(self, path: bytes) -> None:
        """Add a visible folder, whose path ends with a slash, and the folders that it is in."""
        while path and path not in self._folders:
            self._folders.add(path)
            above, slash, name = path[:-1].rpartition(b"/")
            note(self._marks, above + slash, name + b"/")
            path = above + slash

    def skip(self, path: bytes, reason: str) -> None:
        """Count a visible file that is skipped."""
        self.skipped[reason] += 1
        if reason == "not an image":
            above, slash, name = path.rpartition(b"/")
            note(self._marks, above + slash, name)

    def files(self) -> FolderFiles:
        """Return all files."""
        if not all(map(operator.lt, self._keys, islice(self._keys, 1, None))):
            self.sort(0)
        sizes, stamps = (np.frombuffer(column, np.int64) for column in (self._sizes, self._stamps))
        return FolderFiles(self._keys, sizes, stamps, self._folders, self._marks, self.skipped)


class LocalTree:
    """A folder on a disk, with everything below it; paths in it are relative, with slashes.

    Attributes:
        root: the folder, as a real path.
        follow_links: whether to follow links to folders, and to files outside ``root``.
    """

    def __init__(self, root: bytes, *, follow_links: bool) -> None:
        self.root = root
        self.follow_links = follow_links

    def files(self) -> FolderFiles:
        """Return the image files, and count why others are skipped.

        Raises:
            InputError: there is no such folder.
            OSError: a folder cannot be read, or a file cannot be read whose suffix is not that of an image.
        """
        if not os.path.isdir(self.root):
            problem = "is not a folder" if os.path.exists(self.root) else "does not exist"
            raise InputError("folder-problem", folder=os.fsdecode(self.root), problem=problem)
        scan = FolderScan()
        # not recursive, because folders may be nested more deeply than Python allows calls to be
        folders = [(b"", False, frozenset({_file_id(os.stat(self.root))}))]
        while folders:
            prefix, in_hidden, above = folders.pop()
            inside: list[tuple[bytes, bool, frozenset[_FileId]]] = []
            first = len(scan)
            with os.scandir(os.path.join(self.root, prefix)) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        hidden = in_hidden or is_hidden(entry.name)
                        # only links can form loops
                        seen = above | {_file_id(entry.stat())} if self.follow_links else above
                        inside.append((prefix + entry.name + b"/", hidden, seen))
                        continue
                    if in_hidden or entry.name.startswith(b"."):
                        scan.skipped["hidden"] += 1
                        continue
                    status = _status(entry)
                    reason = self._reason(entry, status)
                    if status and reason == "link to a folder" and self.follow_links:
                        if _file_id(status) not in above:
                            inside.append((prefix + entry.name + b"/", False, above | {_file_id(status)}))
                            continue
                        reason = "link loop"
                    if reason or not status:
                        scan.skip(prefix + entry.name, reason or "broken link")
                        continue
                    scan.add(prefix + entry.name, status.st_size, status.st_mtime_ns)
            # the names in a folder are close together in memory, so that this is faster than to sort all
            scan.sort(first)
            for path, hidden, _ in inside:
                if not hidden:
                    scan.add_folder(path)
            folders += sorted(inside, key=itemgetter(0), reverse=True)
        return scan.files()

    def at(self, path: bytes) -> bytes:
        """Return the full path of a file or folder, for ``read_content``."""
        return os.path.join(self.root, path)

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
