"""The values in a record: checked against the schema, and their digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import cast

from tfshards.prep.records.example import Values, example_encoder
from tfshards.schemas import Feature, InputError, Manifest, OptionsError, Schema
from tfshards.schemas.errors import check_strings
from tfshards.schemas.example import Decoded, ParsedExample

DIGEST_BYTES = 16


def compared_features(schema: Schema) -> list[Feature]:
    """Return the features whose values are the content: the images; without images, all but key and label."""
    images = [feature for feature in schema.features if feature.is_encoded]
    return images or [
        feature for feature in schema.features if feature.name != "key" and not feature.is_label
    ]


def check_comparable(schema: Schema) -> None:
    """Raise InputError if examples hold only keys and labels, so that all would be duplicates."""
    if not compared_features(schema):
        raise InputError(
            "duplicates= compares images, or values other than the label, and the source has neither; leave "
            "it out"
        )


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


def selected(schema: Schema, select: Sequence[str] | None) -> tuple[Feature, ...]:
    """Return the features that are selected, all by default, or raise OptionsError about one."""
    if select is None:
        return schema.features
    check_strings("select", select)
    unknown = [name for name in select if name not in schema.names]
    if unknown or not select:
        found = f"select={unknown[0]!r} is not a feature" if unknown else "select=() selects nothing"
        raise OptionsError(f"{found}; the features are {', '.join(map(repr, schema.names))}")
    return tuple(feature for feature in schema.features if feature.name in select)


# The allowed integers of a list by dtype; for int64 all that the list can hold.
_RANGES = {
    "bool": range(2),
    **{f"int{bits}": range(-(1 << bits - 1), 1 << bits - 1) for bits in (8, 16, 32)},
    **{f"uint{bits}": range(1 << bits) for bits in (8, 16, 32)},
}


def parse_record(data: bytes, manifest: Manifest) -> dict[str, Decoded]:
    """Return the values of a record; raise ValueError if they contradict the schema."""
    example = ParsedExample(data)
    schema, values = manifest.schema, dict[str, Decoded]()
    for name in sorted({*schema.names} ^ {*example.names}):
        what = "is missing" if name in schema.names else "is not in the schema"
        raise ValueError(f"the feature {name!r} {what}")
    for feature in schema.features:
        # TensorFlow checks the type of a list even if it has no elements
        wire, elements = example.typed(feature.name)
        values[feature.name] = found = list(elements)
        if fault := feature.values_fault(wire, found) or _range_fault(feature, found):
            raise ValueError(f"the feature {feature.name!r} {fault}")
        # -1 means no class
        classes = range(-1, len(schema.class_names)) if feature.is_label and schema.class_names else None
        if classes and (unknown := [label for label in found if label not in classes]):
            raise ValueError(f"the label {unknown[0]!r} is not one of the {len(classes) - 1} classes")
    return values


def _range_fault(feature: Feature, values: Decoded) -> str | None:
    if feature.wire == "int64" and feature.dtype in _RANGES:
        allowed = _RANGES[feature.dtype]
        beyond = [value for value in cast("list[int]", values) if value not in allowed]
        return f"holds {beyond[0]}, which is out of range for {feature.dtype}" if beyond else None
    return None
