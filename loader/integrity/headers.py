"""The checks of ``check="headers"``: length and checksums of each record, compared with index and manifest.

TensorFlow accepts a length of 2^40 if its checksum is right, and the process crashes; and it cannot detect
that a record was removed, repeated or replaced. Neither check reads the data of the records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.schemas import Problem, Shard
from tfshards.schemas.crc32c import masked_crc32c_of_rows
from tfshards.schemas.digests import examples_digest
from tfshards.schemas.index import FOOTER_BYTES, FRAME_OVERHEAD, HEADER_BYTES, RecordIndex
from tfshards.schemas.manifest import Compression
from tfshards.schemas.storage.untrusted import GZIP_ERRORS, open_unpacked

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
        problems = [_problem(shard, int(record), int(offsets[record])) for record in wrong[:_MOST_PROBLEMS]]
        if len(wrong) > _MOST_PROBLEMS:
            problems.append(Problem(shard.path, f"and {len(wrong) - _MOST_PROBLEMS} more such records"))
        return problems

    # Reading and decompressing release the GIL.
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        found = list(threads.map(check, shards, indexes))
    return [problem for problems in found for problem in problems]


def frame_faults(
    path: Path, index: RecordIndex, compression: Compression
) -> tuple[npt.NDArray[np.int64], str]:
    """Return the records whose length is wrong, and the digest of all records.

    A length is wrong if it differs from the index or from its checksum. If the file ends early, or its
    compressed data are damaged, all records from there on are wrong. The digest is ``examples_digest`` of the
    lengths in the index and the data checksums in the file.

    Raises:
        OSError: the file cannot be opened.
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
                for first, headers, footers in _frames(file, index, seen, block_bytes):
                    seen = first + len(headers)
                    stated = np.ascontiguousarray(headers[:, :8]).view("<u8")[:, 0]
                    held = np.ascontiguousarray(headers[:, 8:]).view("<u4")[:, 0]
                    right = (stated == lengths[first:seen]) & (held == masked_crc32c_of_rows(headers[:, :8]))
                    sound[first:seen] = right
                    checksums[first:seen] = np.ascontiguousarray(footers).view("<u4")[:, 0]
                if file.read(1) and len(sound):
                    # There are bytes after the last record of the index.
                    sound[-1] = False
                break
            except GZIP_ERRORS:
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
    file: BinaryIO, index: RecordIndex, first: int, block_bytes: int
) -> Iterator[tuple[int, _Bytes, _Bytes]]:
    """Yield intervals of records: the first record, the headers ``(n, 12)`` and the footers ``(n, 4)``."""
    offsets, lengths = index.offsets, index.lengths
    ends = offsets + lengths
    while first < len(lengths):
        last = int(np.searchsorted(ends, offsets[first] + block_bytes, side="right"))
        last = max(last, first + 1)
        start, end = int(offsets[first]), int(ends[last - 1])
        if not block_bytes or (end - start) // (last - first) > _SPARSE_BYTES:
            rows = np.stack([_sparse(file, int(offsets[i]), int(ends[i])) for i in range(first, last)])
        else:
            block = np.frombuffer(_read(file, start, end), np.uint8)
            heads = (offsets[first:last] - start)[:, np.newaxis] + np.arange(HEADER_BYTES)
            tails = (ends[first:last] - start)[:, np.newaxis] + np.arange(-FOOTER_BYTES, 0)
            rows = block[np.concatenate([heads, tails], axis=1)]
        yield first, rows[:, :HEADER_BYTES], rows[:, HEADER_BYTES:]
        first = last


def _sparse(file: BinaryIO, start: int, end: int) -> _Bytes:
    header = _read(file, start, start + HEADER_BYTES)
    return np.frombuffer(header + _read(file, end - FOOTER_BYTES, end), np.uint8)


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


def _problem(shard: Shard, record: int, offset: int) -> Problem:
    message = "its length differs from the index, or the checksum of its length is wrong"
    return Problem(shard.path, f"record {record} at offset {offset}: {message}")
