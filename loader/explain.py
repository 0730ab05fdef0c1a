"""Where a shard is damaged, said in the graph: TensorFlow's own errors have an offset, but no file.

A record that could not be read comes without content (see ``read.py``). Only then is its shard read once
more, from its beginning, to tell which record of which file is at fault.
"""

from __future__ import annotations

import tensorflow as tf

from tfshards.loader.read import Shards, is_missing, missing_number, records_of
from tfshards.loader.segments import found, gather
from tfshards.loader.stages import as_written, mapped
from tfshards.schemas.index import FRAME_OVERHEAD

# What stands in the place of a length where a shard ends.
_END = -1
_REMEDY = (
    "; `tfshards verify --deep` finds all that is damaged: restore the file or rebuild the dataset, "
    "or go on without the bad records by on_damage='skip' and remainder='pad'"
)


def check_rows(shards: Shards, numbers: tf.Tensor) -> tf.Operation:
    """Return an operation that fails, naming file, record and byte, if records could not be read.

    Args:
        shards: of the split.
        numbers: shape ``(rows,)`` int64, as ``read_parts`` gives them.
    """
    missing = is_missing(numbers)

    def fail() -> tf.Tensor:
        first = gather(numbers, tf.argmax(tf.cast(missing, tf.int32)))
        text = _EXPLAINED(shards.paths, shards.sizes, shards.compression, missing_number(first))
        with tf.control_dependencies([tf.raw_ops.Assert(condition=False, data=[text])]):
            return tf.constant(False)

    return tf.cond(tf.reduce_any(missing), fail, lambda: tf.constant(True)).op


def _explain(paths: tf.Tensor, sizes: tf.Tensor, compression: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Return what is wrong with the shard of the example ``number``, as a sentence."""
    shard = tf.squeeze(found(tf.cumsum(sizes), tf.expand_dims(number, 0)))
    path, end = gather(paths, shard), gather(sizes, shard)
    records = mapped(records_of(path, compression).take(end), lambda record: tf.strings.length(record))
    marked = records.concatenate(tf.data.Dataset.from_tensors(tf.constant(_END)))
    # A record that cannot be read takes a number away, the marker behind the last record takes one more.
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
    num_sound, offset, ended = numbered.reduce((zero, zero, zero - 1), as_written(count))
    cut = tf.strings.format(
        " ends after {} records, but the manifest says {}; it was changed after it was opened",
        (num_sound, end),
    )
    damaged = tf.strings.format(" is damaged at record {}, byte {}", (num_sound, offset))
    unread = " cannot be read: it was removed, or its storage failed, after it was opened"
    # reading by its index has failed all the same
    sound = (
        ": reading failed, but not a second time: the storage failed, or the file was exchanged for another "
        "after it was opened"
    )
    text = tf.where(ended == num_sound, cut, damaged)
    text = tf.where(tf.logical_and(ended < 0, num_sound == 0), unread, text)
    return tf.strings.join(["shard ", path, tf.where(num_sound >= end, sound, text), _REMEDY])


# Traced once a process, not once a load; not inlined, it is only prepared to run when it has to.
_EXPLAINED = tf.function(
    _explain,
    input_signature=[
        tf.TensorSpec([None], tf.string),
        tf.TensorSpec([None], tf.int64),
        tf.TensorSpec([], tf.string),
        tf.TensorSpec([], tf.int64),
    ],
    autograph=False,
    experimental_attributes={"_noinline": True},
)
