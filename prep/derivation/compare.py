"""Compare the schemas of two datasets whose examples are to be combined."""

from __future__ import annotations

from tfshards.schemas import Feature, Schema


def feature_difference(one: Schema, one_name: str, other: Schema, other_name: str) -> str | None:
    """Return the first feature in which two schemas differ, as a part of a sentence, or None.

    The order of features does not matter, except where it determines which feature holds the class.

    Args:
        one: the first schema.
        one_name: name of the owner of ``one`` in the message.
        other: the second schema.
        other_name: name of the owner of ``other`` in the message.
    """
    features, others = ({feature.name: feature for feature in schema.features} for schema in (one, other))
    for name in sorted({*features, *others}):
        if features.get(name) != others.get(name):
            found = _described(features.get(name)), _described(others.get(name))
            return f"the feature {name!r} is {found[0]} in {one_name}, and {found[1]} in {other_name}"
    if one.label and other.label and one.label != other.label:
        return (
            f"the first scalar feature of kind 'label' is {one.label.name!r} in {one_name}, "
            f"and {other.label.name!r} in {other_name}"
        )
    return None


def class_difference(one: Schema, one_name: str, other: Schema, other_name: str) -> str | None:
    """Return the first class in which two schemas differ; the arguments are as in ``feature_difference``."""
    for label in range(max(len(one.class_names), len(other.class_names))):
        found = _class(one, label), _class(other, label)
        if found[0] != found[1]:
            return f"class {label} is {found[0]} in {one_name}, and {found[1]} in {other_name}"
    return None


def _described(feature: Feature | None) -> str:
    if feature is None:
        return "missing"
    shape = ", ".join("?" if dim is None else str(dim) for dim in feature.shape)
    return f"({feature.kind}, {feature.dtype}, [{shape}])"


def _class(schema: Schema, label: int) -> str:
    return repr(schema.class_names[label]) if label < len(schema.class_names) else "missing"
