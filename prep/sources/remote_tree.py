"""A folder of an object store as a tree of files, and the choice between it and a local one."""

from __future__ import annotations

import os
import posixpath
from array import array
from collections import Counter
from typing import TypeAlias

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.marks import Marks, note
from tfshards.prep.sources.tree import FolderFiles, LocalTree, is_hidden, suffix_of
from tfshards.schemas import InputError
from tfshards.schemas.storage import RemotePath, any_path
from tfshards.schemas.storage.any_path import in_store
from tfshards.schemas.storage.reader import stamp_of


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
        for path, status in self.folder.walk():
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
    objects = in_store(any_path(os.fsdecode(folder)))
    if objects is not None:
        return RemoteTree(objects)
    return LocalTree(os.path.realpath(os.fsencode(folder)), follow_links=follow_links)
