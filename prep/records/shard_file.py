"""Write the file of one shard, and derive its entry in the manifest, its index, its labels and its keys."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tfshards.prep.records.frames import RecordError, frame, read_frames
from tfshards.schemas import Schema, Shard
from tfshards.schemas.compression import Compression, compress
from tfshards.schemas.digests import NUM_LAST_BYTES, bytes_digest, examples_digest
from tfshards.schemas.example import ParsedExample
from tfshards.schemas.index import (
    FRAME_OVERHEAD,
    IntArray,
    RecordIndex,
    index_path,
    keys_bytes,
    keys_path,
    labels_bytes,
    labels_path,
)
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.verbs import read_once
from tfshards.schemas.storage.writing import Sink

Item = TypeVar("Item")

# bytess below this size are joined. Hashing and writing release the GIL, which costs more time than they do
# if buffers are small.
_JOINED_BYTES = 1 << 20


class Frames(NamedTuple):
    """Consecutive records as bytes of a shard, their uncompressed lengths, and their footers together."""

    buffers: list[bytes]
    lengths: list[int]
    footers: bytes


def frames_of(records: Iterable[Sequence[bytes]], compression: Compression) -> Frames:
    """Return the frames of records, each given in parts; threads can compress them in parallel."""
    framed = [frame(*record) for record in records]
    lengths = [sum(map(len, parts)) for parts in framed]
    footers = b"".join(parts[-1] for parts in framed)
    buffers = join_small(part for parts in framed for part in parts)
    return compressed(Frames(buffers, lengths, footers), compression)


def compressed(frames: Frames, compression: Compression) -> Frames:
    """Return uncompressed ``frames`` as they are written to a shard of this compression."""
    if compression != "none" and frames.lengths:
        return frames._replace(buffers=[compress(frames.buffers)])
    return frames


@dataclass
class ShardFile:
    """A new file for a shard; finished at the end of its context, or removed on errors.

    ``has_labels`` and ``has_keys`` say whether its records have a label and a key.
    """

    sink: Sink
    has_labels: bool = False
    has_keys: bool = False

    def __post_init__(self) -> None:
        self._digest = hashlib.sha256()
        self._num_bytes = 0
        self._last_bytes = b""
        self._lengths: list[int] = []
        self._footers: list[bytes] = []
        self._labels: list[bytes] = []
        self._keys: list[bytes] = []

    def __enter__(self) -> ShardFile:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self.sink.abandon()
            return
        try:
            self.sink.finish()
        except BaseException:
            self.sink.abandon()
            raise

    def append(
        self, frames: Frames, labels: Sequence[int] | IntArray = (), keys: Sequence[bytes] = ()
    ) -> None:
        """Append consecutive records to the file, with their labels and keys if they have any."""
        for buffer in frames.buffers:
            self._digest.update(buffer)
            self.sink.write(buffer)
        self._num_bytes += sum(map(len, frames.buffers))
        tail = b"".join(buffer[-NUM_LAST_BYTES:] for buffer in frames.buffers[-NUM_LAST_BYTES:])
        self._last_bytes = (self._last_bytes + tail)[-NUM_LAST_BYTES:]
        self._lengths += frames.lengths
        self._footers.append(frames.footers)
        self._labels.append(labels_bytes(labels))
        self._keys += keys

    def describe(self, path: str) -> tuple[Shard, dict[str, bytes]]:
        """Return the entry of the shard at ``path`` in the manifest, and its companions by path."""
        lengths = np.array(self._lengths, dtype=np.int64) - FRAME_OVERHEAD
        checksums = np.frombuffer(b"".join(self._footers), dtype="<u4")
        labels = b"".join(self._labels) if self.has_labels else None
        keys = keys_bytes(self._keys) if self.has_keys else None
        file = self._num_bytes, f"sha256:{self._digest.hexdigest()}", self._last_bytes.hex()
        return _described(path, lengths, checksums, labels, keys, file)


def _described(
    path: str,
    lengths: IntArray,
    checksums: npt.NDArray[np.uint32],
    labels: bytes | None,
    keys: bytes | None,
    file: tuple[int, str, str],
) -> tuple[Shard, dict[str, bytes]]:
    """Return what ``ShardFile.describe`` does; ``file`` is what ``read_once`` returns."""
    index = RecordIndex(lengths + FRAME_OVERHEAD)
    text = index.to_text().encode("ascii")
    num_bytes, digest, last_bytes = file
    shard = Shard(
        path,
        len(lengths),
        num_bytes,
        index.num_bytes,
        digest,
        bytes_digest(text),
        examples_digest(lengths, checksums),
        last_bytes,
        "" if labels is None else bytes_digest(labels),
        "" if keys is None else bytes_digest(keys),
    )
    companions = {index_path(path): text, labels_path(path): labels, keys_path(path): keys}
    return shard, {name: data for name, data in companions.items() if data is not None}


def in_groups(
    items: Iterable[Item], size: Callable[[Item], int], num_bytes: int, most: float = math.inf
) -> Iterator[list[Item]]:
    """Yield items in groups of about ``num_bytes`` and of ``most`` at most; a larger item ends its group."""
    group: list[Item] = []
    filled = 0
    for item in items:
        group.append(item)
        filled += size(item)
        if filled >= num_bytes or len(group) >= most:
            yield group
            group, filled = [], 0
    if group:
        yield group


def join_small(buffers: Iterable[bytes]) -> list[bytes]:
    """Return the same bytes with adjacent small buffers joined; large buffers are not copied."""
    joined: list[bytes] = []
    small: list[bytes] = []
    for buffer in buffers:
        if len(buffer) < _JOINED_BYTES:
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
    schema: Schema | None = None,
) -> tuple[Shard, dict[str, bytes]]:
    """Return the entry of a shard in the manifest, and the content of its companions by path.

    ``look`` is called with each record; without ``schema`` there are no labels and keys. A record that is
    damaged, or has not exactly one label or key where the schema has one, raises RecordError.
    """
    label, key = (schema.label, schema.key) if schema else (None, None)
    lengths: list[int] = []
    checksums: list[int] = []
    labels: list[int] = []
    keys: list[bytes] = []
    file_path = root / path
    for found in read_frames(file_path, compression):
        data = found.require_data(file_path)
        if look:
            look(found.number, found.offset, data)
        try:
            example = ParsedExample(data) if label or key else None
            if example and label:
                labels.append(example.label(label.name))
            if example and key:
                keys.append(example.required_key())
        except ValueError as error:
            raise RecordError(file_path, found.number, found.offset, str(error)) from None
        lengths.append(len(data))
        checksums.append(found.checksum)
    return _described(
        path,
        np.array(lengths, dtype=np.int64),
        np.array(checksums, dtype=np.uint32),
        labels_bytes(labels) if label else None,
        keys_bytes(keys) if key else None,
        read_once(file_path),
    )
