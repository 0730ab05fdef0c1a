"""Where a shard is damaged, said in the graph: TensorFlow's own errors have an offset, but no file.

A record that could not be read comes without content (see ``read.py``). Only then is its shard read once
more, from its beginning, to tell which record of which file is at fault.
"""

from __future__ import annotations

import tensorflow as tf

from tfshards.loader.read import Shards, as_written, is_missing, missing_number
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
        firsts = missing_number(tf.boolean_mask(numbers, missing))
        text = _EXPLAINED(shards.paths, shards.sizes, shards.compression, firsts)
        with tf.control_dependencies([tf.debugging.Assert(False, [text])]):
            return tf.constant(False)

    return tf.cond(tf.reduce_any(missing), fail, lambda: tf.constant(True)).op


def _explain(paths: tf.Tensor, sizes: tf.Tensor, compression: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Return what is wrong with the shards of the examples ``numbers``: of the first at fault, a sentence."""
    found = tf.searchsorted(tf.cumsum(sizes), numbers, side="right", out_type=tf.int64)
    found, _ = tf.unique(found)
    unsound = tf.gather(paths, found)
    each = tf.data.Dataset.from_tensor_slices((unsound, tf.gather(sizes, found)))
    faults = each.map(as_written(lambda path, size: _fault(path, size, compression)))
    faults = faults.filter(as_written(lambda fault: tf.not_equal(fault, "")))
    # reading by the indexes has failed also if each is sound
    faults = faults.concatenate(tf.data.Dataset.from_tensors(_exchanged(unsound)))
    return faults.take(1).get_single_element()


def _exchanged(paths: tf.Tensor) -> tf.Tensor:
    """Return the sentence for shards of which each is sound: reading them by their indexes failed."""
    listed = tf.strings.reduce_join(paths, separator=" ")
    what = ": reading failed, but not a second time: the storage failed, or a file was exchanged for another "
    return tf.strings.join(["shard ", listed, what, "after it was opened", _REMEDY])


def _fault(path: tf.Tensor, end: tf.Tensor, compression: tf.Tensor) -> tf.Tensor:
    """Return the first that is wrong with a shard of ``end`` records, as a sentence or empty."""
    records = tf.data.TFRecordDataset(path, compression).take(end)
    lengths = records.map(as_written(lambda record: tf.strings.length(record)))
    marked = lengths.concatenate(tf.data.Dataset.from_tensors(tf.constant(_END)))
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
    size = tf.strings.as_string(end)
    number = tf.strings.as_string(num_sound)
    cut = [" ends after ", number, " records, but the manifest says ", size, "; it was changed after it was "]
    cut_text = tf.strings.join(["shard ", path, *cut, "opened", _REMEDY])
    damaged = [" is damaged at record ", number, ", byte ", tf.strings.as_string(offset), _REMEDY]
    damaged_text = tf.strings.join(["shard ", path, *damaged])
    unread = " cannot be read: it was removed, or its storage failed, after it was opened"
    unread_text = tf.strings.join(["shard ", path, unread, _REMEDY])
    text = tf.where(ended == num_sound, cut_text, damaged_text)
    text = tf.where(tf.logical_and(ended < 0, num_sound == 0), unread_text, text)
    return tf.where(num_sound >= end, "", text)


# Traced once a process, not once a load; not inlined, it is only prepared to run when it has to.
_EXPLAINED = tf.function(
    _explain,
    input_signature=[
        tf.TensorSpec([None], tf.string),
        tf.TensorSpec([None], tf.int64),
        tf.TensorSpec([], tf.string),
        tf.TensorSpec([None], tf.int64),
    ],
    autograph=False,
    experimental_attributes={"_noinline": True},
)
