"""Records by their numbers: a split's shards as a table, and datasets that read ranges of them.

A range is entered by a real seek, at an offset that the shard's index gives; nothing before it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.loader.order import Order
from tfshards.schemas import FormatError, Problem, RecordIndex, Shard, Split, index_path, parse_index
from tfshards.schemas.manifest import Compression

GraphFunction = TypeVar("GraphFunction", bound=Callable[..., object])

# The offsets that are kept in memory: 1 MiB. In larger splits every stride-th record has one, and the reader
# hops over the headers of the few records up to the one it wants (5 microseconds each).
MOST_OFFSETS = 1 << 17
_COMPRESSIONS: Mapping[Compression, str] = {"none": "", "gzip": "GZIP"}
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
    """

    paths: tuple[str, ...]
    sizes: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    first_offsets: npt.NDArray[np.int64]
    stride: int
    compression: str

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


def open_shards(root: Path, split: Split, compression: Compression) -> Shards:
    """Return the shards of ``split`` in the dataset directory ``root``, with the offsets of their records.

    Raises:
        FormatError: an index file is missing, broken, or does not fit its shard.
    """
    stride = max(1, -(-split.num_examples // MOST_OFFSETS))
    problems: list[Problem] = []
    offsets = [_offsets(root, shard, problems)[::stride] for shard in split.shards]
    if problems:
        raise FormatError(f"{root}: the indexes of the shards", problems)
    lengths = np.array([len(known) for known in offsets], np.int64)
    return Shards(
        tuple(str(root / shard.path) for shard in split.shards),
        np.array([shard.num_examples for shard in split.shards], np.int64),
        np.concatenate(offsets),
        np.cumsum(lengths) - lengths,
        stride,
        _COMPRESSIONS[compression],
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


def read_parts(shards: Shards, parts: tf.Tensor) -> tf.data.Dataset:
    """Return the records, scalar string, of ``parts``, of shape ``(parts, 3)`` as ``parts_of`` gives them."""
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
    """Return the split's first record."""
    shard = int(np.flatnonzero(shards.sizes)[0]) if shards.sizes.any() else 0
    return _read_part(shards, tf.constant([shard, 0, 1], tf.int64))


def _read_part(shards: Shards, part: tf.Tensor) -> tf.data.Dataset:
    shard, first, count = part[0], part[1], part[2]
    path = tf.gather(tf.constant(shards.paths), shard)
    known = tf.gather(shards.first_offsets, shard) + first // shards.stride
    # An empty shard behind all others has no offset; of it nothing is read.
    known = tf.minimum(known, len(shards.offsets) - 1)
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=[path],
        compression_type=shards.compression,
        buffer_size=tf.constant(BUFFER_BYTES, tf.int64),
        byte_offsets=[tf.gather(shards.offsets, known)],
    )
    records = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
    if shards.stride > 1:
        records = records.skip(first % shards.stride)
    size = tf.gather(shards.sizes, shard)
    # TensorFlow's reader takes a file that ends early for a whole one
    return records.concatenate(_ended_early(path, size, shards.compression)).take(count)


def _ended_early(path: tf.Tensor, expected: tf.Tensor, compression: str) -> tf.data.Dataset:
    """Return a dataset that raises an error naming the shard as soon as it is read."""

    def fail(_: tf.Tensor) -> tf.Tensor:
        found = tf.data.TFRecordDataset(path, compression).reduce(
            tf.constant(0, tf.int64), as_written(lambda count, _: count + 1)
        )
        message = tf.strings.join(
            ["shard ", path, " ends after ", tf.strings.as_string(found), " records, but the manifest says ",
             tf.strings.as_string(expected), "; it was changed after it was opened: restore or rebuild it"]
        )  # fmt: skip
        with tf.control_dependencies([tf.debugging.Assert(False, [message])]):
            return tf.identity(path)

    return tf.data.Dataset.range(1).map(as_written(fail))


def _offsets(root: Path, shard: Shard, problems: list[Problem]) -> npt.NDArray[np.int64]:
    path = index_path(shard.path)
    try:
        index = parse_index((root / path).read_text(encoding="ascii"), path)
    except OSError as error:
        problems.append(Problem(path, f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError:
        problems.append(Problem(path, "is not ASCII text"))
    except FormatError as error:
        problems.extend(Problem(f"{path}: {problem.place}", problem.message) for problem in error.problems)
    else:
        _check_index(index, shard, path, problems)
        return index.offsets
    return np.zeros(0, np.int64)


def _check_index(index: RecordIndex, shard: Shard, path: str, problems: list[Problem]) -> None:
    found = f"{len(index.lengths)} records in {index.num_bytes} bytes"
    expected = f"{shard.num_examples} records in {shard.record_bytes} bytes"
    if found != expected:
        problems.append(Problem(path, f"describes {found}, the manifest says {expected} for its shard"))
