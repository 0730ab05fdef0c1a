"""Paths of files on disks and in stores: ``any_path`` makes them from text, ``RemotePath`` is an object.

A ``RemotePath`` is an object, or all objects below a prefix, with the methods of ``pathlib.Path``.
"""

from __future__ import annotations

import glob
import io
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias

from tfshards.schemas.errors import OptionsError, check_path
from tfshards.schemas.storage.reader import RemoteReader, RemoteStatus, status_of
from tfshards.schemas.storage.stores import SCHEMES, as_os_errors, require_obstore, store_of, too_short

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ObjectStore

_LISTED_TOGETHER = 1000
# Seconds before a listing that was cut is continued.
_WAITS = (0.2, 1, 3)


@dataclass(frozen=True, order=True)
class RemotePath:
    """An object of an object store, or the folder of all objects whose keys start with its key and a slash.

    Its methods do what those of ``pathlib.Path`` do, and raise OSError where those do; it holds no
    credentials. A folder exists as long as an object is in it: there is nothing to create or to remove.

    Attributes:
        scheme: ``"s3"``, ``"gs"`` or ``"az"``.
        bucket: name of the bucket or container.
        key: the key, without a slash at its start or end; empty for the whole bucket.
    """

    scheme: str
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.key}" if self.key else "")

    def __truediv__(self, other: str) -> RemotePath:
        joined = "/".join(part for part in (self.key, *str(other).split("/")) if part not in ("", "."))
        return self._of(joined)

    def _of(self, key: str) -> RemotePath:
        return RemotePath(self.scheme, self.bucket, key)

    @property
    def name(self) -> str:
        """The part of the key after its last slash; of a whole bucket, its name."""
        return self.key.rpartition("/")[2] or self.bucket

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        """The last suffix of the name, with its dot, or nothing."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> RemotePath:
        """The folder that holds it; of a whole bucket, itself."""
        return self._of(self.key.rpartition("/")[0])

    @property
    def parents(self) -> tuple[RemotePath, ...]:
        """The folders that hold it, from the innermost to the whole bucket."""
        return (self.parent, *self.parent.parents) if self.key else ()

    @property
    def store(self) -> ObjectStore:
        """The client of its bucket."""
        return store_of(self.scheme, self.bucket)

    def relative_to(self, folder: RemotePath) -> PurePosixPath:
        """Return the part of the key below a folder, or raise ValueError if the folder does not hold it."""
        return PurePosixPath(str(self)).relative_to(str(folder))

    def absolute(self) -> RemotePath:
        """Return itself: object stores have no links and no current folder."""
        return self

    resolve = absolute

    def stat(self) -> RemoteStatus:
        """Return what the store knows about the object."""
        with as_os_errors(self):
            return status_of(self.store.head(self.key))

    def exists(self) -> bool:
        """Return whether there is such an object, or a folder with objects."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Return whether there is such an object."""
        with suppress(FileNotFoundError):
            return bool(self.key and self.stat())
        return False

    def is_dir(self) -> bool:
        """Return whether there are objects in this folder, or it is a bucket."""
        return not self.key or any(True for _ in self.pages(1))

    def is_symlink(self) -> bool:
        """Return False: object stores have no links."""
        return False

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield the objects and folders in this folder."""
        for name in chain(*self.entries()):
            yield self / name

    def entries(self) -> tuple[list[str], dict[str, RemoteStatus]]:
        """Return the names of the folders in this folder, and the status of each object by its name."""
        [page] = self._continued(lambda _: [self.store.list_with_delimiter(self.key or None)])
        folders = [key.rstrip("/").rpartition("/")[2] for key in page["common_prefixes"]]
        return folders, {each["path"].rpartition("/")[2]: status_of(each) for each in page["objects"]}

    def walk(self) -> Iterator[tuple[RemotePath, RemoteStatus]]:
        """Yield every object at any depth, with its status in the listing.

        Keys that no client can name are errors: with empty parts, such as ``a//b``, with ``.`` or ``..`` as a
        part, or with control characters.
        """
        for page in self.pages(_LISTED_TOGETHER):
            for each in page:
                yield self._of(each["path"]), status_of(each)

    def pages(self, size: int = _LISTED_TOGETHER) -> Iterator[Any]:
        """Yield what the store lists of all objects below it, ``size`` of them at once."""
        return self._continued(lambda last: self.store.list(self.key or None, offset=last, chunk_size=size))

    def _continued(self, request: Callable[[str | None], Iterable[Any]]) -> Iterator[Any]:
        """Yield the pages of a listing after a key; one that is cut is continued, which no client does."""
        last: str | None = None
        waits = iter(_WAITS)
        while True:
            try:
                with as_os_errors(self):
                    for page in request(last):
                        if page:
                            yield page
                            # what was listed is not listed again
                            last = page[-1]["path"] if isinstance(page, list) else None
                return
            except ConnectionResetError:
                seconds = next(waits, None)
                if seconds is None:
                    raise
            time.sleep(seconds)

    def read_bytes(self) -> bytes:
        """Return the content of the object."""
        data = self.get()[1]
        assert data is not None
        return data

    def get(self, most_bytes: int | None = None) -> tuple[RemoteStatus, bytes | None]:
        """Return the status and the content by one request; no content if it has more than ``most_bytes``."""
        with as_os_errors(self):
            found = self.store.get(self.key)
            status = status_of(found.meta)
            is_small = most_bytes is None or status.st_size <= most_bytes
            return status, bytes(found.bytes()) if is_small else None

    def write_bytes(self, data: bytes) -> int:
        """Write an object, or replace it; no reader sees a part of it."""
        with as_os_errors(self):
            self.store.put(self.key, data, use_multipart=False)
        return len(data)

    def open(self) -> io.BufferedReader:
        """Open the object, in its present version, for reading; a sequential read fetches ahead."""
        status = self.stat()
        return io.BufferedReader(RemoteReader(status, partial(self.view_range, version=status.e_tag or None)))

    def view_range(self, start: int, end: int, version: str | None = None) -> memoryview:
        """Return the bytes ``[start, end)`` of the object, or of one version of it only."""
        options: GetOptions = {"range": (start, end)}
        if version:
            options["if_match"] = version
        data = memoryview(b"")
        if start < end:
            with as_os_errors(self):
                data = memoryview(self.store.get(self.key, options=options).bytes())
        if len(data) != end - start:
            raise too_short(self, start + len(data), end)
        return data

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object; not all stores report a missing one, so that it is never an error."""
        self.delete([self.key])

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a folder exists with its objects."""

    def rmdir(self) -> None:
        """Do nothing: a folder ends with its objects."""

    def delete(self, keys: list[str]) -> None:
        """Remove objects of the bucket, of which some may be missing."""
        with as_os_errors(self):
            try:
                if keys:
                    self.store.delete(keys)
            except FileNotFoundError:
                # another process removes the same objects; the others of these remain
                for key in keys:
                    with suppress(FileNotFoundError):
                        self.store.delete(key)


# A path of a local disk or of an object store; ``any_path`` makes it from text.
AnyPath: TypeAlias = Path | RemotePath


# A URL, of which pathlib keeps one slash, or a known scheme; a single letter is a drive.
_URL = re.compile(rf"({'|'.join(SCHEMES)}|[A-Za-z][A-Za-z0-9+.-]+(?=:/)):(/*)", re.IGNORECASE)
# greedy, since a password may contain @
_USER = re.compile(r"^([^:/]*:/*)[^/]*@")


def is_remote(path: object) -> bool:
    """Return whether a path is a URL, of any scheme."""
    if isinstance(path, RemotePath):
        return True
    return isinstance(path, (str, bytes, os.PathLike)) and _URL.match(os.fsdecode(path)) is not None


def on_disk(path: AnyPath) -> Path | None:
    """Return the path of what can be mapped into memory, opened in place or linked; None for objects."""
    return path if isinstance(path, Path) else None


def in_store(path: AnyPath) -> RemotePath | None:
    """Return the path of objects, which are listed with their status; None for files on disks."""
    return path if isinstance(path, RemotePath) else None


def is_absolute(text: str) -> bool:
    """Return whether the text of a path means the same in every folder: it is absolute, or a URL."""
    return os.path.isabs(text) or is_remote(text)


def absolute(path: AnyPath) -> AnyPath:
    """Return a path with the names of all folders above it, without following links."""
    return Path(os.path.abspath(path)) if isinstance(path, Path) else path


def real_name(path: AnyPath) -> str:
    """Return the text of an absolute path, with links followed, or of a URL."""
    return os.path.realpath(path) if isinstance(path, Path) else str(path)


def is_inside(path: AnyPath, folder: AnyPath) -> bool:
    """Return whether a path is a folder or below it, also by links."""
    inside, real = real_name(path), real_name(folder)
    return inside == real or inside.startswith(os.path.join(real, ""))


def matching(pattern: AnyPath, folder: AnyPath, compiled: Callable[[str], re.Pattern[str]]) -> list[AnyPath]:
    """Return the files below a folder whose paths match a pattern, in which ``**`` matches across folders.

    ``compiled`` returns the regular expression for keys of objects.
    """
    if isinstance(pattern, RemotePath) and isinstance(folder, RemotePath):
        matches = compiled(pattern.key).fullmatch
        return [path for path, _ in folder.walk() if matches(path.key)]
    return [Path(each) for each in glob.glob(str(pattern), recursive=True)]


def check_expanded(path: str) -> None:
    """Raise OptionsError if a path starts with the ``~`` of a home folder, which a shell has not expanded."""
    expanded = os.path.expanduser(path)
    if path.startswith("~") and expanded != path:
        raise OptionsError(
            f"{path} starts with ~, which the shell did not expand, since it is in quotes or follows =; "
            f"give {expanded}, or ./{path} if ~ is the beginning of a name"
        )


def local_path(path: str | bytes | os.PathLike[str]) -> Path:
    """Return ``path``, or raise OptionsError if it is a URL, whose scheme would name a local folder."""
    check_path("path", path)
    text = os.fsdecode(path)
    if is_remote(path):
        raise OptionsError(
            f"{_without_user(text)} is a URL, but only local paths, without file://, are supported; copy "
            "the files to a local disk, or mount their storage"
        )
    check_expanded(text)
    return Path(text)


def any_path(given: str | bytes | os.PathLike[str] | RemotePath, name: str = "path") -> AnyPath:
    """Return a local path, or the ``RemotePath`` of a URL such as ``s3://BUCKET/KEY``.

    Raises:
        OptionsError: it is a URL of another scheme, or is not of this form, or the extra ``remote`` is not
            installed; or it starts with the ``~`` of a home folder. ``name`` is that of the parameter.
    """
    if isinstance(given, RemotePath):
        return given
    check_path(name, given)
    text = os.fsdecode(given)
    url = _URL.match(text)
    if not url:
        check_expanded(text)
        # a pathlib.Path drops the "./" that says that ~ begins a name
        return Path.cwd() / text if text.startswith("./~") else Path(text)
    scheme = url[1].lower()
    if scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in SCHEMES)
        raise OptionsError(
            f"{_without_user(text)} is a URL of an unknown kind; only {known} and local paths, without "
            "file://, are supported: copy the files there, or to a local disk"
        )
    bucket, _, key = text[url.end() :].partition("/")
    key = key.removesuffix("/")
    # a pathlib.Path has one slash, and neither empty parts nor a slash at its end
    has_slashes = isinstance(given, os.PathLike) or url[2] == "//"
    is_plain = not key or not {"", ".", ".."} & {*key.split("/")}
    if not has_slashes or not bucket or not is_plain or ":" in bucket or "@" in bucket:
        # a password is not printed
        port = bucket.partition(":")[2]
        shown = f"{scheme}://..." if "@" in text or not (port or "0").isdecimal() else text
        raise OptionsError(
            f"{shown} is not a URL of a file or folder; write {scheme}://BUCKET/FOLDER, without empty "
            "parts, . or ..; credentials and the address of a server belong in the environment "
            "(docs/buckets.md)"
        )
    require_obstore()
    return RemotePath(scheme, bucket, key)


def _without_user(url: str) -> str:
    """Return a URL without the user and the password before its host."""
    return _USER.sub(r"\1", url)
