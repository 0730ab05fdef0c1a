"""``cache=``: a split's shards near by, as they are, so that order and augmentation stay what they are.

On a local disk, or in this process's memory by TensorFlow's file system ``ram://``. What has a shard's name
there holds the bytes of the manifest, by its digest.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import tensorflow as tf

from tfshards.loader.memory import available_memory
from tfshards.loader.read import Shards
from tfshards.loader.trust import REMEDY
from tfshards.schemas import FormatError, InputError, OptionsError, Problem, Shard, Split
from tfshards.schemas.atomic import write_blocks_atomically
from tfshards.schemas.sizes import size

DISK = "disk:"
# Part of each path, so that an error that names one says where it is.
FOLDER = "tfshards-cache"

# Copying waits for storage far away more than for processors.
_NUM_THREADS = 8
_BLOCK_BYTES = 4 << 20
_SECONDS_A_LINE = 10
# Of the memory that is there: for all else that a run needs.
_MEMORY_LEFT = 0.1
_LOG = logging.getLogger("tfshards.loader")

# The copies that this process has checked or made, with the file's identity and time on disk.
_held: dict[str, tuple[int, ...]] = {}
_lock = threading.Lock()


def check_cache(cache: object) -> None:
    """Raise unless ``cache`` is None, ``"memory"`` or ``"disk:PATH"``.

    Raises:
        OptionsError: it is something else.
    """
    if cache is None or cache == "memory":
        return
    if not isinstance(cache, str) or not cache.startswith(DISK) or cache == DISK:
        raise OptionsError(f'cache={cache!r} must be "memory", "disk:PATH" or None')


@dataclass(frozen=True)
class Cache:
    """Where copies stand, and when there are none.

    Attributes:
        where: ``"memory"`` or ``"disk:PATH"``.
        strict: whether a shard that is not as the manifest says is an error; else it is read where it stands.
    """

    where: str
    strict: bool = True


def cached(shards: Shards, root: Path, name: str, split: Split, cache: Cache) -> Shards:
    """Return ``shards`` of ``split``, called ``name``, with the paths of copies, made where there are none.

    Raises:
        InputError: there is no room for the copies, or they cannot be written.
        FormatError: shards are not those of the manifest.
    """
    keys = "".join(f"{shard.path} {shard.digest}\n" for shard in split.shards)
    folder = f"{FOLDER}/{name}-{hashlib.sha256(keys.encode()).hexdigest()[:16]}"
    # one after the other: a second dataset of the same split waits for the copies, and finds them
    with _lock:
        if cache.where == "memory":
            store = _Memory(f"ram://{folder}")
            paths = _fill(store, root, name, split.shards, cache.strict)
        else:
            directory = Path(cache.where.removeprefix(DISK)).expanduser().absolute() / folder
            try:
                with _alone(directory):
                    paths = _fill(_Disk(directory), root, name, split.shards, cache.strict)
            except OSError as error:
                raise InputError(f"cache={cache.where!r}: {directory}: {error.strerror or error}") from error
    return replace(shards, paths=tuple(paths))


def clear_cache() -> None:
    """Free what ``cache="memory"`` holds in this process; datasets that read from it fail from then on."""
    with _lock:
        for path in [path for path in _held if path.startswith("ram://")]:
            tf.io.gfile.remove(path)
            del _held[path]


class _Store(Protocol):
    """Where copies stand."""

    def path(self, shard: Shard) -> str: ...

    def holds(self, shard: Shard) -> bool:
        """Return whether there is a copy, all of whose bytes are those of the manifest."""
        ...

    def check_room(self, num_bytes: int, what: str) -> None:
        """Raise InputError unless there is room for ``num_bytes`` more."""
        ...

    def write(self, shard: Shard, blocks: Iterator[bytes]) -> None:
        """Make a copy of ``blocks``; where these raise, there is none."""
        ...


@dataclass(frozen=True)
class _Memory:
    folder: str

    def path(self, shard: Shard) -> str:
        return f"{self.folder}/{shard.path}"

    def holds(self, shard: Shard) -> bool:
        return self.path(shard) in _held

    def check_room(self, num_bytes: int, what: str) -> None:
        available = available_memory()
        if available is None:
            return
        room = int(available * (1 - _MEMORY_LEFT))
        if num_bytes > room:
            raise InputError(
                f'cache="memory" needs {size(num_bytes)} for {what}, the memory that is free allows '
                f'{size(room)}: use cache="disk:PATH" with a folder on a local disk, or leave cache= out'
            )

    def write(self, shard: Shard, blocks: Iterator[bytes]) -> None:
        path = self.path(shard)
        tf.io.gfile.makedirs(os.path.dirname(path))
        try:
            with tf.io.gfile.GFile(path, "wb") as file:
                for block in blocks:
                    file.write(block)
        except BaseException:
            tf.io.gfile.remove(path)
            raise
        _held[path] = ()


@dataclass(frozen=True)
class _Disk:
    folder: Path

    def path(self, shard: Shard) -> str:
        return str(self.folder / shard.path)

    def holds(self, shard: Shard) -> bool:
        path = self.path(shard)
        try:
            seen = os.stat(path)
            identity = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)
            if _held.get(path) != identity:
                if seen.st_size != shard.num_bytes:
                    return False
                for _ in _checked_blocks(Path(path), shard, lambda _: None):
                    pass
        except (OSError, _OtherBytesError):
            return False
        _held[path] = identity
        return True

    def check_room(self, num_bytes: int, what: str) -> None:
        free = shutil.disk_usage(self.folder).free
        if num_bytes > free:
            raise InputError(
                f"{self.folder}: caching {what} needs {size(num_bytes)}, {size(free)} are free: use another "
                "disk, or leave cache= out"
            )

    def write(self, shard: Shard, blocks: Iterator[bytes]) -> None:
        path = Path(self.path(shard))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_blocks_atomically(path, blocks)
        seen = path.stat()
        _held[str(path)] = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)


class _OtherBytesError(Exception):
    """A file is not the one of the manifest."""


class _StoppedError(Exception):
    """Another thread has failed."""


def _fill(store: _Store, root: Path, name: str, shards: Sequence[Shard], strict: bool) -> list[str]:
    """Return the paths from which the shards are read, after copying those of which there is no copy."""
    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        there = list(threads.map(store.holds, shards))
    missing = [shard for shard, is_there in zip(shards, there, strict=True) if not is_there]
    num_bytes = sum(shard.num_bytes for shard in missing)
    if missing:
        store.check_room(num_bytes, f"{len(missing)} shards of split {name!r}")
    progress = _Progress(num_bytes, f"{root}: caching split {name!r}")

    def copy(shard: Shard) -> str | None:
        try:
            store.write(shard, _checked_blocks(root / shard.path, shard, progress.add))
        except _OtherBytesError as error:
            return str(error)
        except _StoppedError:
            # the error that stopped it is raised by its own thread
            return None
        except BaseException:
            progress.stopped = True
            raise
        return None

    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        try:
            faults = list(threads.map(copy, missing))
        except BaseException:
            progress.stopped = True
            raise
    wrong = {shard.path: fault for shard, fault in zip(missing, faults, strict=True) if fault is not None}
    if wrong and strict:
        problems = [Problem(path, fault) for path, fault in wrong.items()]
        raise FormatError(f"{root}: the shards of split {name!r} ({REMEDY})", problems)
    return [str(root / shard.path) if shard.path in wrong else store.path(shard) for shard in shards]


def _checked_blocks(path: Path, shard: Shard, seen: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the bytes of a shard's file, and raise behind the last ones unless they are the manifest's."""
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
                seen(len(block))
                yield block
    except OSError as error:
        raise _OtherBytesError(f"cannot be read: {error.strerror}") from error
    if f"sha256:{digest.hexdigest()}" != shard.digest:
        raise _OtherBytesError("its digest is not the manifest's: it is damaged, or another file")


class _Progress:
    """Says now and then how far the copying is, since it may take minutes."""

    def __init__(self, total: int, what: str) -> None:
        self.stopped = False
        self._total, self._what, self._done = total, what, 0
        self._said = time.monotonic()
        self._lock = threading.Lock()

    def add(self, num_bytes: int) -> None:
        if self.stopped:
            raise _StoppedError
        with self._lock:
            self._done += num_bytes
            if time.monotonic() - self._said < _SECONDS_A_LINE:
                return
            self._said = time.monotonic()
        _LOG.warning("%s: %s of %s", self._what, size(self._done), size(self._total))


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Keep other processes from making the same copies; what a killed one has left is taken away."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _LOG.warning("%s: another process fills this cache; waiting for it", directory)
            fcntl.flock(file, fcntl.LOCK_EX)
        for unfinished in directory.rglob(".*.tmp"):
            unfinished.unlink()
        yield
