"""Where a shard is damaged, said in the graph: TensorFlow's own errors have an offset, but no file.

A piece that could not be read is missing where the windows are made (see ``streams.py``). Only then are its
shards read once more, from their beginnings, to tell which record of which file is at fault.
"""

from __future__ import annotations

import tensorflow as tf

from tfshards.loader.assign import Assignment
from tfshards.loader.options import Shuffle
from tfshards.loader.order import order_of
from tfshards.loader.read import Shards, as_written, parts_of
from tfshards.loader.window import piece_bounds
from tfshards.schemas.index import FRAME_OVERHEAD

# What stands in the place of a length where a shard ends.
_END = -1
_REMEDY = (
    "; `tfshards verify --deep` finds all that is damaged: restore the file or rebuild the dataset, "
    "or go on without the bad records by on_damage='skip' and remainder='pad'"
)


def check_pieces(
    shards: Shards,
    assignment: Assignment,
    shuffle: Shuffle | None,
    window: tuple[tf.Tensor, tf.Tensor],
    missing: tf.Tensor,
) -> tf.Operation:
    """Return an operation that fails, naming file, record and byte, if pieces of a window are missing.

    Args:
        shards: of the split.
        assignment: what this worker reads.
        shuffle: the order, None for the stored one.
        window: its epoch and its number in that, scalars int64.
        missing: shape ``(num_pieces,)`` bool.
    """

    def fail() -> tf.Tensor:
        epoch, number = window
        starts, _, counts = piece_bounds(assignment, number)
        if not assignment.lanes:
            # what could not be read may stand before, in pieces of the chunk that were only passed over
            earlier = tf.maximum(starts - (assignment.chunk - 1) * assignment.piece_rows, 0)
            starts, counts = earlier, counts + starts - earlier
        order = order_of(tf.constant(shards.sizes), shuffle, epoch)
        pieces = tf.data.Dataset.from_tensor_slices(
            (tf.boolean_mask(starts, missing), tf.boolean_mask(counts, missing))
        )

        def parts(start: tf.Tensor, count: tf.Tensor) -> tf.data.Dataset:
            return tf.data.Dataset.from_tensor_slices(parts_of(order, start, count))

        unsound = pieces.flat_map(as_written(parts))
        faults = unsound.map(as_written(lambda part: _fault(shards, part)))
        faults = faults.filter(as_written(lambda fault: tf.strings.length(fault) > 0)).take(1)
        found = faults.reduce(tf.constant(""), as_written(lambda _, fault: fault))
        text = tf.where(tf.strings.length(found) > 0, found, _exchanged(shards, unsound))
        with tf.control_dependencies([tf.debugging.Assert(False, [text])]):
            return tf.constant(False)

    return tf.cond(tf.reduce_any(missing), fail, lambda: tf.constant(True)).op


def _exchanged(shards: Shards, parts: tf.data.Dataset) -> tf.Tensor:
    """Return the sentence for shards of which each is sound: reading them by their indexes failed."""
    paths = parts.map(as_written(lambda part: tf.gather(tf.constant(shards.paths), part[0])))
    listed = paths.reduce(tf.constant(""), as_written(lambda text, path: tf.strings.join([text, " ", path])))
    what = ": reading failed, but not a second time: the storage failed, or a file was exchanged for another "
    return tf.strings.join(["shard", listed, what, "after it was opened", _REMEDY])


def _fault(shards: Shards, part: tf.Tensor) -> tf.Tensor:
    """Return what is wrong with a shard up to the end of a part of it, as a sentence or empty."""
    path = tf.gather(tf.constant(shards.paths), part[0])
    end = part[1] + part[2]
    records = tf.data.TFRecordDataset(path, shards.compression).take(end)
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
    size = tf.strings.as_string(tf.gather(shards.sizes, part[0]))
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
