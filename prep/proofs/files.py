"""Whether the files of a dataset are those that its manifest names: sizes, digests, last bytes."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tfshards.prep.files import bytes_digest, file_digest
from tfshards.prep.plan import IntArray
from tfshards.schemas import (
    FormatError,
    Manifest,
    Problem,
    RecordIndex,
    Shard,
    index_path,
    labels_path,
    parse_index,
    parse_labels,
)
from tfshards.schemas.digests import NUM_LAST_BYTES
from tfshards.schemas.labels import labels_size_fault

# Is told how many bytes more are done.
Tick: TypeAlias = Callable[[int], object]

# Larger reads no longer fit the cores' caches, and are slower.
_BLOCK = 1 << 20
# Of an index: two numbers of at most 18 digits, a space and a newline.
_MAX_LINE = 38
_OTHER_BYTES = "its bytes are not those that were written: the digest differs"


def _no_tick(_: int) -> None:
    return


def shard_problems(folder: Path, shard: Shard) -> list[Problem]:
    """Return what is wrong with one shard of the dataset in ``folder``, or with a file beside it."""
    return file_problems(folder, shard) + beside(folder, shard).problems


def file_problems(folder: Path, shard: Shard, tick: Tick = _no_tick) -> list[Problem]:
    """Return what is wrong with the size, the digest or the last bytes of one shard."""
    path = folder / shard.path
    try:
        num_bytes = regular_size(path)
        if num_bytes != shard.num_bytes:
            tick(shard.num_bytes)
            return [Problem(shard.path, f"has {num_bytes} bytes, the manifest says {shard.num_bytes}")]
        digest, last_bytes = _hashed(path, tick)
    except OSError as error:
        return [Problem(shard.path, f"cannot be read: {error.strerror}")]
    if digest != shard.digest:
        return [Problem(shard.path, _OTHER_BYTES)]
    if last_bytes != shard.last_bytes:
        message = f"ends with the bytes {last_bytes}, the manifest says {shard.last_bytes}"
        return [Problem(shard.path, message)]
    return []


# eq=False: NumPy compares arrays element by element, which is no answer here
@dataclass(frozen=True, eq=False)
class Beside:
    """What stands beside a shard; what is there can be trusted.

    Attributes:
        index: None where there are problems with it.
        labels: shape ``(num_examples,)``; None where there are problems with them, or no labels.
        problems: with both.
    """

    index: RecordIndex | None
    labels: IntArray | None
    problems: list[Problem]


def beside(folder: Path, shard: Shard) -> Beside:
    """Return what stands beside one shard, and what is wrong with it."""
    index, of_index = _index(folder, shard)
    labels, of_labels = _labels(folder, shard) if shard.labels_digest else (None, [])
    return Beside(index, labels, of_index + of_labels)


def _index(folder: Path, shard: Shard) -> tuple[RecordIndex | None, list[Problem]]:
    path = index_path(shard.path)
    try:
        num_bytes = regular_size(folder / path)
        most = _MAX_LINE * shard.num_examples
        if num_bytes > most:
            fault = f"has {num_bytes} bytes; that of {shard.num_examples} records has at most {most}"
            return None, [Problem(path, fault)]
        index = parse_index((folder / path).read_text(encoding="ascii"), path)
        digest = file_digest(folder / path)
    except OSError as error:
        return None, [Problem(path, f"cannot be read: {error.strerror}")]
    except UnicodeDecodeError:
        return None, [Problem(path, "holds other characters than digits and spaces")]
    except FormatError as error:
        return None, [Problem(path, str(problem)) for problem in error.problems]
    if (len(index.lengths), index.num_bytes) != (shard.num_examples, shard.record_bytes):
        found = f"{len(index.lengths)} records of {index.num_bytes} bytes"
        fault = f"has {found}, the manifest says {shard.num_examples} of {shard.record_bytes}"
        return None, [Problem(path, fault)]
    if digest != shard.index_digest:
        return None, [Problem(path, _OTHER_BYTES)]
    return index, []


def _labels(folder: Path, shard: Shard) -> tuple[IntArray | None, list[Problem]]:
    path = labels_path(shard.path)
    try:
        fault = labels_size_fault(regular_size(folder / path), shard.num_examples)
        if fault:
            return None, [Problem(path, fault)]
        data = (folder / path).read_bytes()
        labels = parse_labels(data, shard.num_examples, path)
    except OSError as error:
        return None, [Problem(path, f"cannot be read: {error.strerror}")]
    except FormatError as error:
        # it has changed just now
        return None, list(error.problems)
    if bytes_digest(data) != shard.labels_digest:
        return None, [Problem(path, _OTHER_BYTES)]
    return labels, []


def rejects_path(manifest: Manifest) -> str:
    """Return the path of the rejects file relative to the dataset."""
    return f"rejected-{manifest.build_id}.jsonl"


def rejects_problems(folder: Path, manifest: Manifest) -> list[Problem]:
    """Return what is wrong with the rejects file; nothing where nothing was rejected."""
    if not manifest.rejects_digest:
        return []
    path = rejects_path(manifest)
    try:
        regular_size(folder / path)
        sound = file_digest(folder / path) == manifest.rejects_digest
    except OSError as error:
        return [Problem(path, f"cannot be read: {error.strerror}")]
    return [] if sound else [Problem(path, _OTHER_BYTES)]


def regular_size(path: Path) -> int:
    """Return the size of a file; of a pipe or a device nothing is read.

    Raises:
        OSError: there is none.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(None, "is no regular file", str(path))
    return status.st_size


def _hashed(path: Path, tick: Tick) -> tuple[str, str]:
    """Return the digest of a file and its last bytes, in hex."""
    digest = hashlib.sha256()
    block = memoryview(bytearray(_BLOCK))
    last = b""
    with path.open("rb", buffering=0) as file:
        while num_bytes := file.readinto(block):
            digest.update(block[:num_bytes])
            last = (last + bytes(block[max(0, num_bytes - NUM_LAST_BYTES) : num_bytes]))[-NUM_LAST_BYTES:]
            tick(num_bytes)
    return f"sha256:{digest.hexdigest()}", last.hex()
