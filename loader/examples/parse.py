"""Records to tensors: the loader's side of the table ``KINDS`` of ``schemas.feature``."""

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
        features: the features to parse; the others' values are not copied.

    Returns:
        By name, in the order of ``features``: shape ``(n, *feature.shape)`` of the feature's dtype, ragged
        ``(n, None)`` for lists of any length; an image is its encoded bytes, shape ``(n,)`` string.
    """
    spec = {feature.name: _wire_spec(feature) for feature in features}
    values: Mapping[str, tf.Tensor] = tf.io.parse_example(records, spec)
    return {feature.name: _decode(values[feature.name], feature) for feature in features}


def _wire_spec(feature: Feature) -> tf.io.FixedLenFeature | tf.io.RaggedFeature:
    if feature.kind in ("image", "raw"):
        return tf.io.FixedLenFeature([], tf.string)
    wire_dtype = {"bytes": tf.string, "int64": tf.int64, "float": tf.float32}[feature.wire]
    if feature.is_ragged:
        # A record without the feature reads as one with an empty list; only verify distinguishes them.
        return tf.io.RaggedFeature(wire_dtype, row_splits_dtype=tf.int64)
    return tf.io.FixedLenFeature(feature.shape, wire_dtype)


def _decode(value: tf.Tensor, feature: Feature) -> tf.Tensor:
    if feature.kind in ("image", "bytes"):
        return value
    if feature.kind != "raw":
        return tf.cast(value, feature.dtype)
    elements = tf.io.decode_raw(value, _DECODED_AS.get(feature.dtype, feature.dtype), little_endian=True)
    if feature.dtype in _DECODED_AS:
        elements = tf.bitcast(elements, feature.dtype)
    # where there are no elements, the number of rows does not follow from theirs
    rows = tf.shape(value)[0] if 0 in feature.shape else -1
    return tf.reshape(elements, [rows, *feature.shape])
