"""A folder of an object store as a tree of files, and the choice between it and a local one."""

from __future__ import annotations

import os
import posixpath
from typing import TypeAlias

from tfshards.prep.imaging.formats import HEAD_BYTES, SUFFIXES
from tfshards.prep.sources.fetching import stamp_of
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.tree import (
    FolderFiles,
    FolderScan,
    LocalTree,
    is_hidden,
    starts_like_an_image,
    suffix_of,
)
from tfshards.schemas import InputError
from tfshards.schemas.storage import RemotePath, any_path, in_flight, read_range

# Requests for the first bytes of objects without the suffix of an image.
_HEADS = 64


class RemoteTree:
    """A folder of objects; see ``LocalTree``."""

    def __init__(self, folder: RemotePath) -> None:
        self.folder: RemotePath = folder
        self.root: bytes = to_bytes(str(folder))

    def files(self) -> FolderFiles:
        """Return the image files, by one listing of all objects; see ``LocalTree``."""
        scan = FolderScan()
        odd: list[str] = []
        # path, size, stamp
        others: list[tuple[bytes, int, int]] = []
        is_empty = True
        start = len(self.folder.key) + bool(self.folder.key)
        for path, status in self.folder.walk(odd):
            is_empty = False
            key = to_bytes(path.key[start:])
            above, slash, name = key.rpartition(b"/")
            suffix = suffix_of(name)
            if not status.st_size and not suffix:
                # what stands for a folder in some stores
                continue
            if any(map(is_hidden, key.split(b"/"))):
                scan.skipped["hidden"] += 1
                continue
            scan.add_folder(above + slash)
            if suffix in SUFFIXES:
                scan.add(key, status.st_size, stamp_of(status))
            else:
                others.append((key, status.st_size, stamp_of(status)))
        if is_empty and not odd:
            # a bucket that does not exist cannot be listed
            missing = "does not exist" if self.folder.key else "is empty: the bucket holds no objects"
            problem = "is not a folder" if self.folder.is_file() else missing
            raise InputError("folder-problem", folder=self.folder, problem=problem)
        for other, is_image in zip(
            others, in_flight(self._begins_like_an_image, others, _HEADS), strict=True
        ):
            if is_image:
                scan.add(*other)
            else:
                scan.skip(other[0], "not an image")
        if odd:
            scan.skipped["unusable key"] += len(odd)
        return scan.files()

    def at(self, path: bytes) -> RemotePath:
        """Return the object, or the folder, with a path relative to the folder; ``..`` is resolved."""
        if not path:
            return self.folder
        # a slash more than the key, so that .. does not leave the bucket
        key = posixpath.normpath(f"/{self.folder.key}/{to_text(path)}")
        return RemotePath(self.folder.scheme, self.folder.bucket, key.strip("/"))

    def _begins_like_an_image(self, other: tuple[bytes, int, int]) -> bool:
        key, size, _ = other
        head = read_range(self.at(key), 0, min(size, HEAD_BYTES))
        return starts_like_an_image(head, suffix_of(key.rpartition(b"/")[2]))


Tree: TypeAlias = "LocalTree | RemoteTree"


def tree_of(folder: str | bytes | os.PathLike[str], *, follow_links: bool) -> Tree:
    """Return the tree of files below a folder; for ``follow_links`` see ``LocalTree``."""
    root = any_path(os.fsdecode(folder))
    if isinstance(root, RemotePath):
        return RemoteTree(root)
    return LocalTree(os.path.realpath(os.fsencode(folder)), follow_links=follow_links)
