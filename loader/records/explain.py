"""Report, in the graph, the file and record of damage found while reading: TensorFlow reports only an offset.

A record that cannot be read arrives with a number that says so (see ``records/intervals.py``). Only then is
its shard read again, from the beginning, to find the damaged record.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tfshards.loader.graph.intervals import found
from tfshards.loader.graph.raw_ops import (
    fail,
    gather,
    not_inlined,
    tfrecord_dataset,
    without_autograph,
)
from tfshards.loader.graph.stages import call_method, mapped
from tfshards.loader.records.intervals import is_missing, missing_number
from tfshards.loader.records.shards import BUFFER_BYTES, Shards
from tfshards.schemas.index import FRAME_OVERHEAD

# The length that marks the end of a shard.
_END = -1
REMEDY = (
    "; `tfshards verify DATASET --deep` lists all damage, `tfshards verify DATASET --repair SOURCE` rebuilds "
    "the file from its source; or restore it from a backup, or skip damaged records with on_damage='skip', "
    "remainder='pad'"
)

# The shard can be read from its beginning, although reading by its index failed.
_AGAIN = (
    ": reading failed, but a second attempt succeeded: the storage failed temporarily, or the file was "
    "replaced after it was opened"
)


def check_rows(shards: Shards, numbers: tf.Tensor) -> tf.Operation:
    """Return an operation that fails, naming file, record and offset, if records could not be read."""
    all_read = tf.logical_not(tf.reduce_any(is_missing(numbers)))
    return fail_unless(all_read, lambda: explained(shards, numbers))


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
    missing = is_missing(numbers)
    first = gather(numbers, tf.argmax(tf.cast(missing, tf.int32)))
    if shards.fetcher is not None:
        return call_method(shards.fetcher.explain, [missing_number(first)], [tf.string])[0]
    some = tf.reduce_any(missing)
    number = tf.where(some, missing_number(first), first)
    text = _EXPLAINED(shards.paths, shards.sizes, shards.compression, number)
    # the shard of the first record need not be the one that could not be read
    return tf.where(some, text, f"one of the shards {shards.paths[0]} to {shards.paths[-1]}{_AGAIN}{REMEDY}")


def _explain(paths: tf.Tensor, sizes: tf.Tensor, compression: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Return a message about what is wrong with the shard of the example ``number``."""
    shard = tf.squeeze(found(tf.cumsum(sizes), tf.expand_dims(number, 0)))
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
    return tf.strings.join(["shard ", path, tf.where(num_sound >= end, _AGAIN, text), REMEDY])


_EXPLAINED = not_inlined(
    _explain,
    [
        tf.TensorSpec([None], tf.string),
        tf.TensorSpec([None], tf.int64),
        tf.TensorSpec([], tf.string),
        tf.TensorSpec([], tf.int64),
    ],
)
