"""What is done to files on disks and to objects in stores, so that nobody else asks which of them it is.

On a disk a file gets its name when it is complete and flushed: it is written in a folder of unfinished files
on the same file system and renamed. An object appears when its upload ends.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from tfshards.schemas.storage.listing import RemoteStatus
from tfshards.schemas.storage.reader import in_flight
from tfshards.schemas.storage.remote_path import AnyPath, RemotePath
from tfshards.schemas.storage.untrusted import open_regular, read_gradually, read_range
from tfshards.schemas.storage.writing import Sink, abort_uploads, link_file, local_sink, open_sink

Item = TypeVar("Item")
Result = TypeVar("Result")

_BLOCK = 1 << 20
# Ranges of an object that are requested before they are needed.
_RANGES_AHEAD = 4


def new_file(path: AnyPath, unfinished: AnyPath) -> Sink:
    """Return a file that gets its name, in place of another one, when it is finished.

    ``unfinished`` is a folder on the same file system. Attempts at the same file do not disturb each other.
    """
    if isinstance(path, Path):
        return local_sink(Path(str(unfinished)) / f"{path.name}.{secrets.token_hex(8)}", path)
    return open_sink(path)


def put(path: AnyPath, data: bytes, unfinished: AnyPath) -> None:
    """Write a small file so that neither a reader nor a crash sees a part of it."""
    if isinstance(path, RemotePath):
        path.write_bytes(data)
        return
    sink = new_file(path, unfinished)
    try:
        sink.write(data)
        sink.finish()
    except BaseException:
        sink.abandon()
        raise


def range_bytes(path: AnyPath) -> int:
    """Return how many bytes of a large file are best read at once: from a store, by a request."""
    # on a disk, as many as fit the caches of a core
    return 1 << 22 if isinstance(path, RemotePath) else 1 << 19


def link(source: AnyPath, path: AnyPath, unfinished: AnyPath) -> None:
    """Give a file that never changes a second name, in place of another file, or copy it.

    On a disk it is a hard link if the file system allows one; a store copies inside of a bucket itself.
    """
    if isinstance(path, RemotePath):
        link_file(source, path)
        return
    temporary = Path(str(unfinished)) / f"{path.name}.{secrets.token_hex(8)}"
    link_file(source, temporary)
    temporary.replace(path)


def names_files_at_end(folder: AnyPath) -> bool:
    """Return whether files are written under other names and renamed, as on disks."""
    return isinstance(folder, Path)


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


def version(path: AnyPath) -> RemoteStatus | None:
    """Return the version of an object for ``replace_if``; None on a disk, and if there is no object.

    Ask for it before the content is read: then a newer one is not replaced.
    """
    if isinstance(path, RemotePath):
        with suppress(FileNotFoundError):
            return path.stat()
    return None


def replace_if(path: AnyPath, data: bytes, replaced: RemoteStatus | None, unfinished: AnyPath) -> None:
    """Write a file in place of an old one; on a disk, the caller holds the lock of its folder.

    An object must still be the version ``replaced``, or be missing if that is None. Otherwise ChangedError or
    FileExistsError is raised.
    """
    if isinstance(path, RemotePath):
        path.write_if(data, replaced)
    else:
        put(path, data, unfinished)


def sync(*folders: AnyPath) -> None:
    """Flush the names of files in these folders to disk; objects are durable as soon as they appear."""
    for folder in folders:
        # Windows cannot open a folder, and has no such call.
        if isinstance(folder, Path) and os.name != "nt":
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def exists(path: AnyPath) -> bool:
    """Return whether there is anything of this name, which on a disk may be a link that leads nowhere."""
    return os.path.lexists(path) if isinstance(path, Path) else path.exists()


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
    os.rename(str(unfinished), str(folder))
    sync(folder.parent)


def moved(folder: AnyPath, target: AnyPath) -> AnyPath:
    """Return where a folder is after giving it another name at once; in a store it keeps its name."""
    if isinstance(folder, RemotePath):
        return folder
    os.rename(str(folder), str(target))
    sync(target.parent)
    return target


def holds_only(folder: AnyPath, name: str) -> bool:
    """Return whether there is one file, or one folder, in a folder, which has this name."""
    return [path.name for path in folder.iterdir()] == [name]


def files_in(folder: AnyPath) -> list[str]:
    """Return the names of the files in a folder, without those in folders below it; links lead nowhere."""
    if isinstance(folder, RemotePath):
        return [path.name for path, _ in folder.files()]
    if folder.is_symlink() or not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]


def each(folder: AnyPath, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return the result of a call for each item; to a store, many requests are made at the same time."""
    return [*(map(call, items) if isinstance(folder, Path) else in_flight(call, items))]


def delete(folder: AnyPath, names: Collection[str]) -> None:
    """Remove files of a folder, given by their paths in it; missing ones are no error."""
    each(folder, lambda name: (folder / name).unlink(missing_ok=True), names)


def delete_tree(folder: AnyPath, last: str = "") -> None:
    """Remove a folder with all that is in it, the file ``last`` after the others; errors are left to later.

    In a store this includes the parts of uploads that were not finished.
    """
    if isinstance(folder, RemotePath):
        folder.remove_tree(last)
        delete_uploads(folder)
        return
    shutil.rmtree(str(folder), ignore_errors=True)


def delete_uploads(folder: AnyPath) -> None:
    """Remove the parts of uploads into a folder that were not finished; on disks there are none."""
    if isinstance(folder, RemotePath):
        # without the right to list them, a rule of the bucket has to remove them
        with suppress(OSError):
            abort_uploads(folder)


def tree_size(folder: AnyPath) -> int:
    """Return the bytes of all files in a folder, at any depth; 0 if it does not exist."""
    if isinstance(folder, RemotePath):
        return sum(status.st_size for _, status in folder.walk())
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


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
    if isinstance(folder, RemotePath):
        found = {
            path.relative_to(folder).as_posix(): status.e_tag
            for inside in (folder, folder / "index")
            for path, status in inside.files()
        }
        return lambda digests, marks: all(
            name in found and found[name] == marks.get(name) for name in digests
        )

    def has_digests(digests: Mapping[str, str], _marks: Mapping[str, str]) -> bool:
        return all(_digest(folder / name) == digest for name, digest in digests.items())

    return has_digests


def _digest(path: AnyPath) -> str:
    digest = hashlib.sha256()
    try:
        with open_regular(path, buffering=0) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError:
        return ""
    return f"sha256:{digest.hexdigest()}"
