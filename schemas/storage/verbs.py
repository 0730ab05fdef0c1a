"""What is done to files on disks and to objects in stores, so that nobody else asks which of them it is.

On a disk a file gets its name when it is complete and flushed: it is written under another name on the same
file system, mostly in a folder of unfinished files, and renamed. An object appears when its upload ends.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tfshards.schemas.digests import NUM_LAST_BYTES
from tfshards.schemas.errors import InputError, size
from tfshards.schemas.storage.any_path import AnyPath, RemotePath, is_remote
from tfshards.schemas.storage.reader import RemoteStatus, in_flight
from tfshards.schemas.storage.stores import ChangedError, as_os_errors, require_obstore, store_of
from tfshards.schemas.storage.untrusted import open_regular, read_gradually, read_range

Item = TypeVar("Item")
Result = TypeVar("Result")

# Larger blocks no longer fit the caches of the cores, and are slower.
_BLOCK = 1 << 20
# Ranges of an object that are requested before they are needed.
_RANGES_AHEAD = 4
# Much larger writes make the kernel look for larger free pages, which can cost three times the system time.
_WRITE_BYTES = 1 << 16
# The parts of an upload: S3 takes 10,000 of at least 5 MiB, so that a shard may have 80 GB.
_PART = 8 << 20
_PARTS_IN_FLIGHT = 4


# Reading


def range_bytes(path: AnyPath) -> int:
    """Return how many bytes of a large file are best read at once: from a store, by a request."""
    # on a disk, as many as fit the caches of a core
    return 1 << 22 if isinstance(path, RemotePath) else 1 << 19


def ranges_of(path: AnyPath, ranges: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Yield the bytes ``[start, end)`` of a file for each range; fewer if a file on a disk ends before.

    An object that ends before raises ChangedError. Its next ranges are already requested.
    """
    if isinstance(path, RemotePath):
        yield from in_flight(lambda each: read_range(path, *each), ranges, _RANGES_AHEAD)
        return
    # a mapped file that is shortened meanwhile would end the process
    with open_regular(path, buffering=0) as file:
        for start, end in ranges:
            file.seek(start)
            yield read_gradually(file, end - start)


def may_pass(path: AnyPath | str | bytes, error: OSError) -> bool:
    """Return whether reading may succeed later: the connection to a store failed, or the store itself."""
    return is_remote(path) and error.errno not in (errno.ENOENT, errno.EACCES)


def read_once(path: AnyPath, tick: Callable[[int], object] | None = None) -> tuple[int, str, str]:
    """Return the size of a file, its digest in the form of the manifest, and its last bytes in hex.

    ``tick`` is called with the number of bytes of each block after it was read.
    """
    digest = hashlib.sha256()
    block = memoryview(bytearray(_BLOCK))
    size, last = 0, b""
    with open_regular(path, buffering=0) as file:
        while num_bytes := file.readinto(block):  # type: ignore[attr-defined]
            digest.update(block[:num_bytes])
            size += num_bytes
            last = (last + block[:num_bytes][-NUM_LAST_BYTES:])[-NUM_LAST_BYTES:]
            if tick:
                tick(num_bytes)
    return size, f"sha256:{digest.hexdigest()}", last.hex()


def file_digest(path: AnyPath, tick: Callable[[int], object] | None = None) -> str:
    """Return the digest of a file, in the form of the manifest; see ``read_once``."""
    return read_once(path, tick)[1]


# Writing


def new_file(path: AnyPath, unfinished: AnyPath | None = None) -> Sink:
    """Return a file that gets its name, in place of another one, when it is finished.

    ``unfinished`` is a folder on the same file system; by default a hidden name in the folder of the file is
    used. Attempts at the same file, by threads or by hosts that share a disk, do not disturb each other.
    """
    if isinstance(path, RemotePath):
        return _Upload(path)
    unique = secrets.token_hex(8)
    if unfinished is None:
        return _LocalSink(path.with_name(f".{path.name}.{unique}.tmp"), path)
    return _LocalSink(Path(str(unfinished)) / f"{path.name}.{unique}", path)


class Sink(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> None:
        """Write bytes after those that were written before."""

    def finish(self) -> None:
        """Make it a file that survives a power failure."""

    def abandon(self) -> None:
        """Leave nothing of it."""


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


def write(path: AnyPath, blocks: Iterable[bytes], unfinished: AnyPath | None = None) -> None:
    """Write blocks to a file of ``new_file``; an error, also of the iterable, leaves the old file."""
    sink = new_file(path, unfinished)
    try:
        for block in blocks:
            sink.write(block)
        sink.finish()
    except BaseException:
        sink.abandon()
        raise
    if unfinished is None:
        sync(path.parent)


def put(path: AnyPath, data: bytes, unfinished: AnyPath | None = None) -> None:
    """Write a small file so that neither a reader nor a crash sees a part of it."""
    if isinstance(path, RemotePath):
        path.write_bytes(data)
    else:
        write(path, [data], unfinished)


def version(path: AnyPath) -> RemoteStatus | None:
    """Return the version of a file for ``replace_if``, or None if there is none.

    Ask for it before the content is read: then a newer one is not replaced.
    """
    with suppress(FileNotFoundError):
        if isinstance(path, RemotePath):
            return path.stat()
        status = path.stat()
        return RemoteStatus(status.st_size, status.st_mtime_ns, "", "")
    return None


def replace_if(path: AnyPath, data: bytes, replaced: RemoteStatus | None, unfinished: AnyPath) -> None:
    """Write a file in place of an old one; on a disk, the caller holds the lock of its folder.

    An object must still be the version ``replaced``, or be missing if that is None. Otherwise ChangedError or
    FileExistsError is raised.
    """
    if isinstance(path, Path):
        put(path, data, unfinished)
        return
    named = {} if replaced is None else {"e_tag": replaced.e_tag, "version": replaced.version}
    mode: Any = {name: value for name, value in named.items() if value} or "create"
    try:
        with as_os_errors(path):
            path.store.put(path.key, data, mode=mode, use_multipart=False)
    except (FileExistsError, ChangedError):
        # a request whose answer was lost is repeated, and finds what it wrote itself
        with suppress(FileNotFoundError):
            if path.read_bytes() == data:
                return
        raise


def sync(*paths: AnyPath) -> None:
    """Flush files, or the names in folders, to disk; objects are durable as soon as they appear."""
    for path in paths:
        if isinstance(path, Path):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def require_space(folder: AnyPath, num_bytes: int, what: str) -> None:
    """Raise InputError if the file system of ``folder`` has fewer than ``num_bytes`` free."""
    free = shutil.disk_usage(folder).free if isinstance(folder, Path) else num_bytes
    if num_bytes > free:
        raise InputError(
            f"{folder}: {what} needs about {size(num_bytes)}, but only {size(free)} is free; free some "
            "space, or choose an output on another disk",
            code="disk-full",
        )


# Many files


def each(folder: AnyPath, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return the result of a call for each item; to a store, many requests are made at the same time."""
    return [*(map(call, items) if isinstance(folder, Path) else in_flight(call, items))]


def exists(path: AnyPath) -> bool:
    """Return whether there is anything of this name, which on a disk may be a link that leads nowhere."""
    return os.path.lexists(path) if isinstance(path, Path) else path.exists()


def first_entry(folder: AnyPath) -> AnyPath:
    """Return something in a folder, since another one may have the same path; or a file or object itself."""
    if isinstance(folder, Path) and folder.is_dir():
        # only one, since a folder may have millions of them
        with os.scandir(folder) as entries:
            return next((folder / entry.name for entry in entries), folder)
    return folder


def files_in(folder: AnyPath) -> list[str]:
    """Return the names of the files in a folder, without those in folders below it; links lead nowhere."""
    if isinstance(folder, RemotePath):
        return [*folder.entries()[1]]
    if folder.is_symlink() or not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]


def sizes_below(folder: AnyPath) -> dict[str, int]:
    """Return the size of each file in a folder, at any depth, by its path there.

    Links that lead nowhere are left out, and folders that links lead to.
    """
    if isinstance(folder, RemotePath):
        return {path.relative_to(folder).as_posix(): status.st_size for path, status in folder.walk()}
    paths = [Path(inside, name) for inside, _, names in os.walk(folder) for name in names]
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths if path.exists()}


def _listed(root: RemotePath, folders: Iterable[str]) -> dict[str, RemoteStatus]:
    """Return the status of each object in these folders of a folder, by its path there."""
    listings = [(folder, (root / folder).entries()[1]) for folder in folders]
    return {posixpath.join(folder, name): each for folder, found in listings for name, each in found.items()}


def file_sizes(root: AnyPath, names: Collection[str]) -> dict[str, int | OSError]:
    """Return the size of each file in a folder, or why it cannot be read; objects are listed."""
    sizes: dict[str, int | OSError] = {}
    if isinstance(root, RemotePath):
        missing = FileNotFoundError(errno.ENOENT, "there is no such object")
        try:
            found = _listed(root, {*map(posixpath.dirname, names)})
        except OSError as error:
            return dict.fromkeys(names, error)
        return {name: found[name].st_size if name in found else missing for name in names}
    for name in names:
        try:
            sizes[name] = (root / name).stat().st_size
        except OSError as error:
            sizes[name] = error
    return sizes


def mark_of(folder: AnyPath, names: Collection[str], num_bytes: Mapping[str, int]) -> dict[str, str]:
    """Return what shows whether a finished object is replaced later, its ETag, by path; nothing on disks.

    OSError is raised if one is missing, or has other than the stated ``num_bytes``.
    """
    if isinstance(folder, Path):
        return {}
    found = dict(each(folder, lambda name: (name, (folder / name).stat()), names))
    for name, wanted in num_bytes.items():
        if found[name].st_size != wanted:
            has = f"has {found[name].st_size} bytes, but {wanted} were uploaded"
            raise OSError(None, has, str(folder / name))
    return {name: status.e_tag for name, status in found.items()}


def unchanged(folder: AnyPath) -> Callable[[Mapping[str, str], Mapping[str, str]], bool]:
    """Return a function of digests and of marks by path: whether these files are still as they were written.

    On a disk their digests are computed. Objects are compared with one listing: reading them again would
    take as long as writing them, while an object cannot change in part. It is what one upload wrote, whose
    ETag is its mark, or another one.
    """
    found = _listed(folder, ("", "index")) if isinstance(folder, RemotePath) else None

    def is_unchanged(digests: Mapping[str, str], marks: Mapping[str, str]) -> bool:
        if found is not None:
            return all(name in found and found[name].e_tag == marks.get(name) for name in digests)
        with suppress(OSError):
            return all(file_digest(folder / name) == digest for name, digest in digests.items())
        return False

    return is_unchanged


# Folders


def missing_folders(folder: AnyPath) -> list[Path]:
    """Return a folder and those that hold it, outwards, which have to be created; none in a store."""
    if isinstance(folder, RemotePath):
        return []
    return [path for path in (folder, *folder.parents) if not path.exists()]


def make_folder(folder: AnyPath) -> None:
    """Create a folder unless it exists; in a store, folders exist with their objects."""
    if isinstance(folder, Path) and not folder.is_dir():
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


@contextmanager
def new_folder(folder: AnyPath, unfinished: AnyPath) -> Iterator[AnyPath]:
    """Yield where to write the first files of a new folder, which on a disk gets its name at the end."""
    if isinstance(folder, RemotePath):
        yield folder
        return
    unfinished.mkdir()
    yield unfinished
    sync(unfinished)
    moved(unfinished, folder)


def moved(folder: AnyPath, target: AnyPath) -> AnyPath:
    """Return where a folder is after giving it another name at once; in a store it keeps its name."""
    if isinstance(folder, RemotePath):
        return folder
    os.rename(str(folder), str(target))
    sync(target.parent)
    return target


def delete(folder: AnyPath, names: Collection[str]) -> None:
    """Remove files of a folder, given by their paths in it; missing ones are no error."""
    if isinstance(folder, RemotePath):
        folder.delete([(folder / name).key for name in names])
        return
    for name in names:
        (folder / name).unlink(missing_ok=True)


def delete_tree(folder: AnyPath, last: str = "") -> None:
    """Remove a folder with all that is in it, the file ``last`` at the end; errors are left to later."""
    if isinstance(folder, Path):
        with suppress(OSError):
            others = [path for path in folder.iterdir() if last and path.name != last]
            for path in others:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            if others:
                sync(folder)
            shutil.rmtree(folder, ignore_errors=True)
            # Changes after the last sync may be in any state. That these are removals of no importance does
            # not help where e2fsck (1.47.0) replays fast commits of ext4: it then lost the dataset.
            sync(folder.parent)
        return
    kept = (folder / last).key if last else ""
    for page in folder.pages():
        folder.delete([each["path"] for each in page if each["path"] != kept])
    if kept:
        folder.delete([kept])
