"""Records by their numbers: a split's shards as a table, and datasets that read parts of them.

A part is entered by a real seek, at an offset that the shard's index gives; nothing before it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.loader.segments import gather
from tfshards.loader.stages import flat_mapped
from tfshards.schemas import RecordIndex, Split
from tfshards.schemas.manifest import Compression

# The offsets that are kept in memory: 1 MiB. In larger splits every stride-th record has one, and the reader
# hops over the headers of the few records up to the one it wants (5 microseconds each).
MOST_OFFSETS = 1 << 17
COMPRESSIONS: Mapping[Compression, str] = {"none": "", "gzip": "GZIP"}
# In the place of an example's number: a record that only fills a batch.
PADDING = -2
# And from here downwards: a record that could not be read, see ``missing_number``.
_MISSING = -3
# Reading ahead further than this only fills the processor's cache with what is read once.
BUFFER_BYTES = 1 << 16
# Larger records are read each by itself: to copy them out of a buffer costs more than to call the system.
_BUFFERED_BYTES = 16 << 10


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
        buffer_bytes: what each open file reads ahead; 0 for nothing.
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
    buffer_bytes: int
    bad_starts: npt.NDArray[np.int64]
    bad_ends: npt.NDArray[np.int64]

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
        """The shard of the first example that is not damaged, and which of its records it is."""
        number = self.first_good_number
        shard = int(np.searchsorted(np.cumsum(self.sizes), number, side="right"))
        shard = min(shard, len(self.sizes) - 1)
        return shard, number - int(self.bases[shard])


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
    is_buffered = compression != "none" or split.record_bytes < _BUFFERED_BYTES * split.num_examples
    return Shards(
        tuple(str(root / shard.path) for shard in split.shards),
        np.array([shard.num_examples for shard in split.shards], np.int64),
        np.concatenate(offsets),
        np.cumsum(lengths) - lengths,
        stride,
        COMPRESSIONS[compression],
        BUFFER_BYTES if is_buffered else 0,
        edges[::2],
        edges[1::2],
    )


class Parts(NamedTuple):
    """Stretches of records, each in one shard: vectors int64.

    Attributes:
        shards: which one.
        firsts: the first record in it.
        counts: the number of records.
        numbers: the number of the first one, or ``PADDING`` for a single record that fills a batch.
    """

    shards: tf.Tensor
    firsts: tf.Tensor
    counts: tf.Tensor
    numbers: tf.Tensor


def read_parts(shards: Shards, parts: Parts) -> tf.data.Dataset:
    """Return ``(number, record)``, int64 and string, of the records of ``parts``.

    A record that cannot be read, and all behind it in its part, come as empty strings, with the number that
    ``missing_number`` takes back: so no error leaves here which cannot say in what file it happened.
    """
    firsts, known = parts.firsts, gather(shards.first_offsets, parts.shards)
    offsets = gather(shards.offsets, known + (firsts if shards.stride == 1 else firsts // shards.stride))
    hops = () if shards.stride == 1 else (firsts % shards.stride,)
    each = tf.data.Dataset.from_tensor_slices((parts.shards, offsets, parts.counts, parts.numbers, *hops))
    return flat_mapped(each, lambda *part: _read_part(shards, *part))


def missing_number(number: tf.Tensor) -> tf.Tensor:
    """Return the number of the first example of the part in which a record of this number is missing."""
    return _MISSING - number


def is_missing(numbers: tf.Tensor) -> tf.Tensor:
    """Return which of these numbers stand for records that could not be read."""
    return numbers <= _MISSING


def records_of(
    path: tf.Tensor,
    compression: str | tf.Tensor,
    offset: tf.Tensor | None = None,
    buffer_bytes: int = BUFFER_BYTES,
) -> tf.data.Dataset:
    """Return the records of a shard, strings, from the byte ``offset`` on.

    The class in tf.data knows no offsets, and makes a function of its own. TensorFlow cannot serialise the
    graph of a reader with an offset, as ``reduce()`` and finding the cardinality want, except in a function.
    """
    common = {"filenames": path, "compression_type": compression}
    common["buffer_size"] = tf.constant(buffer_bytes, tf.int64)
    if offset is None:
        variant = tf.raw_ops.TFRecordDataset(**common)
    else:
        variant = tf.raw_ops.TFRecordDatasetV2(**common, byte_offsets=offset)
    return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))


def _read_part(
    shards: Shards,
    shard: tf.Tensor,
    offset: tf.Tensor,
    count: tf.Tensor,
    number: tf.Tensor,
    hop: tf.Tensor | None = None,
) -> tf.data.Dataset:
    records = records_of(gather(shards.paths, shard), shards.compression, offset, shards.buffer_bytes)
    if hop is not None:
        records = records.skip(hop)
    # zip() takes the next number also where the records fail: even a file that is missing fails only so often
    numbered = tf.data.Dataset.zip(tf.data.Dataset.range(number, number + count), records).ignore_errors()
    # TensorFlow's reader takes a file that ends early for a whole one.
    missing = (_MISSING - tf.maximum(number, 0), tf.constant(""))
    return numbered.concatenate(tf.data.Dataset.from_tensors(missing).repeat()).take(count)
