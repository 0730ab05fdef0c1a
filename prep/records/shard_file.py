"""Write the file of one shard, and derive its entry in the manifest, its index and its labels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

import numpy as np

from tfshards.prep.records.example import SMALL_BYTES, decode_label
from tfshards.prep.records.frames import RecordError, frame, read_frames
from tfshards.schemas import Feature, Shard
from tfshards.schemas.compression import CODECS, Compression
from tfshards.schemas.digests import NUM_LAST_BYTES, examples_digest
from tfshards.schemas.files import bytes_digest, read_once
from tfshards.schemas.index import (
    FRAME_OVERHEAD,
    IntArray,
    RecordIndex,
    index_path,
    labels_bytes,
    labels_path,
)
from tfshards.schemas.storage import AnyPath, open_sink

# Much larger writes make the kernel look for larger free pages, which can cost three times the system time.
_WRITE_BYTES = 1 << 16
# Hashing releases the GIL, which costs more time than the hashing itself if buffers are small.
_HASHED_BYTES = 1 << 20


class Frames(NamedTuple):
    """Consecutive records as bytes of a shard.

    Attributes:
        buffers: the bytes of the file.
        lengths: the uncompressed length of each frame.
        footers: the last 4 bytes of each frame, concatenated.
    """

    buffers: list[bytes]
    lengths: list[int]
    footers: bytes


def frames_of(records: Iterable[Sequence[bytes]], compression: Compression) -> Frames:
    """Return the frames of records, each given in parts.

    Frames are compressed independently of those before them, so that threads can compress in parallel.
    """
    framed = [frame(*record) for record in records]
    lengths = [sum(map(len, parts)) for parts in framed]
    footers = b"".join(parts[-1] for parts in framed)
    buffers = join_small(part for parts in framed for part in parts)
    return compressed(Frames(buffers, lengths, footers), compression)


def compressed(frames: Frames, compression: Compression) -> Frames:
    """Return uncompressed ``frames`` as they are written to a shard of this compression."""
    if compression in CODECS and frames.lengths:
        return frames._replace(buffers=[CODECS[compression].compress(frames.buffers)])
    return frames


@dataclass
class ShardFile:
    """A new file to which a shard is written; a context manager that finishes it, or removes it on errors.

    Attributes:
        path: path of the file.
        has_labels: whether each record has a label.
    """

    path: AnyPath
    has_labels: bool = False

    def __post_init__(self) -> None:
        self._sink = open_sink(self.path)
        self._is_open = True
        self._digest = hashlib.sha256()
        self._num_bytes = 0
        self._last_bytes = b""
        self._lengths: list[int] = []
        self._footers: list[bytes] = []
        self._labels: list[bytes] = []

    def __enter__(self) -> ShardFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        else:
            self.abandon()

    def append(self, frames: Frames, labels: Sequence[int] | IntArray = ()) -> None:
        """Append consecutive records to the file.

        Args:
            frames: the records.
            labels: their labels, if they have any.

        Raises:
            OSError: the file cannot be written.
        """
        for group in _groups(frames.buffers, _HASHED_BYTES):
            self._digest.update(group[0] if len(group) == 1 else b"".join(group))
        for group in _groups(frames.buffers, _WRITE_BYTES):
            self._sink.write(group)
        self._num_bytes += sum(map(len, frames.buffers))
        tail = b"".join(buffer[-NUM_LAST_BYTES:] for buffer in frames.buffers[-NUM_LAST_BYTES:])
        self._last_bytes = (self._last_bytes + tail)[-NUM_LAST_BYTES:]
        self._lengths += frames.lengths
        self._footers.append(frames.footers)
        self._labels.append(labels_bytes(labels))

    def finish(self) -> None:
        """Close the file, which then survives a power failure; a second call does nothing.

        Raises:
            OSError: the file cannot be written.
        """
        if self._is_open:
            try:
                self._sink.finish()
            except BaseException:
                self.abandon()
                raise
            self._is_open = False

    def abandon(self) -> None:
        """Remove the file, unless it is finished."""
        if self._is_open:
            self._is_open = False
            self._sink.abandon()

    def describe(self, path: str) -> tuple[Shard, dict[str, bytes]]:
        """Return the entry of the shard at ``path`` in the manifest, and its index and labels by path."""
        index = RecordIndex(np.array(self._lengths, dtype=np.int64))
        companions = {index_path(path): index.to_text().encode("ascii")}
        if self.has_labels:
            companions[labels_path(path)] = b"".join(self._labels)
        checksums = np.frombuffer(b"".join(self._footers), dtype="<u4")
        shard = Shard(
            path,
            len(index.lengths),
            self._num_bytes,
            index.num_bytes,
            f"sha256:{self._digest.hexdigest()}",
            bytes_digest(companions[index_path(path)]),
            examples_digest(index.lengths - FRAME_OVERHEAD, checksums),
            self._last_bytes.hex(),
            bytes_digest(companions[labels_path(path)]) if self.has_labels else "",
        )
        return shard, companions


def _groups(buffers: Iterable[bytes], num_bytes: int) -> Iterable[list[bytes]]:
    """Yield the buffers in groups of about ``num_bytes``; a larger buffer ends its group."""
    group: list[bytes] = []
    filled = 0
    for buffer in buffers:
        group.append(buffer)
        filled += len(buffer)
        if filled >= num_bytes:
            yield group
            group, filled = [], 0
    if group:
        yield group


def join_small(buffers: Iterable[bytes]) -> list[bytes]:
    """Return the same bytes with adjacent small buffers joined; large buffers are not copied."""
    joined: list[bytes] = []
    small: list[bytes] = []
    for buffer in buffers:
        if len(buffer) < SMALL_BYTES:
            small.append(buffer)
        else:
            joined += (b"".join(small), buffer)
            small.clear()
    return [*joined, b"".join(small)]


# Called with each record's number, the offset of its frame, and its data.
Look = Callable[[int, int, bytes], None]


def scan_shard(
    root: AnyPath,
    path: str,
    compression: Compression,
    look: Look | None = None,
    label: Feature | None = None,
) -> tuple[Shard, dict[str, bytes]]:
    """Return the entry of a shard in the manifest, and the content of its index and labels by path.

    Args:
        root: the dataset's directory.
        path: path of the shard, relative to ``root``.
        compression: the compression of the file.
        look: called with the number, the offset and the data of each record.
        label: the feature whose values are the labels; None if the dataset has no labels.

    Raises:
        RecordError: a record is damaged, or does not have exactly one label.
        OSError: the file cannot be read.
    """
    lengths: list[int] = []
    checksums: list[int] = []
    labels: list[int] = []
    file_path = root / path
    for found in read_frames(file_path, compression):
        data = found.require_data(file_path)
        if look:
            look(found.number, found.offset, data)
        if label:
            try:
                labels.append(decode_label(data, label.name))
            except ValueError as error:
                raise RecordError(file_path, found.number, found.offset, str(error)) from None
        lengths.append(len(data))
        checksums.append(found.checksum)
    sizes = np.array(lengths, dtype=np.int64)
    index = RecordIndex(sizes + FRAME_OVERHEAD)
    companions = {index_path(path): index.to_text().encode("ascii")}
    if label:
        companions[labels_path(path)] = labels_bytes(labels)
    num_bytes, digest, last_bytes = read_once(file_path)
    shard = Shard(
        path,
        len(lengths),
        num_bytes,
        index.num_bytes,
        digest,
        bytes_digest(companions[index_path(path)]),
        examples_digest(sizes, np.array(checksums, dtype=np.uint32)),
        last_bytes,
        bytes_digest(companions[labels_path(path)]) if label else "",
    )
    return shard, companions
