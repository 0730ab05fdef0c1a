"""The checks of shards before they are read: files, or the headers of all records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.schemas import Problem, Shard, Split
from tfshards.schemas.companions import read_index
from tfshards.schemas.compression import CODEC_ERRORS, Compression
from tfshards.schemas.digests import NUM_LAST_BYTES, examples_digest, masked_crc32c_of_rows
from tfshards.schemas.files import size_and_last_bytes
from tfshards.schemas.frames import masked_crc32c_of
from tfshards.schemas.index import FOOTER_BYTES, FRAME_OVERHEAD, HEADER_BYTES, RecordIndex
from tfshards.schemas.storage import AnyPath, RemotePath, read_range
from tfshards.schemas.storage.untrusted import open_unpacked

# More than there are CPUs: the threads mostly wait for storage.
_NUM_LOCAL, _NUM_REMOTE = 16, 64
_NO_RECORDS = RecordIndex(np.zeros(0, np.int64))


@dataclass(frozen=True)
class Inspected:
    """The result of checking one shard.

    Attributes:
        index: the index of its records; empty if the index has a problem.
        version: the version of the shard's object, see ``version_of``; empty for a local file.
    """

    index: RecordIndex
    file_problems: tuple[Problem, ...] = ()
    index_problems: tuple[Problem, ...] = ()
    version: str = ""


def inspect_shards(root: AnyPath, split: Split) -> list[Inspected]:
    """Check each shard of ``split`` in the dataset directory ``root``."""
    # Two threads ask for one shard at the same time, so that 32 shards in a store take two round trips.
    with ThreadPoolExecutor(_NUM_REMOTE if isinstance(root, RemotePath) else _NUM_LOCAL) as threads:
        files = threads.map(lambda shard: _file_problem(root, shard), split.shards)
        indexes = threads.map(lambda shard: read_index(root, shard), split.shards)
        return [
            Inspected(
                _NO_RECORDS if index is None else index,
                () if problem is None else (Problem(shard.path, problem),),
                tuple(problems),
                version,
            )
            for shard, (problem, version), (index, problems) in zip(split.shards, files, indexes, strict=True)
        ]


def _file_problem(root: AnyPath, shard: Shard) -> tuple[str | None, str]:
    """Return what is wrong with the file of a shard, or None; and the version of its object."""
    path, version = root / shard.path, ""
    try:
        if isinstance(path, RemotePath):
            status = path.stat()
            size, version = status.st_size, status.e_tag
            last_bytes = read_range(path, max(0, size - NUM_LAST_BYTES), size, version).hex()
        else:
            size, last_bytes = size_and_last_bytes(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}", ""
    if size != shard.num_bytes:
        return f"has {size} bytes instead of the {shard.num_bytes} in the manifest", version
    if last_bytes != shard.last_bytes:
        wrong = f"ends with the bytes {last_bytes} instead of {shard.last_bytes} as in the manifest"
        return f"{wrong}: it is a different file", version
    return None, version


# Records are read in blocks of this size. If they are larger than _SPARSE_BYTES on average, only their
# headers and footers are read.
_BLOCK_BYTES = 4 << 20
_SPARSE_BYTES = 32 << 10
# Limit per shard, because every record is wrong in a shard of a different dataset.
_MOST_PROBLEMS = 5

_Bytes: TypeAlias = "npt.NDArray[np.uint8]"


def header_problems(
    root: Path, shards: Sequence[Shard], indexes: Sequence[RecordIndex], compression: Compression
) -> list[Problem]:
    """Return the records that differ from the index, and the shards that differ from the manifest.

    A problem names the shard, the record and the offset at which its frame starts.
    """

    def check(shard: Shard, index: RecordIndex) -> list[Problem]:
        try:
            wrong, digest = frame_faults(root / shard.path, index, compression)
        except OSError as error:
            return [Problem(shard.path, f"cannot be read: {error.strerror or error}")]
        fault = None if len(wrong) else digest_fault(shard, digest)
        if fault:
            return [Problem(shard.path, fault)]
        offsets = index.offsets
        why = "its length differs from the index, or the checksum of its length is wrong"
        problems = [
            Problem(shard.path, f"record {record} at offset {offsets[record]}: {why}")
            for record in wrong[:_MOST_PROBLEMS]
        ]
        if len(wrong) > _MOST_PROBLEMS:
            problems.append(Problem(shard.path, f"and {len(wrong) - _MOST_PROBLEMS} more such records"))
        return problems

    # Reading and decompressing release the GIL.
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        found = list(threads.map(check, shards, indexes))
    return [problem for problems in found for problem in problems]


def frame_faults(
    path: Path, index: RecordIndex, compression: Compression, *, deep: bool = False
) -> tuple[npt.NDArray[np.int64], str]:
    """Return the records whose length is wrong, and the digest of all records; raise OSError without a file.

    A length is wrong if it differs from the index or from its checksum. If the file ends early, or its
    compressed data are damaged, all records from there on are wrong. The digest is ``examples_digest`` of the
    lengths in the index and the data checksums in the file. A deep check also compares these with the data.
    """
    lengths = index.lengths - FRAME_OVERHEAD
    sound = np.zeros(len(lengths), bool)
    checksums = np.zeros(len(lengths), np.uint32)
    seen = 0
    # If compressed data are damaged, the records of that block are read again one by one, up to the damage.
    for block_bytes in (_BLOCK_BYTES, 0):
        file, _ = open_unpacked(path, compression, buffering=0)
        with file:
            try:
                for first, headers, footers, of_data in _frames(file, index, seen, block_bytes, deep=deep):
                    seen = first + len(headers)
                    stated = np.ascontiguousarray(headers[:, :8]).view("<u8")[:, 0]
                    held = np.ascontiguousarray(headers[:, 8:]).view("<u4")[:, 0]
                    right = (stated == lengths[first:seen]) & (held == masked_crc32c_of_rows(headers[:, :8]))
                    checksums[first:seen] = np.ascontiguousarray(footers).view("<u4")[:, 0]
                    if of_data is not None:
                        right &= checksums[first:seen] == of_data
                    sound[first:seen] = right
                if file.read(1) and len(sound):
                    # There are bytes after the last record of the index.
                    sound[-1] = False
                break
            except CODEC_ERRORS:
                continue
    return np.flatnonzero(~sound), examples_digest(lengths, checksums)


def digest_fault(shard: Shard, digest: str) -> str | None:
    """Return what is wrong with a shard whose records can be read and have this digest, or None."""
    if digest == shard.examples_digest:
        return None
    return (
        "its records differ from the manifest: the digest of their headers is "
        f"{digest} instead of {shard.examples_digest}"
    )


def _frames(
    file: BinaryIO, index: RecordIndex, first: int, block_bytes: int, *, deep: bool
) -> Iterator[tuple[int, _Bytes, _Bytes, npt.NDArray[np.uint32] | None]]:
    """Yield intervals of records: the first record, headers and footers, ``(n, 12)`` and ``(n, 4)``.

    A deep check adds the checksums of their data, ``(n,)``; otherwise the last value is None.
    """
    offsets, lengths = index.offsets, index.lengths
    ends = offsets + lengths
    while first < len(lengths):
        last = int(np.searchsorted(ends, offsets[first] + block_bytes, side="right"))
        last = max(last, first + 1)
        start, end = int(offsets[first]), int(ends[last - 1])
        found = None
        if not deep and (not block_bytes or (end - start) // (last - first) > _SPARSE_BYTES):
            data = b"".join(
                _read(file, int(offsets[i]), int(offsets[i]) + HEADER_BYTES)
                + _read(file, int(ends[i]) - FOOTER_BYTES, int(ends[i]))
                for i in range(first, last)
            )
            rows = np.frombuffer(data, np.uint8).reshape(-1, FRAME_OVERHEAD)
        else:
            data = _read(file, start, end)
            starts, stops = offsets[first:last] - start, ends[first:last] - start
            heads = starts[:, np.newaxis] + np.arange(HEADER_BYTES)
            tails = stops[:, np.newaxis] + np.arange(-FOOTER_BYTES, 0)
            rows = np.frombuffer(data, np.uint8)[np.concatenate([heads, tails], axis=1)]
            if deep:
                bounds = zip((starts + HEADER_BYTES).tolist(), (stops - FOOTER_BYTES).tolist(), strict=True)
                found = masked_crc32c_of([data[low:high] for low, high in bounds])
        yield first, rows[:, :HEADER_BYTES], rows[:, HEADER_BYTES:], found
        first = last


def _read(file: BinaryIO, start: int, end: int) -> bytes:
    """Return the bytes ``[start, end)`` of a file whose position is not after ``start``."""
    if file.tell() != start:
        file.seek(start)
    parts: list[bytes] = []
    missing = end - start
    while missing and (part := file.read(missing)):
        parts.append(part)
        missing -= len(part)
    # Missing bytes become zeros: a length of zeros has a wrong checksum.
    return b"".join([*parts, bytes(missing)])
