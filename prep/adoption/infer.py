"""Infer the features of a schema from the values that all records have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tfshards.prep.adoption.seen import KEY, FeatureRoles, Findings, Seen
from tfshards.prep.sources.classes import MAX_CLASSES
from tfshards.schemas import Feature, Problem
from tfshards.schemas.keys import hash_array, hash_key

# How much of a value a message shows.
_SHOWN_BYTES = 40


@dataclass(frozen=True)
class Inferred:
    """The features that were inferred from records, sorted by name; without one, the problems."""

    features: tuple[Feature, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]

    @property
    def label(self) -> Feature | None:
        """The feature of kind ``label``."""
        return next((feature for feature in self.features if feature.kind == "label"), None)


def infer(found: Findings) -> Inferred:
    """Return the features of the records, each of which must have all of them.

    Integers are of kind ``int`` or ``label``, floats of kind ``float``, byte strings of kind ``bytes``, or
    ``image`` if all of them are images. A feature with one element in every record is a scalar, with n
    elements in every record a vector, and with differing numbers a list of any length.
    """
    known = ", ".join(map(repr, sorted(found.features))) or "none"
    problems = [
        Problem(f"feature {name!r}", f"is not in any record; the features are {known}")
        for name in found.roles.names
        if name not in found.features and name not in found.dropped
    ]
    label = found.roles.label or _usual_label(found)
    features = []
    for name, seen in sorted(found.features.items()):
        if fault := _fault(name, seen, found):
            problems.append(Problem(f"feature {name!r}", fault))
            continue
        try:
            feature = _feature(name, seen, label)
        except ValueError as error:
            problems.append(Problem(f"feature {name!r}", f"{error}; leave it out with drop=, or rename it"))
            continue
        features.append(feature)
    if not features and not problems:
        problems.append(Problem("schema", "no feature is left; leave fewer out with drop="))
    return Inferred(tuple(features), tuple(problems), tuple(_warnings(found, features)))


def label_faults(seen: Seen, label: Feature, class_names: Sequence[str]) -> list[Problem]:
    """Return what contradicts the names of the classes."""
    # lists are not counted, so only verify can find a contradiction; -1 means no class
    numbers = [seen.least_int, seen.greatest_int] if label.shape == () else []
    number = len(class_names)
    return [
        Problem(
            f"feature {label.name!r}",
            f"has the value {value}, but there are {number} class names, 0 to {number - 1}",
        )
        for value in numbers
        if not -1 <= value < number
    ][:1]


def _usual_label(found: Findings) -> str | None:
    """Return the feature that looks like a label by its name and values; of several, the shortest name."""
    names = [
        name
        for name, seen in found.features.items()
        if seen.labels and seen.is_scalar and seen.least_int >= 0 and len({*seen.labels}) <= MAX_CLASSES
    ]
    return min(names, key=lambda name: (name != "label", len(name), name), default=None)


def _fault(name: str, seen: Seen, found: Findings) -> str | None:
    leave_out = f"leave it out with drop={(name,)!r}"
    if seen.clash:
        return f"{seen.clash}; {leave_out}"
    if seen.num_records < found.num_records:
        part = f"{seen.num_records:,} of {found.num_records:,} records"
        return (
            f"is only in {part}, and not in {seen.missing_at}; every record must have it, if only as an "
            f"empty list: build a dataset of the records with prep.Examples, or {leave_out}"
        )
    if not seen.wire:
        return f"has no list in any record, so its type is unknown; {leave_out}"
    if name == KEY and seen.wire == "bytes":
        unique = len(np.unique(hash_array(map(hash_key, found.keys))))
        if unique < len(found.keys):
            return (
                f"has only {unique:,} different values in {len(found.keys):,} records; a feature of this "
                f"name must be unique: {leave_out}"
            )
        is_key = seen.is_scalar and seen.no_image_at
        if is_key and (key := next((key for key in found.keys if b"\0" in key), None)):
            return f"has the value {key[:_SHOWN_BYTES]!r}, but a key cannot contain NUL: {leave_out}"
    if seen.deep_color_at and not seen.no_image_at:
        return (
            f"is a PNG in color with 16 bits in {seen.deep_color_at}; 'tfshards build arrays' stores such "
            f"pixels, or {leave_out}"
        )
    if seen.image_shape and not seen.no_image_at and not seen.is_scalar:
        return f"is a list of images; write one feature per view, in every record, or {leave_out}"
    return _role_fault(name, seen, found.roles)


def _role_fault(name: str, seen: Seen, roles: FeatureRoles) -> str | None:
    if name == roles.label and seen.wire != "int64":
        return f"was given as label=, but {seen.wire_at} holds no integers"
    if name not in roles.images:
        return None
    if seen.wire != "bytes":
        return f"was given in images=, but {seen.wire_at} holds no byte strings"
    at = seen.no_image_at or ("" if seen.image_shape else "every record")
    return f"was given in images=, but {at} holds no JPEG, PNG, GIF or WebP" if at else None


def _feature(name: str, seen: Seen, label: str | None) -> Feature:
    # TensorFlow requires a list of any length if a record has no list, not even an empty one
    is_even = seen.fewest == seen.most and not seen.num_listless
    shape: tuple[int | None, ...] = () if seen.is_scalar else (seen.most,) if is_even else (None,)
    if seen.image_shape and not seen.no_image_at:
        dtype = "uint16" if seen.has_deep_images else "uint8"
        return Feature(name, "image", dtype, seen.image_shape)
    if seen.wire == "bytes":
        return Feature(name, "bytes", "bytes", shape)
    if seen.wire == "float":
        return Feature(name, "float", "float32", shape)
    return Feature(name, "label" if name == label else "int", "int64", shape)


def _warnings(found: Findings, features: Sequence[Feature]) -> Iterator[str]:
    images = [feature.name for feature in features if feature.is_encoded]
    if images:
        names = ", ".join(map(repr, images))
        yield f"the images in {names} are kept as they are: they were not decoded, rotated or converted"
    for name, seen in sorted(found.features.items()):
        if seen.num_images and seen.is_scalar and name not in images:
            number = f"{seen.num_images:,} of {seen.num_records:,}"
            yield f"{name!r} is an image in {number} records, not in {seen.no_image_at}; it is kept as bytes"
