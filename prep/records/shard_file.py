"""Write the file of one shard, and derive its entry in the manifest, its index, its labels and its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tfshards.prep.records.frames import Frame, RecordError, frame, read_in_order
from tfshards.schemas import Shard
from tfshards.schemas.compression import Compression, packed
from tfshards.schemas.digests import HASH, NUM_LAST_BYTES, bytes_digest, digest_of, examples_digest
from tfshards.schemas.index import FRAME_OVERHEAD, IntArray, RecordIndex, keys_bytes, labels_bytes
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.stored import Sink

Item = TypeVar("Item")

# Buffers below this size are joined. Hashing and writing release the GIL, which costs more time than they do
# if buffers are small.
_JOINED_BYTES = 1 << 20
_TICK_BYTES = 1 << 20


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
        return frames._replace(buffers=[packed(frames.buffers)])
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
        self._digest = HASH()
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
        file = self._num_bytes, digest_of(self._digest), self._last_bytes.hex()
        labels = b"".join(self._labels) if self.has_labels else None
        return Records(lengths, checksums).describe(path, file, labels, self._keys if self.has_keys else None)


class Records(NamedTuple):
    """The records of a file: the lengths of their data, and their checksums."""

    lengths: IntArray
    checksums: npt.NDArray[np.uint32]

    @property
    def digest(self) -> str:
        """Their digest, which does not depend on their order."""
        return examples_digest(self.lengths, self.checksums)

    def describe(
        self,
        path: str,
        file: tuple[int, str, str],
        labels: bytes | None,
        keys: Sequence[bytes] | None,
        companions: str = "",
    ) -> tuple[Shard, dict[str, bytes]]:
        """Return the entry of the file in a manifest, and the content of its companions by path.

        ``file`` is what ``read_once`` returns, ``companions`` that of the entry. Without labels or keys there
        are no files of them.
        """
        index = RecordIndex(self.lengths + FRAME_OVERHEAD)
        held = [index.to_text().encode("ascii"), labels, None if keys is None else keys_bytes(keys)]
        digests = ["" if data is None else bytes_digest(data) for data in held]
        num_bytes, digest, last_bytes = file
        shard = Shard(
            path,
            len(self.lengths),
            num_bytes,
            index.num_bytes,
            digest,
            digests[0],
            self.digest,
            last_bytes,
            labels_digest=digests[1],
            keys_digest=digests[2],
            companions=companions,
        )
        paths = shard.index_path, shard.labels_path, shard.keys_path
        return shard, {name: data for name, data in zip(paths, held, strict=True) if data is not None}


def scan(
    path: AnyPath,
    compression: Compression,
    look: Callable[[Frame], object],
    index: RecordIndex | None = None,
    tick: Callable[[int], object] = lambda _: None,
) -> tuple[Records, list[RecordError]]:
    """Read a file in order; return its records, and the faults of those that are not as they should be.

    Args:
        path: the file.
        compression: its compression.
        look: called with each sound frame; raises ValueError about what is wrong with its record.
        index: the index; without one, damage of a length hides the records after it.
        tick: called with numbers of bytes, uncompressed, that were read.
    """
    lengths: list[int] = []
    checksums: list[int] = []
    faults: list[RecordError] = []
    done = end = 0
    for each in read_in_order(path, compression, index):
        fault = each.fault
        if each.data is not None:
            lengths.append(len(each.data))
            checksums.append(each.checksum)
            end = each.offset + FRAME_OVERHEAD + len(each.data)
            if end - done >= _TICK_BYTES:
                tick(end - done)
                done = end
        if fault is None:
            try:
                look(each)
            except ValueError as error:
                fault = str(error)
        if fault is not None:
            faults.append(RecordError(path, each.number, each.offset, fault))
    tick(end - done)
    return Records(np.array(lengths, np.int64), np.array(checksums, np.uint32)), faults


def in_groups(items: Iterable[Item], size: Callable[[Item], int], num_bytes: int) -> Iterator[list[Item]]:
    """Yield items in groups of about ``num_bytes``; a larger item ends its group."""
    group: list[Item] = []
    filled = 0
    for item in items:
        group.append(item)
        filled += size(item)
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
        if len(buffer) < _JOINED_BYTES:
            small.append(buffer)
        else:
            joined += (b"".join(small), buffer)
            small.clear()
    return [*joined, b"".join(small)]
