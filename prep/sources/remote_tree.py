"""A folder of an object store as a tree of files, and the choice between it and a local one."""

from __future__ import annotations

import io
import os
import posixpath
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import IO, Any, TypeVar

from tfshards.prep.imaging.formats import HEAD_BYTES, METADATA_NAMES, SUFFIXES
from tfshards.prep.sources.fetching import key_of, stamp_of
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.tree import ImageFile, LocalTree, Tree, is_hidden, starts_like_an_image, suffix_of
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.storage import RemotePath, RemoteStatus, any_path, is_remote, read_range
from tfshards.schemas.storage.reader import in_background

# Files that warnings name: those of these names, and of these suffixes some in each folder.
_NOTED = frozenset((b".txt", b".json", b".npy"))
_NOTED_NAMES = frozenset((*map(to_bytes, METADATA_NAMES), b"data.yaml", b"_annotations.coco.json"))
_MOST_NOTED = 100
# Requests for the first bytes of objects without the suffix of an image.
_HEADS = 64
_HEADER_BYTES = 32 << 10

Found = TypeVar("Found")


class RemoteTree:
    """A folder of objects; see ``Tree``. Before it is listed, questions are requests to the store.

    Attributes:
        root: URL of the folder.
        folder: the folder.
    """

    def __init__(self, folder: RemotePath) -> None:
        self.folder: RemotePath = folder
        self.root: bytes = to_bytes(str(folder))
        self._folders: dict[bytes, set[bytes]] | None = None
        self._noted: set[bytes] = set()
        self._counts: Counter[tuple[bytes, bytes]] = Counter()

    def problem(self) -> str | None:
        """Return None: only the listing shows whether there are objects in the folder."""
        return None

    def images(self, skipped: Counter[str]) -> Iterator[ImageFile]:
        """Yield the image files in arbitrary order, by one listing of all objects; see ``images_in``.

        Raises:
            InputError: there are no objects in the folder.
            OSError: the folder cannot be listed, or an object cannot be read whose suffix is not that of an
                image.
        """
        self._folders = {b"": set()}
        heads: deque[tuple[ImageFile, bytes, Future[bytes]]] = deque()
        odd: list[str] = []
        # objects without content and suffix, which may be the marks of folders
        marks: list[bytes] = []
        is_empty = True
        for path, status in self.folder.walk(odd):
            is_empty = False
            if path.key == self.folder.key:
                # the mark of the folder itself
                continue
            key = key_of(path, self.folder)
            above, _, name = key.rpartition(b"/")
            suffix = suffix_of(name)
            if not status.st_size and not suffix:
                marks.append(key)
                continue
            self._add_folder(above)
            if any(map(is_hidden, key.split(b"/"))):
                skipped["hidden"] += 1
                continue
            file = ImageFile(key, status.st_size, stamp_of(status))
            if suffix in SUFFIXES:
                yield file
                continue
            self._note(above, name, suffix)
            heads.append((file, suffix, in_background(self._head, path, status)))
            if len(heads) > _HEADS:
                yield from _with_head(heads.popleft(), skipped)
        while heads:
            yield from _with_head(heads.popleft(), skipped)
        if is_empty and not odd:
            # a bucket that does not exist cannot be listed
            missing = "does not exist" if self.folder.key else "is empty: the bucket holds no objects"
            problem = "is not a folder" if self.folder.is_file() else missing
            raise InputError("folder-problem", folder=self.folder, problem=problem)
        if odd:
            skipped["unusable key"] += len(odd)
        for key in marks:
            if key not in self._folders:
                hidden = any(map(is_hidden, key.split(b"/")))
                skipped["hidden" if hidden else "not an image"] += 1

    def folders(self, name: bytes = b"") -> list[bytes]:
        """Return the names of the visible folders in a folder, sorted."""
        if self._folders is not None and not _is_outside(name):
            found = self._folders.get(posixpath.normpath(name) if name else b"", set())
        else:
            found = {to_bytes(each.name) for each in self.at(name).iterdir() if each.is_dir()}
        return sorted(each for each in found if not is_hidden(each))

    def names(self, name: bytes) -> list[bytes]:
        """Return the names in a folder that is listed, sorted; of its files, those that were noted."""
        files = (key.rpartition(b"/") for key in self._noted)
        return sorted({*self.folders(name), *(file for folder, _, file in files if folder == name)})

    def is_dir(self, path: bytes) -> bool:
        """Return whether the folder holds objects."""
        if self._folders is None or _is_outside(path):
            return self.at(path).is_dir()
        return path == b"" or posixpath.normpath(path) in self._folders

    def is_file(self, path: bytes) -> bool:
        """Return whether there is such an object, which was noted in the listing."""
        return path in self._noted

    def holds(self, suffix: bytes) -> bool:
        """Return whether an object has this suffix, which must be one that is noted."""
        return any(key.endswith(suffix) for key in self._noted)

    def opened(self, path: bytes) -> IO[bytes] | None:
        """Return an object, of which the header is fetched, and of the rest what is read."""
        return io.BufferedReader(_Ranges(self.at(path)), _HEADER_BYTES)

    def map(self, call: Callable[[bytes], Found], paths: Sequence[bytes]) -> list[Found]:
        """Return the result of ``call`` for each path; the calls run at the same time."""
        return [future.result() for future in [in_background(call, path) for path in paths]]

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

    def at(self, path: bytes) -> RemotePath:
        """Return the object, or the folder, with a path relative to the folder; ``..`` is resolved."""
        if not path:
            return self.folder
        # a slash more than the key, so that .. does not leave the bucket
        key = posixpath.normpath(f"/{self.folder.key}/{to_text(path)}")
        return RemotePath(self.folder.scheme, self.folder.bucket, key.strip("/"))

    def _add_folder(self, folder: bytes) -> None:
        assert self._folders is not None
        new = []
        while folder not in self._folders:
            self._folders[folder] = set()
            above, _, name = folder.rpartition(b"/")
            new.append((above, name))
            folder = above
        for above, name in new:
            self._folders[above].add(name)

    def _note(self, folder: bytes, name: bytes, suffix: bytes) -> None:
        self._counts[folder, suffix] += suffix in _NOTED
        if name in _NOTED_NAMES or (suffix in _NOTED and self._counts[folder, suffix] <= _MOST_NOTED):
            self._noted.add(folder + b"/" + name if folder else name)

    @staticmethod
    def _head(path: RemotePath, status: RemoteStatus) -> bytes:
        return read_range(path, 0, min(status.st_size, HEAD_BYTES))


def _with_head(waiting: tuple[ImageFile, bytes, Future[bytes]], skipped: Counter[str]) -> Iterator[ImageFile]:
    """Yield a file if it begins like an image."""
    file, suffix, head = waiting
    if starts_like_an_image(head.result(), suffix):
        yield file
    else:
        skipped["not an image"] += 1


def _is_outside(path: bytes) -> bool:
    return path.split(b"/")[0] == b".."


class _Ranges(io.RawIOBase):
    """An object as a file, of which nothing is fetched ahead: for headers."""

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        status, self._start = path.get_start(_HEADER_BYTES)
        self._size = status.st_size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 -- any writable buffer
        end = min(self._size, self._at + len(buffer))
        data = self._start[self._at : end]
        if not data and end > self._at:
            data = read_range(self._path, self._at, end)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def tree_of(folder: str | bytes | os.PathLike[str], *, follow_links: bool) -> Tree:
    """Return the tree of files below a folder; for ``follow_links`` see ``LocalTree``."""
    root = any_path(os.fsdecode(folder))
    if isinstance(root, RemotePath):
        return RemoteTree(root)
    return LocalTree(os.path.realpath(os.fsencode(folder)), follow_links=follow_links)
