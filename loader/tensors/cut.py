"""Boxes of JPEG files, in the graph; see ``schemas/jpeg_intervals.py``."""

from __future__ import annotations

import tensorflow as tf

from tfshards.schemas import jpeg_intervals as intervals

# NumPy's byte strings have no zeros at their ends
_OCTETS = [bytes([number]) for number in range(256)]
_LONG, _SHORT, _HEAD = intervals.LONG_AT, intervals.SHORT_AT, intervals.LENGTHS_AT


def decode_and_crop(
    encoded: tf.Tensor, _: tf.Tensor, box: tf.Tensor, channels: int | None, method: str
) -> tf.Tensor:
    """Return what ``decode_box`` returns of a file without an index, except for the outer columns."""
    return tf.io.decode_and_crop_jpeg(encoded, box, channels=channels, dct_method=method)


def decode_box(
    encoded: tf.Tensor, sides: tf.Tensor, box: tf.Tensor, channels: int | None, method: str
) -> tf.Tensor:
    """Return the pixels of a box of a JPEG, uint8; of a large file with an index, the rest is not decoded.

    Args:
        sides: ``[height, width]`` int32 of the image.
        box: ``[top, left, height, width]`` int32.
        method: ``dct_method`` of ``tf.io.decode_jpeg``.
    """

    def whole() -> tf.Tensor:
        return decode_and_crop(encoded, sides, box, channels, method)

    def large() -> tf.Tensor:
        # substr() fails beyond the end of a string
        start = tf.strings.join([tf.strings.substr(encoded, 0, _HEAD), bytes(_HEAD)])
        num_bytes = tf.io.decode_raw(tf.strings.substr(start, _LONG, 4), tf.int32)[0]
        is_indexed = tf.logical_and(
            tf.equal(tf.strings.substr(start, intervals.MAGIC_AT, len(intervals.MAGIC)), intervals.MAGIC),
            tf.equal(num_bytes, tf.strings.length(encoded)),
        )
        # as they are in the header, and of intervals that are not empty
        stated = _integers(start, _SHORT, 8, tf.uint16)
        is_indexed &= tf.reduce_all(tf.concat([tf.equal(stated[:2], sides), stated[2:] > 0], 0))
        return tf.cond(is_indexed, lambda: _decode_cut(encoded, sides, box, channels, method), whole)

    spared = tf.reduce_prod(tf.cast(sides, tf.int64)) - tf.reduce_prod(tf.cast(box[2:], tf.int64))
    return tf.cond(spared >= intervals.LEAST_SPARED, large, whole)


def _decode_cut(
    encoded: tf.Tensor, sides: tf.Tensor, box: tf.Tensor, channels: int | None, method: str
) -> tf.Tensor:
    """Decode the file that ``jpeg_intervals.cut`` returns."""
    _, frame, data = tf.unstack(_integers(encoded, _LONG, 12, tf.int32), num=3)
    interval = _integers(encoded, _SHORT, 8, tf.uint16)[2:]
    per_column, per_row = tf.unstack(-(-sides // interval))
    lengths = _integers(encoded, intervals.LENGTHS_AT, 2 * per_column * per_row, tf.uint16)
    # a marker of two bytes between intervals
    begins = data + tf.cumsum(lengths + 2, exclusive=True)
    first = tf.maximum(0, box[:2] - intervals.MARGIN) // interval
    end = -(-tf.minimum(sides, box[:2] + box[2:] + intervals.MARGIN) // interval)
    rows, columns = (tf.range(first[axis], end[axis]) for axis in (0, 1))
    chosen = tf.reshape(rows[:, tf.newaxis] * per_row + columns, [-1])
    parts = tf.strings.substr(encoded, tf.gather(begins, chosen), tf.gather(lengths, chosen))
    numbers = tf.range(tf.size(chosen) - 1) % len(intervals.MARKERS)
    markers = tf.concat([tf.gather(tf.constant(intervals.MARKERS), numbers), [intervals.END]], 0)
    height, width = tf.unstack(tf.minimum(sides, end * interval) - first * interval)
    octets = tf.gather(
        tf.constant(_OCTETS), tf.stack([height // 256, height % 256, width // 256, width % 256])
    )
    tables = intervals.LENGTHS_AT + 2 * tf.size(lengths)
    # the segment of JFIF decides how decoders take colors
    jfif = tf.strings.substr(encoded, 0, intervals.AT)
    before, after = (
        tf.strings.substr(encoded, tables, frame - tables),
        tf.strings.substr(encoded, frame + 4, data - frame - 4),
    )
    pieces = [[jfif, before], octets, [after], tf.reshape(tf.stack([parts, markers], 1), [-1])]
    pixels = tf.io.decode_jpeg(tf.strings.reduce_join(tf.concat(pieces, 0)), channels, dct_method=method)
    top, left = tf.unstack(box[:2] - first * interval)
    return pixels[top : top + box[2], left : left + box[3]]


def _integers(encoded: tf.Tensor, at: int, count: int | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return the little-endian numbers in some bytes, int32."""
    return tf.cast(tf.io.decode_raw(tf.strings.substr(encoded, at, count), dtype), tf.int32)
