"""Objects of stores, with the methods of ``pathlib.Path`` that tfshards uses."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

from tfshards.schemas.storage.local import LocalPath
from tfshards.schemas.storage.reader import RemoteReader, RemoteStatus, status_of
from tfshards.schemas.storage.stored import Sink, Stored
from tfshards.schemas.storage.stores import (
    LISTING_WAITS,
    ChangedError,
    as_os_errors,
    require_obstore,
    store_of,
    too_short,
)

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ObjectStore

_LISTED_TOGETHER = 1000
# The parts of an upload: S3 takes 10,000 of at least 5 MiB, so that a shard may have 80 GB.
_PART = 8 << 20
_PARTS_IN_FLIGHT = 4
_COPY_BYTES = 1 << 20
# Characters of a name that end the name of a copy.
_NAME_ENDING = 32


@dataclass(frozen=True, order=True)
class RemotePath(Stored):
    """An object of an object store, or the folder of all objects whose keys start with its key and a slash.

    Its methods do what those of ``pathlib.Path`` do, and raise OSError where those do; for the others see
    ``Stored``. It holds no credentials. A folder exists as long as an object is in it: there is nothing to
    create or to remove.

    Attributes:
        scheme: ``"s3"``, ``"gs"`` or ``"az"``.
        bucket: name of the bucket or container.
        key: the key, without a slash at its start or end; empty for the whole bucket.
    """

    scheme: str
    bucket: str
    key: str

    is_far = True

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
        return PurePosixPath(str(self)).relative_to(str(folder))

    def absolute(self) -> RemotePath:
        return self

    resolve = absolute

    normalized = absolute

    def real_name(self) -> str:
        return str(self)

    def stat(self) -> RemoteStatus:
        with as_os_errors(self):
            return status_of(self.store.head(self.key))

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    is_taken = exists

    def is_file(self) -> bool:
        with suppress(FileNotFoundError):
            return bool(self.key and self.stat())
        return False

    def is_dir(self) -> bool:
        return not self.key or any(True for _ in self._pages(1))

    def is_symlink(self) -> bool:
        return False

    def iterdir(self) -> Iterator[RemotePath]:
        with as_os_errors(self):
            page = self.store.list_with_delimiter(self.key or None)
        for key in (*page["common_prefixes"], *(each["path"] for each in page["objects"])):
            yield self._of(key.rstrip("/"))

    def _pages(self, size: int = _LISTED_TOGETHER) -> Iterator[Any]:
        """Yield what the store lists of all objects below it, ``size`` of them at once.

        A listing that is cut, of millions of objects, is continued: clients repeat single requests only.
        """
        last: str | None = None
        waits = iter(LISTING_WAITS)
        while True:
            try:
                with as_os_errors(self):
                    for page in self.store.list(self.key or None, offset=last, chunk_size=size):
                        yield page
                        last = page[-1]["path"] if page else last
                return
            except ConnectionResetError:
                seconds = next(waits, None)
                if seconds is None:
                    raise
            time.sleep(seconds)

    def files_below(self) -> Iterator[tuple[RemotePath, RemoteStatus]]:
        for page in self._pages():
            for each in page:
                yield self._of(each["path"]), status_of(each)

    def read_bytes(self) -> bytes:
        data = self.get()[1]
        assert data is not None
        return data

    def get(self, most_bytes: int | None = None) -> tuple[RemoteStatus, bytes | None]:
        with as_os_errors(self):
            found = self.store.get(self.key)
            status = status_of(found.meta)
            is_small = most_bytes is None or status.st_size <= most_bytes
            return status, bytes(found.bytes()) if is_small else None

    def open_regular(self, buffering: int = -1) -> BinaryIO:
        """Open the object, in its present version, for reading; a sequential read fetches ahead."""
        status = self.stat()
        return io.BufferedReader(RemoteReader(status, partial(self.read_range, version=status.e_tag or None)))

    def read_range(self, start: int, end: int, version: str | None = None) -> memoryview:
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

    @contextmanager
    def local_copy(self) -> Iterator[LocalPath]:
        import shutil
        import tempfile

        # with the suffixes of its name, which may be longer than that of a file
        with tempfile.NamedTemporaryFile(prefix="tfshards-", suffix=self.name[-_NAME_ENDING:]) as copy:
            with self.open_regular() as source:
                shutil.copyfileobj(source, copy, _COPY_BYTES)
            copy.flush()
            yield LocalPath(copy.name)

    def write_bytes(self, data: bytes) -> int:
        """Write an object, or replace it; no reader sees a part of it."""
        with as_os_errors(self):
            self.store.put(self.key, data, use_multipart=False)
        return len(data)

    def put(self, data: bytes, unfinished: Stored | None = None) -> None:
        self.write_bytes(data)

    def new_file(self, unfinished: Stored | None = None) -> Sink:
        return _Upload(self)

    def take(self, file: Path) -> None:
        with file.open("rb") as source:
            self.write(iter(partial(source.read, _COPY_BYTES), b""))

    def replace_if(self, data: bytes, replaced: RemoteStatus | None, unfinished: Stored) -> None:
        named = {} if replaced is None else {"e_tag": replaced.e_tag, "version": replaced.version}
        mode: Any = {name: value for name, value in named.items() if value} or "create"
        try:
            with as_os_errors(self):
                self.store.put(self.key, data, mode=mode, use_multipart=False)
        except (FileExistsError, ChangedError):
            # a request whose answer was lost is repeated, and finds what it wrote itself
            with suppress(FileNotFoundError):
                if self.read_bytes() == data:
                    return
            raise

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object; not all stores report a missing one, so that it is never an error."""
        self._delete([self.key])

    def _delete(self, keys: list[str]) -> None:
        """Remove objects of the bucket by few requests; some may be missing."""
        with as_os_errors(self):
            try:
                if keys:
                    self.store.delete(keys)
            except FileNotFoundError:
                # another process removes the same objects; the others of these remain
                for key in keys:
                    with suppress(FileNotFoundError):
                        self.store.delete(key)

    def delete_files(self, names: Iterable[str]) -> None:
        self._delete([(self / name).key for name in names])

    def delete_tree(self, last: str = "") -> None:
        self.delete_files(name for name in self.sizes_below() if name != last)
        if last:
            (self / last).unlink()

    # What folders and disks need, and stores do not.

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None: ...

    def rmdir(self) -> None: ...

    def make_folder(self) -> None: ...

    def sync(self, *inner: str) -> None: ...

    def require_space(self, num_bytes: int, what: str) -> None: ...

    def locked(self) -> AbstractContextManager[str]:
        return nullcontext("")

    def folders_to_make(self) -> list[RemotePath]:
        return []

    def new_folder(self, unfinished: Stored) -> AbstractContextManager[RemotePath]:
        return nullcontext(self)

    def moved(self, target: Stored) -> RemotePath:
        return self


class _Upload:
    def __init__(self, path: RemotePath) -> None:
        self._path = path
        with as_os_errors(path):
            self._file = require_obstore().open_writer(
                store_of(path.scheme, path.bucket, uploads=True),
                path.key,
                buffer_size=_PART,
                max_concurrency=_PARTS_IN_FLIGHT,
            )

    def write(self, data: bytes) -> None:
        with as_os_errors(self._path):
            self._file.write(data)

    def finish(self) -> None:
        with as_os_errors(self._path):
            self._file.close()

    def abandon(self) -> None:
        # an error makes obstore remove the parts
        error = InterruptedError()
        with suppress(OSError), as_os_errors(self._path):
            self._file.__exit__(InterruptedError, error, None)
