"""Parse records into tensors: the loader's side of the table ``KINDS`` in ``schemas.feature``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfshards.schemas import Feature

# tf.io.decode_raw has no kernels for these; the same bits are decoded as the other type.
_DECODED_AS = {"uint32": "int32", "uint64": "int64"}


def parse_examples(records: tf.Tensor, features: Sequence[Feature]) -> dict[str, tf.Tensor]:
    """Return the values of ``features`` in serialized ``tf.train.Example`` records.

    Args:
        records: shape ``(n,)`` string.
        features: the features to parse; the values of others are not copied.

    Returns:
        By name, in the order of ``features``: shape ``(n, *feature.shape)`` of the feature's dtype, ragged
        for lists of any length, ``(n, None)`` or ``(n, None, k)``; an image or a mask is its encoded bytes,
        shape ``(n,)`` string.
    """
    spec = {feature.name: _wire_spec(feature) for feature in features}
    values: Mapping[str, tf.Tensor] = tf.io.parse_example(records, spec)
    return {feature.name: _decode(values[feature.name], feature) for feature in features}


def _wire_spec(feature: Feature) -> tf.io.FixedLenFeature | tf.io.RaggedFeature:
    if feature.is_encoded or feature.kind == "raw":
        return tf.io.FixedLenFeature([], tf.string)
    wire_dtype = {"bytes": tf.string, "int64": tf.int64, "float": tf.float32}[feature.wire]
    if feature.is_ragged:
        # A record without the feature reads as one with an empty list; only verify distinguishes them.
        return tf.io.RaggedFeature(wire_dtype, row_splits_dtype=tf.int64)
    return tf.io.FixedLenFeature(feature.shape, wire_dtype)


def _decode(value: tf.Tensor, feature: Feature) -> tf.Tensor:
    if feature.is_encoded or feature.kind == "bytes":
        return value
    if feature.kind != "raw":
        return _in_rows(tf.cast(value, feature.dtype), feature)
    elements = tf.io.decode_raw(value, _DECODED_AS.get(feature.dtype, feature.dtype), little_endian=True)
    if feature.dtype in _DECODED_AS:
        elements = tf.bitcast(elements, feature.dtype)
    # without elements, the number of rows cannot be inferred from their number
    rows = tf.shape(value)[0] if 0 in feature.shape else -1
    return tf.reshape(elements, [rows, *feature.shape])


def _in_rows(value: tf.Tensor, feature: Feature) -> tf.Tensor:
    """Return lists of elements as lists of rows, if the feature has the shape ``(None, k)``."""
    length = feature.row_elements
    if len(feature.shape) != 2 or not feature.is_ragged:
        return value
    splits = value.row_splits
    message = f"the feature {feature.name!r} has values that are not rows of {length}"
    with tf.control_dependencies(
        [tf.debugging.assert_equal(splits % length, tf.zeros_like(splits), message)]
    ):
        rows = tf.reshape(value.values, [-1, length])
    return tf.RaggedTensor.from_row_splits(rows, splits // length, validate=False)
