"""The shards of a split as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tfshards.schemas import Split
from tfshards.schemas.compression import Compression, tensorflow_name
from tfshards.schemas.index import RecordIndex
from tfshards.schemas.storage import AnyPath

# Number of offsets kept in memory: 1 MiB. In larger splits only every stride-th record has one, and the few
# records between it and the requested one are skipped (5 microseconds each).
MOST_OFFSETS = 1 << 17
# A larger buffer would only displace other data from the CPU cache.
BUFFER_BYTES = 1 << 16
# Larger records are read unbuffered: copying them out of a buffer takes longer than a system call.
_BUFFERED_BYTES = 16 << 10


class Fetcher(Protocol):
    """Fetches records of shards, and keeps blocks of them in local files.

    Attributes:
        memory_bytes: the maximum size of what is fetched, or passed on and not yet read, in memory.
    """

    memory_bytes: int

    def read(
        self, epoch: np.int64, shard: np.int64, first: np.int64, count: np.int64, number: np.int64
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.object_]]:
        """Return the numbers and the records of an interval in a block, both of shape ``(count,)``.

        ``number`` is that of the first example, or ``PADDING``. Records that cannot be read are as in
        ``read_intervals``.
        """

    def explain(self, number: np.int64) -> bytes:
        """Return a message about why the example ``number``, or one after it, could not be read."""


@dataclass(frozen=True, kw_only=True)
class Shards:
    """The shards of one split, as the graph needs them.

    Attributes:
        sizes: shape ``(num_shards,)`` int64: the number of records in each.
        offsets: int64: the byte at which the records 0, stride, 2 * stride, ... of each shard start.
        first_offsets: shape ``(num_shards,)`` int64: the index in ``offsets`` at which each shard begins.
        stride: the distance between two records whose offsets are known.
        buffer_bytes: number of bytes that each open file reads ahead; 0 for none.
        bad_starts: int64, ascending: the numbers of the examples at which intervals of damaged ones start;
            the first good example is read instead of each.
        bad_ends: int64: where these intervals end.
        versions: the version of each object, its ETag; empty for local files.
        unit: the number of records of a block, counted from the start of each shard; 0 without a fetcher.
        fetcher: reads the records; None reads ``paths``.
    """

    paths: tuple[str, ...]
    sizes: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    first_offsets: npt.NDArray[np.int64]
    stride: int
    compression: str
    buffer_bytes: int
    bad_starts: npt.NDArray[np.int64]
    bad_ends: npt.NDArray[np.int64]
    versions: tuple[str, ...] = ()
    unit: int = 0
    fetcher: Fetcher | None = None

    @property
    def bases(self) -> npt.NDArray[np.int64]:
        """Shape ``(num_shards,)`` int64: the number of each shard's first example."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def first_good(self) -> tuple[int, int]:
        """The shard of the first example that is not damaged, and the index of its record in the shard."""
        number = int(self.bad_ends[0]) if len(self.bad_starts) and self.bad_starts[0] == 0 else 0
        shard = int(np.searchsorted(np.cumsum(self.sizes), number, side="right"))
        shard = min(shard, len(self.sizes) - 1)
        return shard, number - int(self.bases[shard])


def shards_of(
    root: AnyPath,
    split: Split,
    indexes: Sequence[RecordIndex],
    compression: Compression,
    damage: Sequence[npt.NDArray[np.bool_]] = (),
    versions: Sequence[str] = (),
) -> Shards:
    """Return the shards of ``split`` in the dataset directory ``root``."""
    bad = np.concatenate([[False], *damage, [False]])
    edges = np.flatnonzero(np.diff(bad)).astype(np.int64)
    stride = max(1, -(-split.num_examples // MOST_OFFSETS))
    offsets = [index.offsets[::stride] for index in indexes]
    lengths = np.array([len(known) for known in offsets], np.int64)
    is_buffered = compression != "none" or split.record_bytes < _BUFFERED_BYTES * split.num_examples
    return Shards(
        paths=tuple(str(root / shard.path) for shard in split.shards),
        sizes=np.array([shard.num_examples for shard in split.shards], np.int64),
        offsets=np.concatenate(offsets),
        first_offsets=np.cumsum(lengths) - lengths,
        stride=stride,
        compression=tensorflow_name(compression),
        buffer_bytes=BUFFER_BYTES if is_buffered else 0,
        bad_starts=edges[::2],
        bad_ends=edges[1::2],
        versions=tuple(versions),
    )
