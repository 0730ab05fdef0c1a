"""Datasets that read intervals of records.

An interval is read from its offset in the shard's index; nothing before it is read.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfshards.loader.graph.intervals import repeated
from tfshards.loader.graph.raw_ops import gather, tfrecord_dataset
from tfshards.loader.graph.stages import call_method, flat_mapped
from tfshards.loader.records.shards import Shards

# Used instead of an example's number for a record that only pads a batch.
PADDING = -2
# This number and lower ones mean a record that could not be read; see ``missing_number``.
_MISSING = -3
# Takes the place of a record that is not there: no ``tf.train.Example`` consists of a single byte.
MISSING = b"\xff"


class RecordIntervals(NamedTuple):
    """Intervals of records, each in one shard, as int64 vectors.

    Attributes:
        firsts: the index of the first record in the shard.
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

    Without numbers, which take an eighth of the time of small records, an error of TensorFlow takes the place
    of such a record, and ``MISSING`` the place of all records after it or after the end of a file.

    Args:
        epoch: the number of the epoch that is read, a scalar int64.
    """
    firsts, known = intervals.firsts, gather(shards.first_offsets, intervals.shards)
    offsets = gather(shards.offsets, known + (firsts if shards.stride == 1 else firsts // shards.stride))
    columns = [intervals.shards, offsets, intervals.counts, intervals.numbers]
    columns += [] if shards.stride == 1 else [firsts % shards.stride]
    columns += [] if shards.fetcher is None else [firsts]
    none = None if numbered else tf.data.Dataset.from_tensors(MISSING).repeat()

    def read(
        shard: tf.Tensor, offset: tf.Tensor, count: tf.Tensor, number: tf.Tensor, *more: tf.Tensor
    ) -> tf.data.Dataset:
        if shards.fetcher is None:
            path = gather(shards.paths, shard)
        else:
            # This waits in the thread that requests the records, as reading a slow file would; the threads of
            # the fetcher are not TensorFlow's, so it never waits for itself.
            wanted = [epoch, shard, more[-1], count, number]
            path, start = call_method(shards.fetcher.locate, wanted, [tf.string, tf.int64])
            offset -= start
        records = tfrecord_dataset(path, shards.compression, shards.buffer_bytes, offset)
        if shards.stride > 1:
            records = records.skip(more[0])
        if none is not None:
            return records.concatenate(none).take(count)
        # zip() uses up a number for each failure, so even a missing file fails at most `count` times.
        numbers = tf.data.Dataset.range(number, number + count)
        found = tf.data.Dataset.zip(numbers, records).ignore_errors()
        # TensorFlow's reader does not detect a file that ends early between two records.
        missing = (_MISSING - tf.maximum(number, 0), tf.constant(""))
        return found.concatenate(tf.data.Dataset.from_tensors(missing).repeat()).take(count)

    return flat_mapped(tf.data.Dataset.from_tensor_slices(tuple(columns)), read)


def missing_number(number: tf.Tensor) -> tf.Tensor:
    """Return the number of the first example of the interval in which this record is missing."""
    return _MISSING - number


def is_missing(numbers: tf.Tensor) -> tf.Tensor:
    """Return which of these numbers mean that a record could not be read."""
    return numbers <= _MISSING
