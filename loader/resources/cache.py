"""``cache=``: verified copies of a split's shards on a local disk, read instead of the dataset's files.

The stored bytes are copied, so that order and augmentation do not change.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tfshards.loader.order.source import OpenSplit
from tfshards.loader.stored.frames import REMEDY
from tfshards.schemas import FormatError, InputError, Problem, Shard
from tfshards.schemas.errors import size
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.locking import lock
from tfshards.schemas.storage.untrusted import open_regular
from tfshards.schemas.storage.verbs import write

# Part of each path, so that an error that names a path shows that it is in a cache.
FOLDER = "tfshards-cache"

# Copying waits for remote storage rather than for processors.
_NUM_THREADS = 8
_BLOCK_BYTES = 4 << 20
_SECONDS_A_LINE = 10
_LOG = logging.getLogger("tfshards.loader")

# The copies that this process has verified or made: device, inode, size and time of modification by path.
_verified: dict[str, tuple[int, ...]] = {}
_lock = threading.Lock()


def copied_shards(
    source: OpenSplit, folder: Path, *, strict: bool = True, verified: str = ""
) -> list[AnyPath]:
    """Return the paths from which shards are read: of their copies, after making those that are missing.

    Args:
        source: the split.
        folder: the cache.
        strict: whether a shard that differs from the manifest is an error, rather than read where it is.
        verified: the ``identities`` of the copies that a process of this run has verified.
    """
    folder = cache_base(folder) / split_folder(source)
    copies: list[AnyPath] = [_copy_of(shard, folder) for shard in source.split.shards]
    if verified and verified == identities(copies):
        return copies
    try:
        # One at a time: a second load of the same split waits for the copies and then uses them.
        with _lock, _locked(folder):
            return _fill(folder, source, strict=strict)
    except OSError as error:
        raise InputError("cache-unusable", where=folder, why=error.strerror or error) from error


def identities(copies: Sequence[AnyPath]) -> str:
    """Return a text that is another one if a copy is replaced or changed; empty if one is missing."""
    try:
        return hashlib.sha256(repr([_identity(path) for path in copies]).encode()).hexdigest()
    except OSError:
        return ""


def cache_base(folder: Path) -> Path:
    """Return the folder in which the loader may write, in an existing folder of the user."""
    if not folder.parent.is_dir():
        raise InputError("cache-parent-missing", folder=folder, parent=folder.parent)
    return folder / FOLDER


def split_folder(source: OpenSplit) -> str:
    """Return a name that the split shares only with splits of the same bytes."""
    keys = "".join(f"{shard.path} {shard.digest}\n" for shard in source.split.shards)
    return f"{source.name}-{hashlib.sha256(keys.encode()).hexdigest()[:16]}"


class _OtherBytesError(Exception):
    """A file differs from the manifest, or another thread has failed."""


def _fill(folder: Path, source: OpenSplit, *, strict: bool) -> list[AnyPath]:
    """Return the paths from which the shards are read, after making the copies that are missing."""
    root, name, shards = source.root, source.name, source.split.shards
    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        has_copy = list(threads.map(lambda shard: _is_copied(_copy_of(shard, folder), shard), shards))
    missing = [shard for shard, copied in zip(shards, has_copy, strict=True) if not copied]
    num_bytes = sum(shard.num_bytes for shard in missing)
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise InputError(
            "cache-disk-full",
            folder=folder,
            num_missing=len(missing),
            name=name,
            num_bytes=num_bytes,
            free=free,
        )
    done, logged, guard, stopped = 0, time.monotonic(), threading.Lock(), threading.Event()

    def count(num_copied: int) -> None:
        nonlocal done, logged
        if stopped.is_set():
            raise _OtherBytesError("another thread has failed")
        with guard:
            done += num_copied
            # copying may take minutes
            if time.monotonic() - logged >= _SECONDS_A_LINE:
                logged = time.monotonic()
                _LOG.warning("%s: caching split %r: %s of %s", root, name, size(done), size(num_bytes))

    def copy(shard: Shard) -> str | None:
        try:
            _copy(root / shard.path, _copy_of(shard, folder), shard, count)
        except _OtherBytesError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        try:
            faults = list(threads.map(copy, missing))
        except BaseException:
            stopped.set()
            raise
    wrong = {shard.path: fault for shard, fault in zip(missing, faults, strict=True) if fault is not None}
    if wrong and strict:
        problems = [Problem(path, fault) for path, fault in wrong.items()]
        raise FormatError(f"{root}: the shards of split {name!r} ({REMEDY})", problems)
    return [root / shard.path if shard.path in wrong else _copy_of(shard, folder) for shard in shards]


def _copy_of(shard: Shard, folder: Path) -> Path:
    """Return the path of the copy of a shard, whose own path is absolute in a ``Mix``."""
    path = Path(shard.path)
    return folder / path.relative_to(path.anchor)


def _is_copied(path: Path, shard: Shard) -> bool:
    """Return whether ``path`` holds the bytes of the manifest; each process reads them once."""
    try:
        identity = _identity(path)
        if _verified.get(str(path)) != identity:
            if path.stat().st_size != shard.num_bytes:
                return False
            for _ in _verified_blocks(path, shard, lambda _: None):
                pass
    except (OSError, _OtherBytesError):
        return False
    _verified[str(path)] = identity
    return True


def _copy(source: AnyPath, path: Path, shard: Shard, count: Callable[[int], None]) -> None:
    """Copy a shard; leave no copy if its bytes differ from the manifest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, _verified_blocks(source, shard, count))
    _verified[str(path)] = _identity(path)


def _identity(path: AnyPath) -> tuple[int, ...]:
    seen = os.stat(str(path))
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


def _verified_blocks(path: AnyPath, shard: Shard, count: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the bytes of a shard's file, and raise at the end unless their digest matches the manifest."""
    digest = hashlib.sha256()
    try:
        with open_regular(path, buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
                count(len(block))
                yield block
    except OSError as error:
        raise _OtherBytesError(f"cannot be read: {error.strerror}") from error
    if f"sha256:{digest.hexdigest()}" != shard.digest:
        raise _OtherBytesError("its digest differs from the manifest: it is damaged, or a different file")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Prevent other processes from making the same copies, and remove partial files of a killed process."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("wb") as file:
        if not lock(file.fileno()):
            _LOG.warning("%s: another process is filling this cache; waiting for it", folder)
            lock(file.fileno(), waits=True)
        for unfinished in folder.rglob(".*.tmp"):
            unfinished.unlink()
        yield
