"""``cache=``: the shards of a split on a local disk, read instead of the dataset's files.

    disk:PATH            verified and unpacked copies of all shards, made before the first step
    disk:PATH, 200GiB    copies of as many shards as have that many bytes; the others are read where they are

The stored records are copied, so that order and augmentation do not change.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tfshards.loader.options.load_options import Cache
from tfshards.loader.reading.frames import REMEDY
from tfshards.loader.reading.source import OpenSplit, compressed
from tfshards.schemas import FormatError, InputError, OptionsError, Problem, Shard
from tfshards.schemas.compression import CODEC_ERRORS, unpacked
from tfshards.schemas.errors import size
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.locking import lock
from tfshards.schemas.storage.untrusted import Limit, open_regular, read_whole
from tfshards.schemas.storage.verbs import write

# Part of each path, so that an error that names a path shows that it is in a cache.
FOLDER = "tfshards-cache"
# The copies that were verified, with what shows that they were not changed.
_VERIFIED = "verified.json"

# Copying waits for remote storage rather than for processors.
_NUM_THREADS = 8
_BLOCK_BYTES = 4 << 20
_SECONDS_A_LINE = 10
_LOG = logging.getLogger("tfshards.loader")
_lock = threading.Lock()


def copied_shards(source: OpenSplit, cache: Cache | None, *, strict: bool) -> list[AnyPath]:
    """Return the paths from which shards are read: of their copies, after making those that are missing.

    Args:
        source: the split.
        cache: where copies are; None reads all shards where they are.
        strict: whether a shard that differs from the manifest is an error, rather than read where it is.

    Raises:
        FormatError: a shard differs from the manifest.
        InputError: the folder cannot be used, the disk is full, or shards are compressed and not copied.
    """
    shards = source.split.shards
    if source.manifest.compression != "none" and (cache is None or cache.most_bytes is not None):
        raise compressed(source.root)
    if cache is None:
        return [source.root / shard.path for shard in shards]
    left, fitting = math.inf if cache.most_bytes is None else cache.most_bytes, set[str]()
    for shard in shards:
        if shard.record_bytes <= left:
            left -= shard.record_bytes
            fitting.add(shard.path)
    if shards and not fitting:
        least = size(min(shard.record_bytes for shard in shards))
        raise OptionsError(
            f"cache= has less than the {least} of the smallest shard of {source.label}; give it more, or "
            "leave it out"
        )
    folder = split_folder(cache.folder, source)
    try:
        # One at a time: a second load of the same split waits for the copies and then uses them.
        with _lock, _locked(folder):
            return _fill(folder, source, fitting, strict=strict)
    except OSError as error:
        raise InputError(
            f"cache= cannot use {folder}: {error.strerror or error}; choose another folder"
        ) from error


def split_folder(folder: Path, source: OpenSplit) -> Path:
    """Return the folder of a split in a cache, which only splits of the same bytes share."""
    if not folder.parent.is_dir():
        raise InputError(f"cache='disk:{folder}': {folder.parent} does not exist; create or mount it")
    keys = "".join(f"{shard.path} {shard.digest}\n" for shard in source.split.shards)
    return folder / FOLDER / f"{source.name}-{hashlib.sha256(keys.encode()).hexdigest()[:16]}"


class _OtherBytesError(Exception):
    """A file differs from the manifest, or another thread has failed."""


def _fill(folder: Path, source: OpenSplit, fitting: Container[str], *, strict: bool) -> list[AnyPath]:
    root, name = source.root, source.name
    shards = [shard for shard in source.split.shards if shard.path in fitting]
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
            f"{size(free)} is free; use another disk, or cache='disk:PATH, SIZE' for some of them",
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
            write(path, _verified_blocks(root / shard.path, shard, compression, count))
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
            write(folder / _VERIFIED, [json.dumps(verified).encode()])
    wrong = {shard.path: fault for shard, fault in zip(missing, faults, strict=True) if fault is not None}
    if wrong and (strict or compression != "none"):
        problems = [Problem(path, fault) for path, fault in wrong.items()]
        raise FormatError(f"{root}: the shards of split {name!r} ({REMEDY})", problems)
    copied = identities.keys() - wrong
    return [
        copy_of(shard, folder) if shard.path in copied else root / shard.path for shard in source.split.shards
    ]


def copy_of(shard: Shard, folder: Path) -> Path:
    """Return the path of a shard in the folder of its split; its own path is absolute in a ``Mix``."""
    path = Path(shard.path)
    return folder / path.relative_to(path.anchor)


def _read_verified(folder: Path) -> dict[str, list[int] | None]:
    try:
        found = json.loads(read_whole(folder / _VERIFIED, Limit("a list of copies", 1 << 28)))
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
        with open_regular(path, buffering=0) as file:
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
        with unpacked(open_regular(path)) as file:
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
