"""``cache=``: the shards of a split on a local disk, read instead of the dataset's files.

    disk:PATH            verified and unpacked copies of all shards, made before the first step
    disk:PATH, 200GiB    the records that are read first, until they have that many bytes

The stored records are copied, so that order and augmentation do not change.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tfshards.loader.options.load_options import Cache
from tfshards.loader.reading.frames import REMEDY, Frames, Place
from tfshards.loader.reading.source import OpenSplit, compressed
from tfshards.schemas import FormatError, InputError, Problem, Shard
from tfshards.schemas.columns import Octets
from tfshards.schemas.compression import CODEC_ERRORS, unpacked
from tfshards.schemas.errors import size
from tfshards.schemas.index import IntArray as Ints
from tfshards.schemas.storage import AnyPath, LocalPath
from tfshards.schemas.storage.locking import lock
from tfshards.schemas.storage.stored import Limit

# Part of each path, so that an error that names a path shows that it is in a cache.
FOLDER = "tfshards-cache"
# The copies that were verified, with what shows that they were not changed.
_VERIFIED = "verified.json"
# One byte for each record of the split, 1 if it is in the cache.
_KEPT = "kept"

# Copying waits for remote storage rather than for processors.
_NUM_THREADS = 8
_BLOCK_BYTES = 4 << 20
_SECONDS_A_LINE = 10
_LOG = logging.getLogger(__name__)
_lock = threading.Lock()


def copied_shards(source: OpenSplit, cache: Cache | None, *, strict: bool) -> list[AnyPath]:
    """Return the paths from which shards are read: of their copies, after making those that are missing.

    Args:
        source: the split.
        cache: where copies are; without one, or with a limit, all shards are read where they are.
        strict: whether a shard that differs from the manifest is an error, rather than read where it is.

    Raises:
        FormatError: a shard differs from the manifest.
        InputError: the folder cannot be used, the disk is full, or shards are compressed and not copied.
    """
    if cache is None or cache.most_bytes is not None:
        if source.manifest.compression != "none":
            raise compressed(source.root)
        return [source.root / shard.path for shard in source.split.shards]
    folder = split_folder(cache.folder, source)
    try:
        # One at a time: a second load of the same split waits for the copies and then uses them.
        with _lock, _locked(folder):
            return _fill(folder, source, strict=strict)
    except OSError as error:
        raise _unusable(folder, error) from error


def _unusable(where: object, error: OSError) -> InputError:
    return InputError(f"cache= cannot use {where}: {error.strerror or error}; choose another folder")


def split_folder(folder: LocalPath, source: OpenSplit) -> LocalPath:
    """Return the folder of a split in a cache, which only splits of the same bytes share."""
    if not folder.parent.is_dir():
        raise InputError(f"cache='disk:{folder}': {folder.parent} does not exist; create or mount it")
    keys = "".join(f"{shard.path} {shard.digest}\n" for shard in source.split.shards)
    return folder / FOLDER / f"{source.name}-{hashlib.sha256(keys.encode()).hexdigest()[:16]}"


class _OtherBytesError(Exception):
    """A file differs from the manifest, or another thread has failed."""


def _fill(folder: LocalPath, source: OpenSplit, *, strict: bool) -> list[AnyPath]:
    root, name, shards = source.root, source.name, source.split.shards
    compression = source.manifest.compression
    verified = _read_verified(folder)
    identities = {shard.path: _identity(copy_of(shard, folder)) for shard in shards}
    missing = [
        shard
        for shard in shards
        if not (found := identities[shard.path]) or verified.get(shard.path) != found
    ]
    num_bytes, free = sum(shard.record_bytes for shard in missing), shutil.disk_usage(folder).free
    if num_bytes > free:
        raise InputError(
            f"{folder}: caching {len(missing)} shards of split {name!r} needs {size(num_bytes)}, but only "
            f"{size(free)} is free; use another disk, or leave cache= out",
            code="disk-full",
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
        path = copy_of(shard, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.write(_verified_blocks(root / shard.path, shard, compression, count))
        except _OtherBytesError as error:
            return str(error)
        verified[shard.path] = _identity(path)
        return None

    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        try:
            faults = list(threads.map(copy, missing))
        except BaseException:
            stopped.set()
            raise
        finally:
            (folder / _VERIFIED).write([json.dumps(verified).encode()])
    wrong = {shard.path: fault for shard, fault in zip(missing, faults, strict=True) if fault is not None}
    if wrong and (strict or compression != "none"):
        problems = [Problem(path, fault) for path, fault in wrong.items()]
        raise FormatError(f"{root}: the shards of split {name!r} ({REMEDY})", problems)
    return [root / shard.path if shard.path in wrong else copy_of(shard, folder) for shard in shards]


def copy_of(shard: Shard, folder: LocalPath) -> LocalPath:
    """Return the path of a shard in the folder of its split; its own path is absolute in a ``Mix``."""
    path = LocalPath(shard.path)
    return folder / path.relative_to(path.anchor)


def _read_verified(folder: LocalPath) -> dict[str, list[int] | None]:
    try:
        found = json.loads((folder / _VERIFIED).read_whole(Limit("a list of copies", 1 << 28)))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _identity(path: Path) -> list[int] | None:
    """Return what differs if a file is another one, or was changed; None if there is none."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return [seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns]


def _verified_blocks(
    path: AnyPath, shard: Shard, compression: str, count: Callable[[int], None]
) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a shard, and raise at the end unless they are the manifest's."""
    digest = hashlib.sha256()
    try:
        with path.open_regular(buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
                if compression == "none":
                    count(len(block))
                    yield block
        if f"sha256:{digest.hexdigest()}" != shard.digest:
            raise _OtherBytesError("its digest differs from the manifest: it is damaged, or a different file")
        if compression == "none":
            return
        # unpacked only after its digest was found to be right
        left = shard.record_bytes
        with unpacked(path.open_regular()) as file:
            while block := file.read(min(_BLOCK_BYTES, left + 1)):
                left -= len(block)
                count(len(block))
                yield block
        if left:
            raise _OtherBytesError(f"holds other than the {shard.record_bytes} bytes of the manifest")
    except CODEC_ERRORS as error:
        raise _OtherBytesError(f"cannot be unpacked: {error}") from error
    except OSError as error:
        raise _OtherBytesError(f"cannot be read: {error.strerror}") from error


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


class FirstRecords:
    """The records that were read first, in sparse files as large as their shards, up to a limit.

    None is replaced: as each epoch reads all records once, any of them is as good as another. What a file
    holds is checked like any record when it is read, so that a crash, or another process, can do no harm.
    """

    def __init__(self, source: OpenSplit, cache: Cache, frames: Frames) -> None:
        """Open the cache of a split; InputError if the folder cannot be used."""
        folder = split_folder(cache.folder, source) / "first"
        paths = [copy_of(shard, folder) for shard in frames.shards]
        try:
            for parent in {path.parent for path in paths}:
                parent.mkdir(parents=True, exist_ok=True)
            for path, shard in zip(paths, frames.shards, strict=True):
                with path.open("ab") as file:
                    file.truncate(shard.record_bytes)
            with (folder / _KEPT).open("ab") as file:
                # no holes, for which there may be no space when they are filled
                file.write(bytes(len(frames) - file.tell()))
            self._is_kept = np.memmap(folder / _KEPT, np.uint8, "r+", shape=(len(frames),))
        except OSError as error:
            raise _unusable(error.filename or folder, error) from error
        self.frames: Frames = frames.read_from(paths)
        self._lengths = frames.places(np.arange(len(frames))).lengths
        self._most_bytes, self._lock = cache.most_bytes or 0, threading.Lock()

    def has(self, numbers: Ints) -> npt.NDArray[np.bool_]:
        """Return which records are in the cache, with headers that state their lengths: a bool vector."""
        found: npt.NDArray[np.bool_] = self._is_kept[numbers] > 0
        firsts, counts, _, _ = self.frames.intervals(numbers[np.newaxis, found], found[found])
        found[np.isin(numbers, self.frames.lies(firsts, counts))] = False
        return found

    def keep(self, numbers: Ints, place: Place, data: Octets, starts: Ints) -> None:
        """Store records that were read, as long as there is space."""
        with self._lock:
            left = self._most_bytes - int(self._lengths[self._is_kept > 0].sum())
            order = np.lexsort((place.offsets, place.shards))
            order = order[np.cumsum(place.lengths[order]) <= left]
            if not len(order):
                return
            shards, offsets, lengths, begins = (each[order] for each in (*place, starts))
            # neighbors are written together
            is_first = np.ones(len(order), np.bool_)
            is_first[1:] = (shards[1:] != shards[:-1]) | (offsets[1:] != offsets[:-1] + lengths[:-1])
            try:
                for rows in np.split(np.arange(len(order)), np.flatnonzero(is_first)[1:]):
                    first, last = rows[0], rows[-1]
                    part = data[begins[first] : begins[last] + lengths[last]]
                    with open(self.frames.paths[shards[first]], "r+b", buffering=0) as file:
                        os.pwrite(file.fileno(), part.data, int(offsets[first]))
                    self._is_kept[numbers[order[rows]]] = 1
            except OSError as error:
                self._most_bytes = 0
                _LOG.warning(
                    "%s: nothing more is cached: %s", self.frames.paths[0].parent, error.strerror or error
                )
