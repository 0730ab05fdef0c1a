"""A folder of an object store as a tree of files, and the choice between it and a local one."""

from __future__ import annotations

import io
import os
import posixpath
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import IO, Any, TypeAlias, TypeVar

from tfshards.prep.imaging.formats import HEAD_BYTES, SUFFIXES
from tfshards.prep.sources.fetching import stamp_of
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.marks import Marks, note
from tfshards.prep.sources.tree import ImageFile, LocalTree, is_hidden, starts_like_an_image, suffix_of
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.storage import RemotePath, any_path, is_remote, read_range
from tfshards.schemas.storage.reader import RemoteReader, in_background

# Requests for the first bytes of objects without the suffix of an image.
_HEADS = 64
_HEADER_BYTES = 32 << 10

Found = TypeVar("Found")


class RemoteTree:
    """A folder of objects; see ``LocalTree``. Before it is listed, questions are requests to the store."""

    def __init__(self, folder: RemotePath) -> None:
        self.folder: RemotePath = folder
        self.root: bytes = to_bytes(str(folder))
        self._folders: dict[bytes, set[bytes]] | None = None
        self.marks: Marks = {}

    def images(self, skipped: Counter[str]) -> Iterator[ImageFile]:
        """Yield the image files in arbitrary order, by one listing of all objects; see ``LocalTree``."""
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
            key = to_bytes(str(path.relative_to(self.folder)))
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
            heads.append((file, suffix, in_background(read_range, path, 0, min(status.st_size, HEAD_BYTES))))
            if len(heads) > _HEADS:
                yield from self._with_head(*heads.popleft(), skipped)
        while heads:
            yield from self._with_head(*heads.popleft(), skipped)
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

    def is_dir(self, path: bytes) -> bool:
        """Return whether the folder holds objects."""
        if self._folders is None or _is_outside(path):
            return self.at(path).is_dir()
        return path == b"" or posixpath.normpath(path) in self._folders

    def opened(self, path: bytes) -> IO[bytes]:
        """Return an object, of which the header is fetched, and of the rest what is read."""
        return io.BufferedReader(_Header(self.at(path)), _HEADER_BYTES)

    def map(self, call: Callable[[bytes], Found], paths: Sequence[bytes]) -> list[Found]:
        """Return the result of ``call`` for each path; the calls run at the same time."""
        return [future.result() for future in [in_background(call, path) for path in paths]]

    def holds(self, path: bytes) -> bool:
        """Return True, since there are no links."""
        return True

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
        if folder not in self._folders:
            self._folders[folder] = set()
            above, slash, name = folder.rpartition(b"/")
            if not any(map(is_hidden, folder.split(b"/"))):
                note(self.marks, above + slash, name + b"/")
            self._add_folder(above)
            self._folders[above].add(name)

    def _with_head(
        self, file: ImageFile, suffix: bytes, head: Future[bytes], skipped: Counter[str]
    ) -> Iterator[ImageFile]:
        """Yield a file if it begins like an image."""
        if starts_like_an_image(head.result(), suffix):
            yield file
        else:
            above, slash, name = file.key.rpartition(b"/")
            note(self.marks, above + slash, name)
            skipped["not an image"] += 1


def _is_outside(path: bytes) -> bool:
    return path.split(b"/")[0] == b".."


class _Header(RemoteReader):
    """An object as a file, of which nothing but the header is fetched ahead."""

    def __init__(self, path: RemotePath) -> None:
        status, self._start = path.get_start(_HEADER_BYTES)
        super().__init__(status, path.read_range)

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 -- any writable buffer
        start, end = self._at, min(self.status.st_size, self._at + len(buffer))
        data = self._start[start:end] or self._read_range(start, max(start, end))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


Tree: TypeAlias = "LocalTree | RemoteTree"


def tree_of(folder: str | bytes | os.PathLike[str], *, follow_links: bool) -> Tree:
    """Return the tree of files below a folder; for ``follow_links`` see ``LocalTree``."""
    root = any_path(os.fsdecode(folder))
    if isinstance(root, RemotePath):
        return RemoteTree(root)
    return LocalTree(os.path.realpath(os.fsencode(folder)), follow_links=follow_links)
