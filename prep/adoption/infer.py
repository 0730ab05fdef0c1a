"""Infer the features of a schema from the values that all records have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tfshards.prep.adoption.seen import KEY, FeatureRoles, Findings, Seen
from tfshards.prep.adoption.tfds import Declared, refined
from tfshards.prep.sources.classes import MAX_CLASSES
from tfshards.prep.sources.keys import hash_array
from tfshards.prep.views.tfds import FEATURES_NAME
from tfshards.schemas import Feature, Problem
from tfshards.schemas.coordinates import Coordinates
from tfshards.schemas.declared import coordinates_fault
from tfshards.schemas.schema import feature_faults
from tfshards.schemas.summary import span


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


def infer(found: Findings, declared: Mapping[str, Declared]) -> Inferred:
    """Return the features of the records; those that some records lack are lists of any length.

    Integers are of kind ``int`` or ``label``, floats of kind ``float``, byte strings of kind ``bytes``, or
    ``image`` if all of them are images. A feature with one element in every record is a scalar, with n
    elements in every record a vector, and with differing numbers a list of any length. What TFDS declares
    refines this, unless the roles name the feature.
    """
    warnings = []
    known = ", ".join(map(repr, sorted(found.features))) or "none"
    problems = [
        Problem(f"feature {name!r}", f"is not in any record; the features are {known}")
        for name in found.roles.names
        if name not in found.features and name not in found.dropped
    ]
    label = found.roles.label or _usual_label(found)
    features = []
    for name, seen in sorted(found.features.items()):
        storage = (
            "steps" if seen.num_in_steps else "optional" if seen.num_records < found.num_records else None
        )
        if storage:
            missing = found.num_records - seen.num_records
            seen = replace(seen, fewest=0, num_listless=seen.num_listless + missing)
        if storage and seen.num_records < found.num_records:
            part = f"{seen.num_records:,} of {found.num_records:,} records"
            warnings.append(
                f"{name!r} is only in {part}, and not in {seen.missing_at}: there it is an empty list"
            )
        if fault := _fault(name, seen, found, storage):
            problems.append(Problem(f"feature {name!r}", fault))
            continue
        try:
            feature = _feature(name, seen, found.roles, label, storage)
        except ValueError as error:
            problems.append(Problem(f"feature {name!r}", f"{error}; leave it out with drop=, or rename it"))
            continue
        stated = None if name in {*found.roles.images, *found.roles.raw} else declared.get(name)
        if stated:
            feature, fits = refined(feature, stated, seen)
            if not fits:
                declaration = f"{FEATURES_NAME} declares {name!r} as {stated.dtype}{list(stated.shape)}"
                warnings.append(f"{declaration}, but its records differ; it is adopted as they show")
        if name in found.roles.coordinates:
            feature, fault = with_coordinates(feature, found.roles.coordinates[name], seen)
            problems += [Problem(f"feature {name!r}", fault)] if fault else []
        features.append(feature)
    if not features and not problems:
        problems.append(Problem("schema", "no feature is left; leave fewer out with drop="))
    warnings += _warnings(found, features)
    return Inferred(tuple(features), tuple(problems), tuple(warnings))


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
        if seen.labels
        and seen.is_scalar
        and seen.num_records == found.num_records
        and not seen.num_in_steps
        and seen.least_int >= 0
        and len({*seen.labels}) <= MAX_CLASSES
    ]
    return min(names, key=lambda name: (name != "label", len(name), name), default=None)


def _fault(name: str, seen: Seen, found: Findings, storage: str | None) -> str | None:
    leave_out = f"leave it out with drop={(name,)!r}"
    if seen.clash:
        return f"{seen.clash}; {leave_out}"
    if storage and name in (KEY, found.roles.label):
        what = f"is not in {seen.missing_at}" if storage == "optional" else "is in feature lists"
        return f"{what}; every record must have one value: {leave_out}"
    if seen.num_in_steps not in (0, seen.num_records):
        part = f"{seen.num_in_steps:,} of {seen.num_records:,} records"
        return f"is in the feature lists of only {part}; {leave_out}"
    if storage == "steps" and seen.narrowest < seen.widest:
        return (
            f"has steps of {span([seen.narrowest, seen.widest])} values, which no feature holds; {leave_out}"
        )
    if not seen.wire:
        return f"has no list in any record, so its type is unknown; {leave_out}"
    if name == KEY and seen.wire == "bytes":
        unique = len(np.unique(hash_array(found.keys)))
        if unique < len(found.keys):
            return (
                f"has only {unique:,} different values in {len(found.keys):,} records; a feature of this "
                f"name must be unique: {leave_out}"
            )
    if (
        seen.image_shape
        and not seen.no_image_at
        and name not in found.roles.raw
        and (storage or not seen.is_scalar)
    ):
        numbers = "is an image that some records lack" if storage == "optional" else "is a list of images"
        return f"{numbers}; write one feature per view, in every record, or {leave_out}"
    return _role_fault(name, seen, found.roles)


def _role_fault(name: str, seen: Seen, roles: FeatureRoles) -> str | None:
    if name == roles.label and seen.wire != "int64":
        return f"was given as label=, but {seen.wire_at} holds no integers"
    if name not in roles.images and name not in roles.raw:
        return None
    option = "images=" if name in roles.images else "raw="
    if seen.wire != "bytes":
        return f"was given in {option}, but {seen.wire_at} holds no byte strings"
    if name in roles.images:
        at = seen.no_image_at or ("" if seen.image_shape else "every record")
        return f"was given in images=, but {at} holds no JPEG, PNG, GIF or WebP" if at else None
    if not seen.is_scalar:
        return f"was given in raw=, but has {span([seen.fewest, seen.most])} values per record instead of 1"
    expected = Feature(name, "raw", *roles.raw[name]).num_bytes
    if (seen.least_bytes, seen.most_bytes) == (expected, expected):
        return None
    dtype, shape = roles.raw[name]
    return (
        f"has {span([seen.least_bytes, seen.most_bytes])} bytes per record, "
        f"but {dtype}{list(shape)} requires {expected}"
    )


def _feature(name: str, seen: Seen, roles: FeatureRoles, label: str | None, storage: str | None) -> Feature:
    if name in roles.raw:
        return Feature(name, "raw", *roles.raw[name])
    # TensorFlow requires a list of any length if a record has no list, not even an empty one
    is_even = seen.fewest == seen.most and not seen.num_listless
    shape: tuple[int | None, ...] = () if seen.is_scalar else (seen.most,) if is_even else (None,)
    if storage == "steps" and seen.widest != 1:
        shape = (None, seen.widest)
    if seen.image_shape and not seen.no_image_at:
        dtype = "uint16" if seen.has_deep_images else "uint8"
        return Feature(name, "image", dtype, seen.image_shape)
    if seen.wire == "bytes":
        return Feature(name, "bytes", "bytes", shape, storage=storage)
    if seen.wire == "float":
        return Feature(name, "float", "float32", shape, storage=storage)
    return Feature(name, "label" if name == label else "int", "int64", shape, storage=storage)


def with_coordinates(feature: Feature, text: str, seen: Seen) -> tuple[Feature, str]:
    """Return a feature of boxes or keypoints with its coordinates, and why it cannot have them, if so."""
    coordinates = Coordinates.parse(text)
    width = 4 if coordinates.are_boxes else len(coordinates.order)
    shape = feature.shape
    if shape == (None,) and seen.divisor % width == 0:
        shape = (None, width)
    elif len(shape) == 1 and shape[0] and shape[0] % width == 0 and (width, shape) != (4, (4,)):
        shape = (shape[0] // width, width)
    fault = feature_faults(feature.name, feature.kind, feature.dtype, shape) or coordinates_fault(
        text, feature.kind, shape
    )
    if fault:
        return feature, f"is {feature.kind} of shape {list(feature.shape)}, which does not hold {text}"
    return replace(feature, shape=shape, coordinates=text), ""


def _warnings(found: Findings, features: Sequence[Feature]) -> Iterator[str]:
    images = [feature.name for feature in features if feature.is_encoded]
    if images:
        names = ", ".join(map(repr, images))
        yield f"the images in {names} are kept as they are: they were not decoded, rotated or converted"
    for name, seen in sorted(found.features.items()):
        if seen.num_images and seen.is_scalar and name not in images and name not in found.roles.raw:
            number = f"{seen.num_images:,} of {seen.num_records:,}"
            yield f"{name!r} is an image in {number} records, not in {seen.no_image_at}; it is kept as bytes"
