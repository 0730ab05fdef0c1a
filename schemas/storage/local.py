"""Files and folders on disks, which somebody else may have made: only regular files are opened.

A pipe blocks whoever opens it, a device may never end, and a sparse file has terabytes without using a disk.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PosixPath
from typing import BinaryIO

from tfshards.schemas.errors import InputError, size
from tfshards.schemas.storage.locking import locked
from tfshards.schemas.storage.reader import RemoteStatus
from tfshards.schemas.storage.stored import Sink, Stored
from tfshards.schemas.storage.stores import too_short

# Much larger writes make the kernel look for larger free pages, which can cost three times the system time.
_WRITE_BYTES = 1 << 16
_FLAGS = os.O_NONBLOCK | os.O_NOCTTY


class LocalPath(PosixPath, Stored):
    """A file or a folder on a disk; ``RemotePath`` has the same methods."""

    is_far = False

    # Names

    def normalized(self) -> LocalPath:
        """Return the absolute path without ``.`` and ``..``, and without following links."""
        return LocalPath(os.path.abspath(self))

    def real_name(self) -> str:
        """Return the text of the absolute path, with links followed, or of a URL."""
        return os.path.realpath(self)

    def is_taken(self) -> bool:
        """Return whether there is anything of this name, which may be a link that leads nowhere."""
        return os.path.lexists(self)

    # Reading

    def open_regular(self, buffering: int = -1) -> BinaryIO:
        """Open it for reading bytes, or raise OSError, also of a pipe, a device, a socket or a folder."""
        return open(self, "rb", buffering=buffering, opener=_opened)

    def get(self, most_bytes: int) -> tuple[os.stat_result, bytes | None]:
        """Return status and content of a regular file, without content if it has more than ``most_bytes``."""
        return read_most(os.fspath(self), most_bytes)

    def read_range(self, start: int, end: int, version: str | None = None) -> bytes:
        """Return the bytes ``[start, end)``; with the ETag of an object, only of this version of it.

        Raises:
            ChangedError: the file is shorter, or the object is another version.
        """
        with self.open_regular(buffering=0) as file:
            file.seek(start)
            data = file.read(end - start)
        if len(data) != end - start:
            raise too_short(self, start + len(data), end)
        return data

    @contextmanager
    def local_copy(self) -> Iterator[LocalPath]:
        """Yield the file itself, or of an object a copy on this machine, which is removed after the block.

        What was mapped or opened by then stays readable.
        """
        yield self

    # Writing

    def new_file(self, unfinished: Stored | None = None) -> Sink:
        """Return a file that gets this name, in place of another one, when it is finished.

        ``unfinished`` is a folder on the same file system; by default a hidden name in the same folder is
        used. Attempts at the same file, by threads or by hosts that share a disk, do not disturb each other.
        """
        unique = os.urandom(8).hex()
        if unfinished is None:
            return _LocalSink(self.with_name(f".{self.name}.{unique}.tmp"), self)
        return _LocalSink(Path(str(unfinished)) / f"{self.name}.{unique}", self)

    def put(self, data: bytes, unfinished: Stored | None = None) -> None:
        """Write a small file so that neither a reader nor a crash sees a part of it."""
        self.write([data], unfinished)

    def take(self, file: Path) -> None:
        """Give a complete file this name; it is on the same file system, or uploaded to a store."""
        LocalPath(file).sync()
        file.replace(self)
        self.parent.sync()

    def replace_if(self, data: bytes, replaced: RemoteStatus | None, unfinished: Stored) -> None:
        """Write it in place of an old file; on a disk, the caller holds the lock of its folder.

        An object must still be the version ``replaced``, or be missing if that is None. Otherwise
        ChangedError or FileExistsError is raised.
        """
        self.put(data, unfinished)

    def sync(self, *inner: str) -> None:
        """Flush a file, or the names in a folder, to disk, after those of folders in it.

        Objects are durable as soon as they appear.
        """
        for path in (*map(self.joinpath, inner), self):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def require_space(self, num_bytes: int, what: str) -> None:
        """Raise InputError if fewer than ``num_bytes`` can be written to a folder; a store has no limit."""
        import shutil

        free = shutil.disk_usage(self).free
        if num_bytes > free:
            raise InputError(
                f"{self}: {what} needs about {size(num_bytes)}, but only {size(free)} is free; free some "
                "space, or choose an output on another disk",
                code="disk-full",
            )

    # Many files

    def files_below(self) -> Iterator[tuple[LocalPath, os.stat_result]]:
        """Yield each file at any depth of a folder, with its status.

        Links that lead nowhere are left out, and folders that links lead to. Keys that no client can name are
        errors: with empty parts, such as ``a//b``, ``.`` or ``..`` as a part, or control characters.
        """
        for path in (LocalPath(inside, name) for inside, _, names in os.walk(self) for name in names):
            # another process may rename it meanwhile
            with suppress(FileNotFoundError):
                if path.exists():
                    yield path, path.stat()

    # Folders

    def locked(self) -> AbstractContextManager[str]:
        """Lock a folder against other processes that lock it; yield what to tell the user about the lock.

        Raises:
            InputError: another process holds the lock, or the folder is gone.
        """
        return locked(self)

    def folders_to_make(self) -> list[LocalPath]:
        """Return the folder and those that hold it, outwards, which have to be created; none in a store."""
        return [path for path in (self, *self.parents) if not path.exists()]

    def make_folder(self) -> None:
        """Create a folder unless it exists; in a store, folders exist with their objects."""
        if not self.is_dir():
            self.mkdir(exist_ok=True)
            self.parent.sync()

    @contextmanager
    def new_folder(self, unfinished: Stored) -> Iterator[LocalPath]:
        """Yield where to write the first files of a new folder, which on a disk gets its name at the end."""
        made = LocalPath(str(unfinished))
        made.mkdir()
        yield made
        made.sync()
        made.moved(self)

    def moved(self, target: Stored) -> LocalPath:
        """Return where a folder is after giving it another name at once; in a store it keeps its name."""
        moved = self.rename(str(target))
        moved.parent.sync()
        return moved

    def delete_tree(self, last: str = "") -> None:
        """Remove a folder with all that is in it, the file ``last`` at the end; errors are left to later."""
        import shutil

        with suppress(OSError):
            others = [path for path in self.iterdir() if last and path.name != last]
            for path in others:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            if others:
                self.sync()
            shutil.rmtree(self, ignore_errors=True)
            # Changes after the last sync may be in any state. That these are removals of no importance does
            # not help where e2fsck (1.47.0) replays fast commits of ext4: it then lost the dataset.
            self.parent.sync()


class _LocalSink:
    def __init__(self, unfinished: Path, path: Path) -> None:
        self._unfinished, self._path = unfinished, path
        self._file = unfinished.open("xb", buffering=0)

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            # a signal or a nearly full disk can cut a write short
            rest = rest[os.write(self._file.fileno(), rest[:_WRITE_BYTES]) :]

    def finish(self) -> None:
        os.fsync(self._file.fileno())
        self._file.close()
        self._unfinished.replace(self._path)

    def abandon(self) -> None:
        self._file.close()
        # on a full disk, the file that reports the error needs the space
        with suppress(OSError):
            self._unfinished.unlink()


def read_most(path: str | bytes, most_bytes: int) -> tuple[os.stat_result, bytes | None]:
    """Return the status and the content of a file; no content if it has more than ``most_bytes``.

    It is fast for many small files. OSError is raised also of a pipe, a device or a socket.
    """
    # os.open makes a third of the system calls of open
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _FLAGS)
    try:
        before = os.fstat(descriptor)
        _check_regular(before, path)
        data, left = b"", before.st_size if before.st_size <= most_bytes else 0
        # not up to the end, which files of /proc may not have
        while len(data) < left and (more := os.read(descriptor, left - len(data))):
            data += more
        # a file that is changed meanwhile has another time
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return status, data if len(data) == status.st_size else None


def _opened(path: str, flags: int) -> int:
    # the file may have become a pipe
    descriptor = os.open(path, flags | _FLAGS)
    try:
        _check_regular(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_regular(status: os.stat_result, path: str | bytes) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(None, "is not a regular file", os.fsdecode(path))
