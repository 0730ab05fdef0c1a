"""``RemotePath``: an object, or all objects below a prefix, with the methods of ``pathlib.Path``."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias

from tfshards.schemas.storage.reader import RemoteReader, RemoteStatus, status_of
from tfshards.schemas.storage.stores import as_os_errors, store_of, too_short

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
