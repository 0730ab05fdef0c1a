"""Records by their numbers: a split's shards as a table, and datasets that read ranges of them.

A range is entered by a real seek, at an offset that the shard's index gives; nothing before it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.loader.order import Order
from tfshards.schemas import RecordIndex, Split
from tfshards.schemas.manifest import Compression

GraphFunction = TypeVar("GraphFunction", bound=Callable[..., object])

# The offsets that are kept in memory: 1 MiB. In larger splits every stride-th record has one, and the reader
# hops over the headers of the few records up to the one it wants (5 microseconds each).
MOST_OFFSETS = 1 << 17
COMPRESSIONS: Mapping[Compression, str] = {"none": "", "gzip": "GZIP"}
# In the place of a shard's number: empty strings instead of records.
_NO_SHARD = -1
# Reading ahead further than this only fills the processor's cache with what is read once.
BUFFER_BYTES = 1 << 16


@dataclass(frozen=True)
class Shards:
    """The shards of one split, as the graph needs them.

    Attributes:
        paths: shape ``(num_shards,)``.
        sizes: shape ``(num_shards,)`` int64: records in each.
        offsets: int64: the byte at which the records 0, stride, 2 * stride, ... of each shard start.
        first_offsets: shape ``(num_shards,)`` int64: where in ``offsets`` each shard begins.
        stride: the distance of two records whose offsets are known.
        compression: of the files, as TensorFlow calls it.
        bad_starts: int64, ascending: the numbers of examples at which runs of damaged ones start, in whose
            place the first good one is read.
        bad_ends: int64: where these runs end.
    """

    paths: tuple[str, ...]
    sizes: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    first_offsets: npt.NDArray[np.int64]
    stride: int
    compression: str
    bad_starts: npt.NDArray[np.int64]
    bad_ends: npt.NDArray[np.int64]

    @property
    def bases(self) -> npt.NDArray[np.int64]:
        """Shape ``(num_shards,)`` int64: the number of each shard's first example."""
        return np.cumsum(self.sizes) - self.sizes


def as_written(function: GraphFunction) -> GraphFunction:
    """Return ``function`` marked to be traced without AutoGraph's rewriting, which nothing here needs.

    The rewriting takes seconds for the first dataset of a process.
    """
    marked: GraphFunction = tf.autograph.experimental.do_not_convert(function)
    return marked


def shards_of(
    root: Path,
    split: Split,
    indexes: Sequence[RecordIndex],
    compression: Compression,
    damage: Sequence[npt.NDArray[np.bool_]] = (),
) -> Shards:
    """Return the shards of ``split`` in the dataset directory ``root``.

    Args:
        root: the dataset's directory.
        split: its shards.
        indexes: of the shards.
        compression: of the shards.
        damage: which records of each shard are damaged; empty if none is.
    """
    bad = np.concatenate([[False], *damage, [False]])
    edges = np.flatnonzero(np.diff(bad)).astype(np.int64)
    stride = max(1, -(-split.num_examples // MOST_OFFSETS))
    offsets = [index.offsets[::stride] for index in indexes]
    lengths = np.array([len(known) for known in offsets], np.int64)
    return Shards(
        tuple(str(root / shard.path) for shard in split.shards),
        np.array([shard.num_examples for shard in split.shards], np.int64),
        np.concatenate(offsets),
        np.cumsum(lengths) - lengths,
        stride,
        COMPRESSIONS[compression],
        edges[::2],
        edges[1::2],
    )


def parts_of(order: Order, start: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return where ``count`` consecutive places of an epoch from ``start`` on (int64 scalars) are stored.

    Returns:
        Shape ``(parts, 3)`` int64: shard, first record in it, number of records, in reading order.
    """
    start = (order.rotation + start) % tf.maximum(order.ends[-1] // 2, 1)
    end = start + count
    first = tf.searchsorted(order.ends, [start], side="right")[0]
    last = tf.searchsorted(order.starts, [end], side="left")[0]
    starts, ends = order.starts[first:last], order.ends[first:last]
    low = tf.maximum(start, starts)
    return tf.stack([order.shards[first:last], low - starts, tf.minimum(end, ends) - low], axis=-1)


def read_parts(shards: Shards, parts: tf.Tensor, filling: tf.Tensor | int = 0) -> tf.data.Dataset:
    """Return the records of ``parts``, and behind them so many empty strings; elements are scalar strings.

    Args:
        shards: of the split.
        parts: shape ``(parts, 3)``, as ``parts_of`` gives them.
        filling: scalar int64.
    """
    filling = tf.cast(filling, tf.int64)
    # as a part, since a dataset that is put behind another costs time for each record
    empty = tf.stack([tf.constant(_NO_SHARD, tf.int64), tf.zeros([], tf.int64), filling])[tf.newaxis]
    parts = tf.concat([parts, empty[: tf.cast(filling > 0, tf.int32)]], axis=0)
    one = tf.equal(tf.shape(parts)[0], 1)
    # Most streams of stored order lie in one shard; a dataset of datasets would double their cost.
    records = tf.cond(
        one,
        lambda: tf.data.experimental.to_variant(_read_part(shards, parts[0])),
        lambda: tf.data.experimental.to_variant(_read_all(shards, parts)),
    )
    return tf.data.experimental.from_variant(records, tf.TensorSpec([], tf.string))


def _read_all(shards: Shards, parts: tf.Tensor) -> tf.data.Dataset:
    read = as_written(lambda part: _read_part(shards, part))
    return tf.data.Dataset.from_tensor_slices(parts).flat_map(read)


def first_record(shards: Shards) -> tf.data.Dataset:
    """Return the split's first record that is not damaged."""
    number = shards.bad_ends[0] if len(shards.bad_starts) and shards.bad_starts[0] == 0 else 0
    shard = min(int(np.searchsorted(np.cumsum(shards.sizes), number, side="right")), len(shards.sizes) - 1)
    return _read_file(shards, tf.constant([shard, number - shards.bases[shard], 1], tf.int64))


def is_damaged(shards: Shards, numbers: tf.Tensor) -> tf.Tensor:
    """Return which of the examples of these numbers (int64, in stored order) are damaged: the same shape."""
    run = tf.searchsorted(shards.bad_ends, tf.reshape(numbers, [-1]), side="right")
    starts = tf.gather(np.append(shards.bad_starts, np.iinfo(np.int64).max), run)
    return numbers >= tf.reshape(starts, tf.shape(numbers))


def _read_part(shards: Shards, part: tf.Tensor) -> tf.data.Dataset:
    """Return the records of a part of a shard, the first good one in the place of each damaged one."""
    if not len(shards.bad_starts):
        return _read_file(shards, part)
    base = tf.gather(shards.bases, tf.maximum(part[0], 0))
    start, end = base + part[1], base + part[1] + part[2]
    low = tf.searchsorted(shards.bad_ends, [start], side="right")[0]
    high = tf.maximum(tf.searchsorted(shards.bad_starts, [end], side="left")[0], low)
    # what stands in no file has no numbers
    high = tf.where(part[0] == _NO_SHARD, low, high)
    edges = tf.stack(
        [tf.constant(shards.bad_starts)[low:high], tf.constant(shards.bad_ends)[low:high]], axis=1
    )
    edges = tf.clip_by_value(tf.reshape(edges, [-1]), start, end)
    # good and damaged ones in turn
    bounds = tf.concat([[start], edges, [end]], axis=0)
    starts, lengths = bounds[:-1], bounds[1:] - bounds[:-1]
    good = tf.range(tf.size(lengths)) % 2 == 0

    def read(first: tf.Tensor, length: tf.Tensor, is_good: tf.Tensor) -> tf.data.Dataset:
        count = tf.where(is_good, length, 0)
        records = _read_file(shards, tf.stack([part[0], first - base, count]))
        return records.concatenate(first_record(shards).repeat(length - count))

    return tf.data.Dataset.from_tensor_slices((starts, lengths, good)).flat_map(as_written(read))


def _read_file(shards: Shards, part: tf.Tensor) -> tf.data.Dataset:
    is_file = part[0] != _NO_SHARD
    shard, first, count = tf.maximum(part[0], 0), part[1], part[2]
    path = tf.gather(tf.constant(shards.paths), shard)
    known = tf.gather(shards.first_offsets, shard) + first // shards.stride
    # An empty shard behind all others has no offset; of it nothing is read.
    known = tf.minimum(known, len(shards.offsets) - 1)
    num_files = tf.cast(is_file, tf.int32)
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=path[tf.newaxis][:num_files],
        compression_type=shards.compression,
        buffer_size=tf.constant(BUFFER_BYTES, tf.int64),
        byte_offsets=tf.gather(shards.offsets, known)[tf.newaxis][:num_files],
    )
    records = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
    if shards.stride > 1:
        records = records.skip(first % shards.stride)

    # TensorFlow's reader takes a file that ends early for a whole one; explain.py says what happened.
    def behind(_: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(is_file), ["ends early"])]):
            return tf.constant("")

    return records.concatenate(tf.data.Dataset.range(count).map(as_written(behind))).take(count)
