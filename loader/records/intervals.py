"""Datasets that read intervals of records, and messages about records that cannot be read.

An interval is read from its offset in the shard's index; nothing before it is read. TensorFlow reports only
the offset of damage: a record that cannot be read arrives with a number that says so, and only then its shard
is read again, from the beginning, to find the damaged record.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tfshards.loader.graph.ops import first_after
from tfshards.loader.graph.raw_ops import fail, gather, not_inlined, tfrecord_dataset, without_autograph
from tfshards.loader.graph.stages import call_method, flat_mapped, mapped, unbatched
from tfshards.loader.records.located import RecordIntervals
from tfshards.loader.records.shards import BUFFER_BYTES, Fetcher, Shards
from tfshards.loader.stored.frames import REMEDY
from tfshards.schemas.index import FRAME_OVERHEAD

# This number minus that of an interval's first example means a record of it that could not be read.
MISSING_NUMBER = -3
# Takes the place of a record that is not there: no ``tf.train.Example`` consists of a single byte.
MISSING = b"\xff"


def read_intervals(
    shards: Shards, intervals: RecordIntervals, epoch: tf.Tensor, *, numbered: bool
) -> tf.data.Dataset:
    """Return the records of ``intervals``, as ``(number, record)``, int64 and string, or only the strings.

    With numbers, a record that cannot be read, and all after it in its interval, are empty strings with a
    number up to ``MISSING_NUMBER``, because TensorFlow's own error would not name the file.

    Without numbers, which take an eighth of the time of small records, an error of TensorFlow takes the place
    of such a record, and ``MISSING`` the place of all records after it or after the end of a file.

    Args:
        epoch: the number of the epoch that is read, a scalar int64.
    """
    if shards.fetcher is not None:
        return _fetched(shards.fetcher, intervals, epoch)
    firsts, known = intervals.firsts, gather(shards.first_offsets, intervals.shards)
    offsets = gather(shards.offsets, known + (firsts if shards.stride == 1 else firsts // shards.stride))
    columns = [intervals.shards, offsets, intervals.counts, intervals.numbers]
    columns += [] if shards.stride == 1 else [firsts % shards.stride]
    none = None if numbered else tf.data.Dataset.from_tensors(MISSING).repeat()

    def read_one(
        shard: tf.Tensor, offset: tf.Tensor, count: tf.Tensor, number: tf.Tensor, *more: tf.Tensor
    ) -> tf.data.Dataset:
        path = gather(shards.paths, shard)
        records = tfrecord_dataset(path, shards.compression, shards.buffer_bytes, offset)
        if shards.stride > 1:
            records = records.skip(more[0])
        if none is not None:
            return records.concatenate(none).take(count)
        # zip() uses up a number for each failure, so even a missing file fails at most `count` times.
        numbers = tf.data.Dataset.range(number, number + count)
        read = tf.data.Dataset.zip(numbers, records).ignore_errors()
        # TensorFlow's reader does not detect a file that ends early between two records.
        missing = (MISSING_NUMBER - tf.maximum(number, 0), tf.constant(""))
        return read.concatenate(tf.data.Dataset.from_tensors(missing).repeat()).take(count)

    return flat_mapped(tf.data.Dataset.from_tensor_slices(tuple(columns)), read_one)


def _fetched(fetcher: Fetcher, intervals: RecordIntervals, epoch: tf.Tensor) -> tf.data.Dataset:
    specs = [tf.TensorSpec([None], tf.int64), tf.TensorSpec([None], tf.string)]

    def read_one(
        shard: tf.Tensor, first: tf.Tensor, count: tf.Tensor, number: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        return tuple(call_method(fetcher.read, [epoch, shard, first, count, number], specs))

    columns = (intervals.shards, intervals.firsts, intervals.counts, intervals.numbers)
    # This waits in the thread that requests the records, as reading a slow file would; the threads of the
    # fetcher are not TensorFlow's, so it never waits for itself.
    return unbatched(mapped(tf.data.Dataset.from_tensor_slices(columns), read_one, in_calling_thread=True))


# The length that marks the end of a shard.
_END = -1
SKIP_OR_REMEDY = f"; {REMEDY}, or skip damaged records with on_damage='skip', remainder='pad'"

# The shard can be read from its beginning, although reading by its index failed.
_AGAIN = (
    ": reading failed, but a second attempt succeeded: the storage failed temporarily, or the file was "
    "replaced after it was opened"
)


def check_rows(shards: Shards, numbers: tf.Tensor) -> tf.Operation:
    """Return an operation that fails, naming file, record and offset, if records could not be read."""
    return fail_unless(tf.reduce_all(numbers > MISSING_NUMBER), lambda: explained(shards, numbers))


def fail_unless(condition: tf.Tensor, explain: Callable[[], tf.Tensor]) -> tf.Operation:
    """Return an operation that fails with the text of ``explain`` unless ``condition`` is true."""

    def failed() -> tf.Tensor:
        with tf.control_dependencies([fail(explain())]):
            return tf.constant(False)

    return tf.cond(condition, lambda: tf.constant(True), failed).op


def explained(shards: Shards, numbers: tf.Tensor) -> tf.Tensor:
    """Return a message about the first record that could not be read, a scalar string.

    Records without numbers are read a second time for them, by which none may be missing.
    """
    missing = numbers <= MISSING_NUMBER
    first = gather(numbers, tf.argmax(tf.cast(missing, tf.int32)))
    if shards.fetcher is not None:
        return call_method(shards.fetcher.explain, [MISSING_NUMBER - first], [tf.TensorSpec([], tf.string)])[
            0
        ]
    some = tf.reduce_any(missing)
    number = tf.where(some, MISSING_NUMBER - first, first)
    text = _EXPLAINED(shards.paths, shards.sizes, shards.compression, number)
    # the shard of the first record need not be the one that could not be read
    return tf.where(
        some, text, f"one of the shards {shards.paths[0]} to {shards.paths[-1]}{_AGAIN}{SKIP_OR_REMEDY}"
    )


def _explain(paths: tf.Tensor, sizes: tf.Tensor, compression: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Return a message about what is wrong with the shard of the example ``number``."""
    shard = tf.squeeze(first_after(tf.cumsum(sizes), tf.expand_dims(number, 0)))
    path, end = gather(paths, shard), gather(sizes, shard)
    records = mapped(
        tfrecord_dataset(path, compression, BUFFER_BYTES, None).take(end),
        lambda record: tf.strings.length(record),
    )
    marked = records.concatenate(tf.data.Dataset.from_tensors(tf.constant(_END)))
    # A record that cannot be read uses up a number, and so does the marker after the last record.
    numbered = tf.data.Dataset.zip(tf.data.Dataset.range(end + 2), marked).ignore_errors()

    def count(
        sound: tuple[tf.Tensor, tf.Tensor, tf.Tensor], found: tuple[tf.Tensor, tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        (num_sound, offset, ended), (number, length) = sound, found
        is_next = tf.logical_and(tf.equal(number, num_sound), length >= 0)
        num_bytes = tf.cast(length, tf.int64) + FRAME_OVERHEAD
        at_end = tf.where(length < 0, number, ended)
        return num_sound + tf.cast(is_next, tf.int64), offset + tf.where(is_next, num_bytes, 0), at_end

    zero = tf.constant(0, tf.int64)
    num_sound, offset, ended = numbered.reduce((zero, zero, zero - 1), without_autograph(count))
    cut = tf.strings.format(
        " ends after {} records instead of {}; it was changed after it was opened",
        (num_sound, end),
    )
    damaged = tf.strings.format(" is damaged at record {}, offset {}", (num_sound, offset))
    unread = " cannot be read: it was removed, or its storage failed, after it was opened"
    text = tf.where(ended == num_sound, cut, damaged)
    text = tf.where(tf.logical_and(ended < 0, num_sound == 0), unread, text)
    return tf.strings.join(["shard ", path, tf.where(num_sound >= end, _AGAIN, text), SKIP_OR_REMEDY])


_EXPLAINED = not_inlined(
    _explain,
    [
        tf.TensorSpec([None], tf.string),
        tf.TensorSpec([None], tf.int64),
        tf.TensorSpec([], tf.string),
        tf.TensorSpec([], tf.int64),
    ],
)
