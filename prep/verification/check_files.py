"""Check the files of a dataset against its manifest: sizes, digests, last bytes, indexes, labels, rejects."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tfshards.schemas import FormatError, Manifest, Problem, Shard
from tfshards.schemas.files import bytes_digest, file_digest, last_bytes_of
from tfshards.schemas.index import IntArray, RecordIndex, index_path, parse_index
from tfshards.schemas.labels import labels_path, labels_size_fault, parse_labels

# Called with the number of bytes that were read since the last call.
Tick: TypeAlias = Callable[[int], object]

# The longest line of an index: two numbers of at most 18 digits, a space and a newline.
_MAX_LINE = 38
_OTHER_BYTES = "its bytes have changed: the digest differs"


def _no_tick(_: int) -> None:
    return


def shard_problems(folder: Path, shard: Shard) -> list[Problem]:
    """Return the problems of one shard of the dataset in ``folder``, its index or its labels."""
    return file_problems(folder, shard) + companions(folder, shard).problems


def file_problems(folder: Path, shard: Shard, tick: Tick = _no_tick) -> list[Problem]:
    """Return the problems of the size, the digest or the last bytes of one shard."""
    path = folder / shard.path
    try:
        num_bytes = regular_size(path)
        if num_bytes != shard.num_bytes:
            tick(shard.num_bytes)
            return [Problem(shard.path, f"has {num_bytes} bytes, but the manifest lists {shard.num_bytes}")]
        digest, last_bytes = file_digest(path, tick), last_bytes_of(path)
    except OSError as error:
        return [Problem(shard.path, f"cannot be read: {error.strerror}")]
    if digest != shard.digest:
        return [Problem(shard.path, _OTHER_BYTES)]
    if last_bytes != shard.last_bytes:
        message = f"ends with the bytes {last_bytes}, but the manifest lists {shard.last_bytes}"
        return [Problem(shard.path, message)]
    return []


# eq=False: arrays compare element by element, so that instances would have no truth value
@dataclass(frozen=True, eq=False)
class Companions:
    """The index and the labels of a shard, whose digests match.

    Attributes:
        index: the shard's index; None if there are problems with it.
        labels: shape ``(num_examples,)``; None if there are problems with them, or no labels.
        problems: the problems of both.
    """

    index: RecordIndex | None
    labels: IntArray | None
    problems: list[Problem]


def companions(folder: Path, shard: Shard) -> Companions:
    """Return the index and the labels of one shard, and their problems."""
    index, of_index = _index(folder, shard)
    labels, of_labels = _labels(folder, shard) if shard.labels_digest else (None, [])
    return Companions(index, labels, of_index + of_labels)


def _index(folder: Path, shard: Shard) -> tuple[RecordIndex | None, list[Problem]]:
    path = index_path(shard.path)
    try:
        num_bytes = regular_size(folder / path)
        most = _MAX_LINE * shard.num_examples
        if num_bytes > most:
            fault = f"has {num_bytes} bytes; an index of {shard.num_examples} records has at most {most}"
            return None, [Problem(path, fault)]
        data = (folder / path).read_bytes()
        index = parse_index(data.decode("ascii"), path)
    except OSError as error:
        return None, [Problem(path, f"cannot be read: {error.strerror}")]
    except UnicodeDecodeError:
        return None, [Problem(path, "holds characters other than digits and spaces")]
    except FormatError as error:
        return None, [Problem(path, str(problem)) for problem in error.problems]
    if (len(index.lengths), index.num_bytes) != (shard.num_examples, shard.record_bytes):
        found = f"{len(index.lengths)} records of {index.num_bytes} bytes"
        fault = f"has {found}, but the manifest lists {shard.num_examples} of {shard.record_bytes}"
        return None, [Problem(path, fault)]
    if bytes_digest(data) != shard.index_digest:
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
        # the file has changed since its size was read
        return None, list(error.problems)
    if bytes_digest(data) != shard.labels_digest:
        return None, [Problem(path, _OTHER_BYTES)]
    return labels, []


def rejects_path(manifest: Manifest) -> str:
    """Return the path of the rejects file relative to the dataset."""
    return f"rejected-{manifest.build_id}.jsonl"


def rejects_problems(folder: Path, manifest: Manifest) -> list[Problem]:
    """Return the problems of the rejects file; empty if nothing was rejected."""
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
    """Return the size of a file.

    Raises:
        OSError: it is missing, or is a pipe, a device or a folder, which must not be read.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(None, "is not a regular file", str(path))
    return status.st_size
