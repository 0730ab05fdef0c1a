"""A folder of an object store as a tree of files, and the choice between it and a local one."""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from typing import NamedTuple, TypeAlias

import numpy as np

from tfshards.prep.imaging.formats import HEAD_BYTES, SUFFIXES
from tfshards.prep.sources.fetching import stamp_of
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.marks import Marks, note
from tfshards.prep.sources.tree import FolderFiles, LocalTree, is_hidden, starts_like_an_image, suffix_of
from tfshards.schemas import InputError
from tfshards.schemas.storage import RemotePath, any_path, in_flight, read_range

# Requests for the first bytes of objects without the suffix of an image.
_HEADS = 64


class _Object(NamedTuple):
    key: bytes
    size: int
    stamp: int


class RemoteTree:
    """A folder of objects; see ``LocalTree``."""

    def __init__(self, folder: RemotePath) -> None:
        self.folder: RemotePath = folder
        self.root: bytes = to_bytes(str(folder))

    def files(self) -> FolderFiles:
        """Return the image files, by one listing of all objects; see ``LocalTree``."""
        images: list[_Object] = []
        others: list[_Object] = []
        odd: list[str] = []
        hidden: set[bytes] = set()
        marks: Marks = {}
        folders = {b""}
        is_empty = True
        start = len(self.folder.key) + bool(self.folder.key)
        for path, status in self.folder.walk(odd):
            is_empty = False
            found = _Object(to_bytes(path.key[start:]), status.st_size, stamp_of(status))
            above, slash, name = found.key.rpartition(b"/")
            suffix = suffix_of(name)
            if not found.size and not suffix:
                # stands for a folder in some stores
                continue
            names = found.key.split(b"/")
            depth = next((depth for depth, name in enumerate(names, 1) if is_hidden(name)), 0)
            if depth:
                hidden.add(b"/".join(names[:depth]))
                continue
            (images if suffix in SUFFIXES else others).append(found)
            folder = above + slash
            while folder not in folders:
                folders.add(folder)
                above, slash, name = folder[:-1].rpartition(b"/")
                folder = above + slash
                note(marks, folder, name + b"/")
        if is_empty and not odd:
            # a bucket that does not exist cannot be listed
            missing = "does not exist" if self.folder.key else "is empty: the bucket holds no objects"
            problem = "is not a folder" if self.folder.is_file() else missing
            raise InputError("folder-problem", folder=self.folder, problem=problem)
        skipped = Counter({"hidden": len(hidden), "unusable key": len(odd)})
        for found, is_image in zip(
            others, in_flight(self._begins_like_an_image, others, _HEADS), strict=True
        ):
            if is_image:
                images.append(found)
                continue
            skipped["not an image"] += 1
            above, slash, name = found.key.rpartition(b"/")
            note(marks, above + slash, name)
        keys, sizes, stamps = zip(*sorted(images), strict=True) if images else ((), (), ())
        return FolderFiles([*keys], np.array(sizes, np.int64), np.array(stamps, np.int64), marks, +skipped)

    def at(self, path: bytes) -> RemotePath:
        """Return the object, or the folder, with a path relative to the folder; ``..`` is resolved."""
        if not path:
            return self.folder
        # a slash more than the key, so that .. does not leave the bucket
        key = posixpath.normpath(f"/{self.folder.key}/{to_text(path)}")
        return RemotePath(self.folder.scheme, self.folder.bucket, key.strip("/"))

    def _begins_like_an_image(self, found: _Object) -> bool:
        head = read_range(self.at(found.key), 0, min(found.size, HEAD_BYTES))
        return starts_like_an_image(head, suffix_of(found.key.rpartition(b"/")[2]))


Tree: TypeAlias = "LocalTree | RemoteTree"


def tree_of(folder: str | bytes | os.PathLike[str], *, follow_links: bool) -> Tree:
    """Return the tree of files below a folder; for ``follow_links`` see ``LocalTree``."""
    root = any_path(os.fsdecode(folder))
    if isinstance(root, RemotePath):
        return RemoteTree(root)
    return LocalTree(os.path.realpath(os.fsencode(folder)), follow_links=follow_links)
