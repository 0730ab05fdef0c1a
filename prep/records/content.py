"""Compute the digest of an example's content, which is equal for examples that differ only in key or label.

Content is the stored images; without images, all values except the key and the label.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from tfshards.prep.records.example import Values, example_encoder
from tfshards.schemas import Feature, InputError, Schema

DIGEST_BYTES = 16


def compared_features(schema: Schema) -> list[Feature]:
    """Return the features whose values are the content: the images; without images, all but key and label."""
    images = [feature for feature in schema.features if feature.is_encoded]
    return images or [
        feature for feature in schema.features if feature.name != "key" and feature.kind != "label"
    ]


def check_comparable(schema: Schema) -> None:
    """Raise InputError if examples hold only keys and labels, so that all would be duplicates."""
    if not compared_features(schema):
        raise InputError("duplicates-no-content")


def content_digest(schema: Schema) -> Callable[[Sequence[Values]], str]:
    """Return a function that maps the values of an example, in the schema's order, to 32 hex digits."""
    compared = compared_features(schema)
    indices = [schema.features.index(feature) for feature in compared]
    encode = example_encoder(Schema(tuple(compared)))

    def digest(values: Sequence[Values]) -> str:
        hashed = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for part in encode([values[index] for index in indices]):
            hashed.update(part)
        return hashed.hexdigest()

    return digest
