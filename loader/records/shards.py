"""The shards of a split as a table, and datasets that read intervals of their records.

An interval is read from its offset in the shard's index; nothing before it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.loader.graph.intervals import repeated
from tfshards.loader.graph.python_calls import call_method
from tfshards.loader.graph.raw_ops import gather, tfrecord_dataset
from tfshards.loader.graph.stages import flat_mapped
from tfshards.schemas import Split
from tfshards.schemas.index import RecordIndex
from tfshards.schemas.manifest import Compression
from tfshards.schemas.storage import AnyPath

# Number of offsets kept in memory: 1 MiB. In larger splits only every stride-th record has one, and the few
# records between it and the requested one are skipped (5 microseconds each).
MOST_OFFSETS = 1 << 17
COMPRESSIONS: Mapping[Compression, str] = {"none": "", "gzip": "GZIP"}
# Used instead of an example's number for a record that only pads a batch.
PADDING = -2
# This number and lower ones mean a record that could not be read; see ``missing_number``.
_MISSING = -3
# Takes the place of a record that is not there: no ``tf.train.Example`` consists of this byte.
MISSING = b"\xff"
# A larger buffer would only displace other data from the CPU cache.
BUFFER_BYTES = 1 << 16
# Larger records are read unbuffered: copying them out of a buffer takes longer than a system call.
_BUFFERED_BYTES = 16 << 10


class Fetcher(Protocol):
    """Fetches blocks of shards into local files, from which TensorFlow reads them."""

    def locate(
        self, epoch: np.int64, shard: np.int64, first: np.int64, count: np.int64, number: np.int64
    ) -> tuple[bytes, np.int64]:
        """Return a local file that holds the records of a piece of a block, after waiting for it.

        Args:
            epoch: the number of the epoch that is read.
            shard: the index of the shard.
            first: the index of the first record in the shard.
            count: the number of records.
            number: the number of the first example, or ``PADDING``.

        Returns:
            The path, and the byte of the shard with which the file starts.
        """
        ...

    @property
    def memory_bytes(self) -> int:
        """The maximum size of what is being fetched, in memory."""
        ...

    def explain(self, number: np.int64) -> bytes:
        """Return a message about why the example ``number``, or one after it, could not be read."""
        ...


@dataclass(frozen=True, kw_only=True)
class Shards:
    """The shards of one split, as the graph needs them.

    Attributes:
        paths: shape ``(num_shards,)``.
        sizes: shape ``(num_shards,)`` int64: the number of records in each.
        offsets: int64: the byte at which the records 0, stride, 2 * stride, ... of each shard start.
        first_offsets: shape ``(num_shards,)`` int64: the index in ``offsets`` at which each shard begins.
        stride: the distance between two records whose offsets are known.
        compression: TensorFlow's name of the compression of the files.
        buffer_bytes: number of bytes that each open file reads ahead; 0 for none.
        bad_starts: int64, ascending: the numbers of the examples at which intervals of damaged ones start;
            the first good example is read instead of each.
        bad_ends: int64: where these intervals end.
        versions: the version of each file, see ``schemas.storage.version_of``; empty for local files.
        unit: the number of records of a block, counted from the start of each shard; 0 without a fetcher.
        fetcher: gives the local files from which blocks are read; None reads ``paths``.
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
    def first_good_number(self) -> int:
        """The number of the split's first example that is not damaged."""
        return int(self.bad_ends[0]) if len(self.bad_starts) and self.bad_starts[0] == 0 else 0

    @property
    def first_good(self) -> tuple[int, int]:
        """The shard of the first example that is not damaged, and the index of its record in the shard."""
        number = self.first_good_number
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
    """Return the shards of ``split`` in the dataset directory ``root``.

    Args:
        root: the dataset's directory.
        split: the split.
        indexes: the indexes of the shards.
        compression: the compression of the shards.
        damage: masks of the damaged records of each shard; empty if there is no damage.
        versions: the versions of the files; empty for local files.
    """
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
        compression=COMPRESSIONS[compression],
        buffer_bytes=BUFFER_BYTES if is_buffered else 0,
        bad_starts=edges[::2],
        bad_ends=edges[1::2],
        versions=tuple(versions),
    )


class RecordIntervals(NamedTuple):
    """Intervals of records, each in one shard, as int64 vectors.

    Attributes:
        shards: the index of the shard.
        firsts: the index of the first record in the shard.
        counts: the number of records.
        numbers: the number of the first example, or ``PADDING`` for a single record that fills a batch.
    """

    shards: tf.Tensor
    firsts: tf.Tensor
    counts: tf.Tensor
    numbers: tf.Tensor


def cut_at_blocks(intervals: RecordIntervals, unit: int) -> RecordIntervals:
    """Split intervals at the multiples of ``unit`` records of their shards; none may be empty."""
    shards, firsts, counts, numbers = intervals
    blocks = firsts // unit
    index, within = repeated((firsts + counts - 1) // unit - blocks + 1)
    begins = (gather(blocks, index) + within) * unit
    starts = gather(firsts, index)
    low = tf.maximum(starts, begins)
    high = tf.minimum(starts + gather(counts, index), begins + unit)
    return RecordIntervals(gather(shards, index), low, high - low, gather(numbers, index) + low - starts)


def read_intervals(
    shards: Shards, intervals: RecordIntervals, epoch: tf.Tensor, *, numbered: bool
) -> tf.data.Dataset:
    """Return the records of ``intervals``, as ``(number, record)``, int64 and string, or only the strings.

    With numbers, a record that cannot be read, and all after it in its interval, are empty strings with a
    number that ``missing_number`` decodes, because TensorFlow's own error would not name the file.

    Without numbers, which take a quarter of the time of small records, an error of TensorFlow takes the place
    of such a record, and ``MISSING`` that of those after it, and of those after the end of a file.

    Args:
        shards: the shards of the split.
        intervals: the intervals to read, one after the other.
        epoch: the number of the epoch that is read, a scalar int64.
        numbered: whether to return numbers; required with a fetcher.
    """
    firsts, known = intervals.firsts, gather(shards.first_offsets, intervals.shards)
    offsets = gather(shards.offsets, known + (firsts if shards.stride == 1 else firsts // shards.stride))
    hops = () if shards.stride == 1 else (firsts % shards.stride,)
    columns = (intervals.shards, offsets, intervals.counts, intervals.numbers, *hops)
    if shards.fetcher is None:
        each = tf.data.Dataset.from_tensor_slices(columns)
        if numbered:
            return flat_mapped(each, lambda *interval: _read_interval(shards, *interval))
        missing = tf.data.Dataset.from_tensors(MISSING).repeat()
        return flat_mapped(each, lambda *interval: _read_records(shards, missing, *interval))
    each = tf.data.Dataset.from_tensor_slices((firsts, *columns))
    return flat_mapped(each, lambda *interval: _read_fetched(shards, epoch, *interval))


def missing_number(number: tf.Tensor) -> tf.Tensor:
    """Return the number of the first example of the interval in which this record is missing."""
    return _MISSING - number


def is_missing(numbers: tf.Tensor) -> tf.Tensor:
    """Return which of these numbers mean that a record could not be read."""
    return numbers <= _MISSING


def _read_interval(
    shards: Shards,
    shard: tf.Tensor,
    offset: tf.Tensor,
    count: tf.Tensor,
    number: tf.Tensor,
    hop: tf.Tensor | None = None,
) -> tf.data.Dataset:
    path = gather(shards.paths, shard)
    return _read_file(shards, path, offset, count, number, hop)


def _read_records(
    shards: Shards,
    missing: tf.data.Dataset,
    shard: tf.Tensor,
    offset: tf.Tensor,
    count: tf.Tensor,
    _: tf.Tensor,
    hop: tf.Tensor | None = None,
) -> tf.data.Dataset:
    records = _records_from(shards, gather(shards.paths, shard), offset, hop)
    return records.concatenate(missing).take(count)


def _read_fetched(
    shards: Shards,
    epoch: tf.Tensor,
    first: tf.Tensor,
    shard: tf.Tensor,
    offset: tf.Tensor,
    count: tf.Tensor,
    number: tf.Tensor,
    hop: tf.Tensor | None = None,
) -> tf.data.Dataset:
    assert shards.fetcher is not None
    # This waits in the thread that requests the records, as reading a slow file would; the threads of the
    # fetcher are none of TensorFlow's, so that it never waits for itself.
    wanted = [epoch, shard, first, count, number]
    path, start = call_method(shards.fetcher.locate, wanted, [tf.string, tf.int64])
    return _read_file(shards, path, offset - start, count, number, hop)


def _read_file(
    shards: Shards,
    path: tf.Tensor,
    offset: tf.Tensor,
    count: tf.Tensor,
    number: tf.Tensor,
    hop: tf.Tensor | None,
) -> tf.data.Dataset:
    records = _records_from(shards, path, offset, hop)
    # zip() uses up a number for each failure, so even a missing file fails at most `count` times.
    numbered = tf.data.Dataset.zip(tf.data.Dataset.range(number, number + count), records).ignore_errors()
    # TensorFlow's reader does not detect a file that ends early between two records.
    missing = (_MISSING - tf.maximum(number, 0), tf.constant(""))
    return numbered.concatenate(tf.data.Dataset.from_tensors(missing).repeat()).take(count)


def _records_from(
    shards: Shards, path: tf.Tensor, offset: tf.Tensor, hop: tf.Tensor | None
) -> tf.data.Dataset:
    records = tfrecord_dataset(path, shards.compression, shards.buffer_bytes, offset)
    return records if hop is None else records.skip(hop)
