"""Find the image files in a folder, on a disk or in an object store, and count why others are skipped."""

from __future__ import annotations

import errno
import operator
import os
import posixpath
import stat
from array import array
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import TypeAlias, cast

import numpy as np

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.marks import Marks, note
from tfshards.schemas import InputError
from tfshards.schemas.errors import counted
from tfshards.schemas.index import IntArray
from tfshards.schemas.storage import RemotePath, any_path
from tfshards.schemas.storage.reader import stamp_of

# What systems and network storages leave in folders, in lower case: copies of images, with their names.
_OF_SYSTEMS = frozenset(
    b"__macosx $recycle.bin recycler found.000 @eadir @recycle @recently-snapshot @sharebin @tmp "
    b"#recycle #snapshot ~snapshot lost+found thumbs.db ehthumbs.db desktop.ini".split()
) | {b"system volume information"}
# Device and inode, which identify a folder independently of its path.
_FileId: TypeAlias = "tuple[int, int]"


@dataclass(frozen=True, eq=False)
class FolderFiles:
    """The image files in a folder, sorted by key, and what else was found.

    Attributes:
        keys: path of each file relative to the folder, with slashes.
        sizes: number of bytes of each, shape ``(num_files,)`` int64.
        stamps: number that changes with the file, shape ``(num_files,)`` int64.
        marks: marks of other layouts; see ``marks.note``.
        skipped: number of other files by reason.
        empty: paths of the folders in which there is nothing, each with a slash at its end.
    """

    keys: Sequence[bytes]
    sizes: IntArray
    stamps: IntArray
    marks: Marks
    skipped: Counter[str]
    empty: Sequence[bytes] = ()

    @classmethod
    def of(
        cls,
        keys: list[bytes],
        sizes: array[int],
        stamps: array[int],
        marks: Marks,
        skipped: Counter[str],
        empty: Sequence[bytes] = (),
    ) -> FolderFiles:
        """Return the files, which may be in any order."""
        of_files = np.frombuffer(sizes, np.int64), np.frombuffer(stamps, np.int64)
        files = cls(keys, *of_files, marks, skipped, empty)
        if all(map(operator.lt, keys, islice(keys, 1, None))):
            return files
        return files.take(np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64))

    @cached_property
    def folders(self) -> tuple[list[bytes], IntArray]:
        """The paths of the folders that hold files, and the number of the folder of each file."""
        number: dict[bytes, int] = {}
        of_keys = (number.setdefault(key.rpartition(b"/")[0], len(number)) for key in self.keys)
        folder_of = np.fromiter(of_keys, np.int64, len(self.keys))
        return [*number], folder_of

    def take(self, numbers: IntArray) -> FolderFiles:
        """Return the files with these numbers, in this order."""
        keys = [self.keys[number] for number in numbers.tolist()]
        return replace(self, keys=keys, sizes=self.sizes[numbers], stamps=self.stamps[numbers])

    def keep(self, numbers: IntArray, reason: str) -> tuple[FolderFiles, list[str]]:
        """Return the files with these numbers, without others, which are counted; and a warning of these."""
        if len(numbers) == len(self.keys):
            return self, []
        left = np.setdiff1d(np.arange(len(self.keys)), numbers)
        line = f"{counted(len(left), 'file')} {reason}, such as {to_text(self.keys[left[0]])!r}: left out"
        return replace(self.take(numbers), skipped=self.skipped + Counter({reason: len(left)})), [line]


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
        """Return the image files, and count why others are skipped; a hidden folder counts as one.

        Raises:
            InputError: there is no such folder.
            OSError: a folder cannot be read.
        """
        if not os.path.isdir(self.root):
            problem = "is not a folder" if os.path.exists(self.root) else "does not exist"
            raise InputError(f"{os.fsdecode(self.root)} {problem}")
        keys: list[bytes] = []
        sizes, stamps = array("q"), array("q")
        marks: Marks = {}
        skipped: Counter[str] = Counter()
        empty: list[bytes] = []
        # not recursive, because folders may be nested more deeply than Python allows calls to be
        folders = [(b"", frozenset({_file_id(os.stat(self.root))}))]
        while folders:
            prefix, above = folders.pop()
            inside: list[tuple[bytes, frozenset[_FileId]]] = []
            names: list[bytes] = []
            # an object for each file would make Python look for garbage among all of them
            new_sizes, new_stamps = array("q"), array("q")
            num_skipped = skipped.total()
            with os.scandir(os.path.join(self.root, prefix)) as entries:
                for entry in entries:
                    status = None if is_hidden(entry.name) else _status(entry)
                    reason = self._reason(entry, status, above)
                    if status is None or reason:
                        skipped[reason or ""] += 1
                        if reason == "not an image":
                            note(marks, prefix, entry.name)
                    elif stat.S_ISDIR(status.st_mode):
                        # only links can form loops
                        seen = above | {_file_id(status)} if self.follow_links else above
                        inside.append((prefix + entry.name + b"/", seen))
                        note(marks, prefix, entry.name + b"/")
                    else:
                        names.append(entry.name)
                        new_sizes.append(status.st_size)
                        new_stamps.append(status.st_mtime_ns)
            if not names and not inside and skipped.total() == num_skipped:
                empty.append(prefix)
            folders += sorted(inside, key=itemgetter(0), reverse=True)
            # sorted here, where the names are close together in memory; sorting all at the end takes longer
            order = sorted(range(len(names)), key=names.__getitem__)
            keys.extend(prefix + names[number] for number in order)
            sizes.extend(map(new_sizes.__getitem__, order))
            stamps.extend(map(new_stamps.__getitem__, order))
        return FolderFiles.of(keys, sizes, stamps, marks, skipped, empty)

    def at(self, path: bytes) -> bytes:
        """Return the full path of a file or folder, for ``read_as_listed``."""
        return os.path.join(self.root, path)

    def _reason(
        self, entry: os.DirEntry[bytes], status: os.stat_result | None, above: Set[_FileId]
    ) -> str | None:
        """Return why an entry is skipped; None if it is an image file, or a folder that is not ``above``."""
        if status is None:
            return "hidden" if is_hidden(entry.name) else "broken link"
        if stat.S_ISDIR(status.st_mode):
            if not entry.is_symlink():
                return None
            if self.follow_links:
                return "link loop" if _file_id(status) in above else None
            return "link to a folder"
        if not stat.S_ISREG(status.st_mode):
            return "special file"
        # most entries are not links, which is known without a further look at the file
        if not self.follow_links and entry.is_symlink() and self._leads_out(entry.path):
            return "link out of the root"
        return None if suffix_of(entry.name) in SUFFIXES else "not an image"

    def _leads_out(self, path: bytes) -> bool:
        return not os.path.realpath(path).startswith(os.path.join(self.root, b""))


class RemoteTree:
    """A folder of objects; see ``LocalTree``."""

    def __init__(self, folder: RemotePath) -> None:
        self.folder: RemotePath = folder
        self.root: bytes = to_bytes(str(folder))

    def files(self) -> FolderFiles:
        """Return the image files, by one listing of all objects; see ``LocalTree``."""
        keys: list[bytes] = []
        sizes, stamps = array("q"), array("q")
        hidden: set[bytes] = set()
        marks: Marks = {}
        folders = {b""}
        skipped: Counter[str] = Counter()
        is_empty = True
        start = len(self.folder.key) + bool(self.folder.key)
        for path, status in self.folder.files_below():
            is_empty = False
            key = to_bytes(path.key[start:])
            above, slash, name = key.rpartition(b"/")
            suffix = suffix_of(name)
            if not status.st_size and not suffix:
                # stands for a folder in some stores
                continue
            names = key.split(b"/")
            if depth := next((depth for depth, each in enumerate(names, 1) if is_hidden(each)), 0):
                hidden.add(b"/".join(names[:depth]))
                continue
            if suffix in SUFFIXES:
                keys.append(key)
                sizes.append(status.st_size)
                stamps.append(stamp_of(status))
            else:
                skipped["not an image"] += 1
                note(marks, above + slash, name)
            folder = above + slash
            while folder not in folders:
                folders.add(folder)
                above, slash, name = folder[:-1].rpartition(b"/")
                folder = above + slash
                note(marks, folder, name + b"/")
        if is_empty:
            # a bucket that does not exist cannot be listed
            missing = "does not exist" if self.folder.key else "is empty: the bucket holds no objects"
            problem = "is not a folder" if self.folder.is_file() else missing
            raise InputError(f"{self.folder} {problem}")
        skipped["hidden"] = len(hidden)
        return FolderFiles.of(keys, sizes, stamps, marks, +skipped)

    def at(self, path: bytes) -> RemotePath:
        """Return the object, or the folder, with a path relative to the folder; ``..`` is resolved."""
        if not path:
            return self.folder
        # a slash more than the key, so that .. does not leave the bucket
        key = posixpath.normpath(f"/{self.folder.key}/{to_text(path)}")
        return RemotePath(self.folder.scheme, self.folder.bucket, key.strip("/"))


Tree: TypeAlias = "LocalTree | RemoteTree"


def tree_of(folder: str | bytes | os.PathLike[str], *, follow_links: bool) -> Tree:
    """Return the tree of files below a folder; for ``follow_links`` see ``LocalTree``."""
    given = any_path(os.fsdecode(folder))
    if given.is_far:
        return RemoteTree(cast("RemotePath", given))
    return LocalTree(os.path.realpath(os.fsencode(folder)), follow_links=follow_links)


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


def suffix_of(name: bytes) -> bytes:
    """Return the suffix of a visible name in lower case, with its dot, or nothing."""
    # hidden names, which start with a dot, have another reason
    dot = name.rfind(b".")
    return name[dot:].lower() if dot > 0 else b""
