"""Whether the examples of two schemas can stand in one dataset."""

from __future__ import annotations

from tfshards.schemas import Feature, Schema


def feature_difference(one: Schema, here: str, other: Schema, there: str) -> str | None:
    """Return in which feature two schemas differ, as a part of a sentence.

    The order does not count, but where it decides which of several features tells an example's class.

    ``here`` and ``there`` say whose they are.
    """
    features, others = ({feature.name: feature for feature in schema.features} for schema in (one, other))
    for name in sorted({*features, *others}):
        if features.get(name) != others.get(name):
            found = _described(features.get(name)), _described(others.get(name))
            return f"the feature {name!r} is {found[0]} in {here}, and {found[1]} in {there}"
    if one.label and other.label and one.label != other.label:
        return (
            f"the first scalar feature of kind 'label' is {one.label.name!r} in {here}, "
            f"and {other.label.name!r} in {there}"
        )
    return None


def class_difference(one: Schema, here: str, other: Schema, there: str) -> str | None:
    """Return in which class two schemas differ, as ``feature_difference`` does."""
    for label in range(max(len(one.class_names), len(other.class_names))):
        found = _class(one, label), _class(other, label)
        if found[0] != found[1]:
            return f"class {label} is {found[0]} in {here}, and {found[1]} in {there}"
    return None


def _described(feature: Feature | None) -> str:
    if feature is None:
        return "missing"
    shape = ", ".join("?" if dim is None else str(dim) for dim in feature.shape)
    return f"({feature.kind}, {feature.dtype}, [{shape}])"


def _class(schema: Schema, label: int) -> str:
    return repr(schema.class_names[label]) if label < len(schema.class_names) else "missing"
