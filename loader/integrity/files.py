"""The checks of shards before they are read: their files, or all of their records."""

from __future__ import annotations

from collections.abc import Iterator
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
from tfshards.schemas.frames import masked_crc32c_of
from tfshards.schemas.index import FOOTER_BYTES, FRAME_OVERHEAD, HEADER_BYTES, RecordIndex
from tfshards.schemas.storage import AnyPath, RemotePath, read_range
from tfshards.schemas.storage.untrusted import open_unpacked
from tfshards.schemas.storage.verbs import size_and_last_bytes

# More than there are CPUs: the threads mostly wait for storage.
_NUM_LOCAL, _NUM_REMOTE = 16, 64
_NO_RECORDS = RecordIndex(np.zeros(0, np.int64))


@dataclass(frozen=True)
class Inspected:
    """The result of checking one shard.

    Attributes:
        index: the index of its records; empty if the index has a problem.
        version: the version of the shard's object, its ETag; empty for a local file.
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


# Records are read in blocks of this size.
_BLOCK_BYTES = 4 << 20

_Bytes: TypeAlias = "npt.NDArray[np.uint8]"


def frame_faults(
    path: Path, index: RecordIndex, compression: Compression
) -> tuple[npt.NDArray[np.int64], str]:
    """Return the records that are wrong, and the digest of all records; raise OSError without a file.

    A record is wrong if its length differs from the index or from its checksum, or its data from theirs. If
    the file ends early, or its compressed data are damaged, all records from there on are wrong. The digest
    is ``examples_digest`` of the lengths in the index and the data checksums in the file.
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
                for first, headers, footers, of_data in _frames(file, index, seen, block_bytes):
                    seen = first + len(headers)
                    stated = np.ascontiguousarray(headers[:, :8]).view("<u8")[:, 0]
                    held = np.ascontiguousarray(headers[:, 8:]).view("<u4")[:, 0]
                    right = (stated == lengths[first:seen]) & (held == masked_crc32c_of_rows(headers[:, :8]))
                    checksums[first:seen] = np.ascontiguousarray(footers).view("<u4")[:, 0]
                    sound[first:seen] = right & (checksums[first:seen] == of_data)
                if file.read(1) and len(sound):
                    # There are bytes after the last record of the index.
                    sound[-1] = False
                break
            except CODEC_ERRORS:
                continue
    return np.flatnonzero(~sound), examples_digest(lengths, checksums)


def _frames(
    file: BinaryIO, index: RecordIndex, first: int, block_bytes: int
) -> Iterator[tuple[int, _Bytes, _Bytes, npt.NDArray[np.uint32]]]:
    """Yield intervals of records: the first record, their headers, footers, and checksums of their data.

    These have the shapes ``(n, 12)``, ``(n, 4)`` and ``(n,)``.
    """
    offsets, lengths = index.offsets, index.lengths
    ends = offsets + lengths
    while first < len(lengths):
        last = int(np.searchsorted(ends, offsets[first] + block_bytes, side="right"))
        last = max(last, first + 1)
        start, end = int(offsets[first]), int(ends[last - 1])
        data = _read(file, start, end)
        starts, stops = offsets[first:last] - start, ends[first:last] - start
        heads = starts[:, np.newaxis] + np.arange(HEADER_BYTES)
        tails = stops[:, np.newaxis] + np.arange(-FOOTER_BYTES, 0)
        rows = np.frombuffer(data, np.uint8)[np.concatenate([heads, tails], axis=1)]
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
