"""``feature_description``: what ``tf.io.parse_example`` needs for the records of a dataset."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

from tfshards.loader.options.selection import select_features
from tfshards.schemas import Feature, read_manifest

Description: TypeAlias = "tf.io.FixedLenFeature | tf.io.RaggedFeature"


def feature_description(
    path: str | os.PathLike[str], select: Sequence[str] | None = None
) -> dict[str, Description]:
    """Return what ``tf.io.parse_example`` needs for the records of a dataset, for pipelines of your own.

    >>> features = loader.feature_description("data/photos", select=("image", "label"))
    >>> paths = [f"data/photos/{shard.path}" for shard in read_manifest("data/photos").splits["train"].shards]
    >>> records = tf.data.TFRecordDataset(paths).batch(256)
    >>> examples = records.map(lambda batch: tf.io.parse_example(batch, features))

    Args:
        path: the directory with ``dataset.json``, or its URL.
        select: names of features; by default all.

    Returns:
        By name, in the schema's order or that of ``select``, what is parsed:

        - an image or a mask: a scalar string, its encoded bytes, for ``tf.io.decode_image``;
        - a raw tensor: a scalar string, for ``tf.reshape(tf.io.decode_raw(value, dtype), shape)``;
        - integers: int64, to be cast to the feature's dtype, of its shape;
        - floats: float32, to be cast to the feature's dtype, of its shape;
        - byte strings: strings of the feature's shape;
        - lists of any length: ragged, of the same dtypes, with the elements of rows one after another.

        Shapes and dtypes are those of ``read_manifest(path).schema[name]``.

    Raises:
        OptionsError: ``select`` names no features, or unknown ones.
        InputError: there is no dataset in ``path``.
        FormatError: the manifest breaks the format.
    """
    features = select_features(read_manifest(path).schema, select)
    return {feature.name: description_of(feature) for feature in features}


def description_of(feature: Feature) -> Description:
    """Return what ``tf.io.parse_example`` needs for a feature."""
    if feature.is_encoded or feature.is_raw:
        return tf.io.FixedLenFeature([], tf.string)
    wire_dtype = {"bytes": tf.string, "int64": tf.int64, "float": tf.float32}[feature.wire]
    if feature.is_ragged:
        # A record without the feature reads as one with an empty list; only verify distinguishes them.
        return tf.io.RaggedFeature(wire_dtype, row_splits_dtype=tf.int64)
    return tf.io.FixedLenFeature(feature.shape, wire_dtype)
