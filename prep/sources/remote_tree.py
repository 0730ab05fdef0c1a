"""A folder of an object store as a tree of files, and the choice between it and a local one."""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from tfshards.prep.imaging.formats import HEAD_BYTES, SUFFIXES
from tfshards.prep.sources.fetching import stamp_of
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.marks import note
from tfshards.prep.sources.tree import (
    FolderNames,
    ImageFile,
    LocalTree,
    is_hidden,
    starts_like_an_image,
    suffix_of,
)
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.storage import RemotePath, any_path, in_flight, is_remote, read_range

# Requests for the first bytes of objects without the suffix of an image.
_HEADS = 64


class RemoteTree(FolderNames):
    """A folder of objects; see ``LocalTree``."""

    def __init__(self, folder: RemotePath) -> None:
        super().__init__()
        self.folder: RemotePath = folder
        self.root: bytes = to_bytes(str(folder))
        # of any object, also hidden ones, with a slash at the end
        self._with_objects: set[bytes] = {b""}

    def images(self, skipped: Counter[str]) -> Iterator[ImageFile]:
        """Yield the image files in arbitrary order, by one listing of all objects; see ``LocalTree``."""
        odd: list[str] = []
        others: list[ImageFile] = []
        # objects without content and suffix, which may be the marks of folders
        marks: list[bytes] = []
        is_empty = True
        start = len(self.folder.key) + bool(self.folder.key)
        for path, status in self.folder.walk(odd):
            is_empty = False
            key = to_bytes(path.key[start:])
            above, slash, name = key.rpartition(b"/")
            suffix = suffix_of(name)
            if not status.st_size and not suffix:
                # the mark of the folder itself has an empty key
                marks += [key] if key else []
                continue
            is_visible = not any(map(is_hidden, key.split(b"/")))
            self._add_folders(above + slash)
            if not is_visible:
                skipped["hidden"] += 1
            elif suffix in SUFFIXES:
                yield ImageFile(key, status.st_size, stamp_of(status))
            else:
                others.append(ImageFile(key, status.st_size, stamp_of(status)))
        if is_empty and not odd:
            # a bucket that does not exist cannot be listed
            missing = "does not exist" if self.folder.key else "is empty: the bucket holds no objects"
            problem = "is not a folder" if self.folder.is_file() else missing
            raise InputError("folder-problem", folder=self.folder, problem=problem)
        for file, is_image in zip(others, in_flight(self._begins_like_an_image, others, _HEADS), strict=True):
            if is_image:
                yield file
            else:
                above, slash, name = file.key.rpartition(b"/")
                note(self.marks, above + slash, name)
                skipped["not an image"] += 1
        if odd:
            skipped["unusable key"] += len(odd)
        for key in marks:
            if key + b"/" not in self._with_objects:
                hidden = any(map(is_hidden, key.split(b"/")))
                skipped["hidden" if hidden else "not an image"] += 1

    def at(self, path: bytes) -> RemotePath:
        """Return the object, or the folder, with a path relative to the folder; ``..`` is resolved."""
        if not path:
            return self.folder
        # a slash more than the key, so that .. does not leave the bucket
        key = posixpath.normpath(f"/{self.folder.key}/{to_text(path)}")
        return RemotePath(self.folder.scheme, self.folder.bucket, key.strip("/"))

    def below(self, path: bytes) -> RemoteTree:
        """Return a folder, which need not be in this one."""
        return RemoteTree(self.at(path))

    def path(self, name: str) -> bytes:
        """Return a path, or a URL of the same bucket, relative to the folder, spelled in one way."""
        key = posixpath.normpath(name)
        if is_remote(name):
            there = any_path(name)
            assert isinstance(there, RemotePath)
            if (there.scheme, there.bucket) != (self.folder.scheme, self.folder.bucket):
                raise OptionsError("other-bucket", name=name, root=to_text(self.root))
            key = posixpath.relpath(f"/{there.key}", f"/{self.folder.key}")
        elif key.startswith("/"):
            raise OptionsError("url-and-local", name=name, root=to_text(self.root))
        return to_bytes(key)

    def _add_folders(self, folder: bytes) -> None:
        """Note the folder of an object, and those above it."""
        while folder not in self._with_objects:
            self._with_objects.add(folder)
            above, slash, name = folder[:-1].rpartition(b"/")
            if not any(map(is_hidden, folder.split(b"/"))):
                self.add_folder(above + slash, name)
            folder = above + slash

    def _begins_like_an_image(self, file: ImageFile) -> bool:
        head = read_range(self.at(file.key), 0, min(file.size, HEAD_BYTES))
        return starts_like_an_image(head, suffix_of(file.key.rpartition(b"/")[2]))


Tree: TypeAlias = "LocalTree | RemoteTree"


def tree_of(folder: str | bytes | os.PathLike[str], *, follow_links: bool) -> Tree:
    """Return the tree of files below a folder; for ``follow_links`` see ``LocalTree``."""
    root = any_path(os.fsdecode(folder))
    if isinstance(root, RemotePath):
        return RemoteTree(root)
    return LocalTree(os.path.realpath(os.fsencode(folder)), follow_links=follow_links)
