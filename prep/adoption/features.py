"""Infer the features of a schema from the values that all records have in common."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import cast

import numpy as np

from tfshards.prep.imaging import formats, jpeg
from tfshards.prep.records.frames import Frame
from tfshards.schemas import Feature, InputError, Schema, pixel_files
from tfshards.schemas.example import Decoded, ParsedExample
from tfshards.schemas.index import IntArray
from tfshards.schemas.keys import hash_array, hash_key
from tfshards.schemas.storage import AnyPath

DEFAULT_LABEL = "label"
_KINDS = {"bytes": ("bytes", "bytes"), "int64": ("int", "int64"), "float": ("float", "float32")}
_IN_WORDS = {"bytes": "byte strings", "int64": "integers", "float": "floats"}
# What a message about records that do not fit ends with; docs/maintain.md shows the examples.
_ELSE = "prep.build(prep.Examples(examples), DATASET) builds a dataset of what another library reads"


@lru_cache(maxsize=1 << 12)
def _plain(name: str, wire: str, count: int | None) -> Feature:
    """Return a feature of so many elements, or of any number."""
    return Feature(name, *_KINDS[wire], () if count == 1 else (count,))


@lru_cache(maxsize=1 << 12)
def _picture(
    name: str, height: int | None, width: int | None, channels: int, dtype: str = "uint8"
) -> Feature:
    return Feature(name, "image", dtype, (height, width, channels))


def _held(name: str, wire: str, elements: Decoded) -> Feature | None:
    """Return the feature as which one record holds its elements; None if it has no list.

    Raises:
        ValueError: no feature holds them, or has this name.
    """
    images = [_image(name, cast("bytes", data)) for data in elements] if wire == "bytes" else []
    if len(images) > 1 and all(images):
        raise ValueError("is a list of images, but an image is a feature of its own, in every record")
    if len(images) == 1 and images[0]:
        return images[0]
    return _plain(name, wire, len(elements)) if wire else None


@lru_cache(maxsize=1 << 12)
def _joined(one: Feature | None, other: Feature | None) -> Feature | None:
    """Return the feature as which some records and others hold their elements; None if none has a list.

    Raises:
        ValueError: they have lists of two types.
    """
    if one == other:
        return one
    if not (one and other):
        # TensorFlow requires a list of any length if a record has no list, not even an empty one
        known = one or other
        return known and _plain(known.name, known.wire, None)
    if one.wire != other.wire:
        raise ValueError(f"holds {_IN_WORDS[other.wire]}, but {_IN_WORDS[one.wire]} in other records")
    if one.is_image and other.is_image:
        height, width = (a if a == b else None for a, b in zip(one.shape[:2], other.shape[:2], strict=True))
        # gray is delivered as color
        channels = max(each.shape[2] or 0 for each in (one, other))
        dtypes = {one.dtype, other.dtype}
        return _picture(one.name, height, width, channels, "uint16" if "uint16" in dtypes else "uint8")
    are_single = all(each.is_single for each in (one, other))
    return _plain(one.name, one.wire, 1 if are_single else None)


@dataclass
class Features:
    """What the records of one file hold.

    Attributes:
        path: the file.
        label: the feature that may be the label.
        kinds: the features as which all records hold their elements, by name; None where they have no list.
        labels: the first element of each record, for integers that may be the label.
        keys: the byte strings that are named ``key``.
    """

    path: str
    label: str
    kinds: dict[str, Feature | None] = field(default_factory=dict)
    labels: array[int] = field(default_factory=lambda: array("q"))
    keys: list[bytes] = field(default_factory=list)

    def look(self, frame: Frame) -> None:
        """Add a record; raise ValueError if it is not an example, or contradicts the records before it."""
        example = ParsedExample(frame.data or b"")
        names = {*example.names}
        if example.is_sequence or not names:
            what = "is a tf.train.SequenceExample" if example.is_sequence else "has no features"
            raise ValueError(f"{what}, but only tf.train.Example with features can be adopted: {_ELSE}")
        if self.kinds and names != self.kinds.keys():
            name = min(names ^ self.kinds.keys())
            how = "has" if name in names else "lacks"
            raise ValueError(f"{how} the feature {name!r}, unlike the records before it; {_ELSE}")
        for name in names:
            wire, elements = example.typed(name)
            try:
                held = _held(name, wire, elements)
                self.kinds[name] = _joined(self.kinds.get(name, held), held)
            except ValueError as error:
                raise ValueError(f"the feature {name!r} {error}; {_ELSE}") from None
            if name == self.label and wire == "int64" and elements:
                self.labels.append(elements[0])
            elif name == "key" and wire == "bytes":
                self.keys += elements


def infer(
    folder: AnyPath, files: Sequence[Features], label: str | None, class_names: Sequence[str] | None
) -> Schema:
    """Return the schema of the records of all files, each of which must have all features.

    Integers are of kind ``int`` or ``label``, floats of kind ``float``, byte strings of kind ``bytes``, or
    ``image`` if all of them are images. A feature with one element in every record is a scalar, with n
    elements in every record a vector, and with differing numbers a list of any length.

    Raises:
        InputError: files contradict each other or the arguments.
    """
    files = [each for each in files if each.kinds]
    names, features = sorted({name for each in files for name in each.kinds}), list[Feature]()
    if label not in (None, *names):
        known = ", ".join(map(repr, names))
        raise InputError(f"{folder}: label={label!r} is not in any record; the features are {known}")
    for name in names:
        try:
            feature = _feature(name, files)
            if name == (label or DEFAULT_LABEL) and feature.kind == "int" and (label or feature.shape == ()):
                feature = replace(feature, kind="label")
                if feature.shape == () and class_names is not None:
                    _check_labels(np.concatenate([each.labels for each in files]), len(class_names))
            elif name == label:
                raise ValueError("was given as label=, but holds no integers")
            if name == "key" and feature.is_text and feature.shape == ():
                _check_keys([key for each in files for key in each.keys])
        except ValueError as error:
            raise InputError(f"{folder} cannot be adopted: the feature {name!r} {error}; {_ELSE}") from None
        features.append(feature)
    if class_names is not None and not any(feature.is_label for feature in features):
        raise InputError(f"{folder}: class_names= are given, but no feature is a label; name it with label=")
    return Schema(tuple(features), tuple(class_names or ()))


def _feature(name: str, files: Sequence[Features]) -> Feature:
    have, lack = ([each for each in files if (name in each.kinds) == has] for has in (True, False))
    if lack:
        raise ValueError(f"is in {have[0].path}, but not in {lack[0].path}")
    feature = reduce(_joined, (each.kinds[name] for each in files))
    if feature is None:
        raise ValueError("has no list in any record")
    return feature


def _check_labels(labels: IntArray, number: int) -> None:
    # -1 means no class; in lists, only verify can find a contradiction
    for value in (int(labels.min(initial=0)), int(labels.max(initial=-1))):
        if not -1 <= value < number:
            raise ValueError(f"has the value {value}, but there are {number} class names, 0 to {number - 1}")


def _check_keys(keys: Sequence[bytes]) -> None:
    unique = len(np.unique(hash_array(map(hash_key, keys))))
    if unique < len(keys):
        raise ValueError(f"has only {unique:,} different values in {len(keys):,} records, but must be unique")
    if key := next((key for key in keys if b"\0" in key), None):
        raise ValueError(f"has the value {key[:40]!r}, but a key cannot contain NUL")


def _image(name: str, data: bytes) -> Feature | None:
    """Return the feature of an encoded image, or None if the loader would not decode it as one.

    Gray JPEG, PNG and pixel files are decoded to 1 channel, all others to 3; the sides are None where the
    header does not state them.
    """
    found = formats.format_of(data[: formats.HEAD_BYTES])
    if found is None or not found.is_decoded_by_loader:
        sides = pixel_files.sides_of(data)
        return sides and _picture(name, sides.height, sides.width, sides.channels)
    if found.name == "PNG" and data[12:16] == b"IHDR" and len(data) >= 26:
        width, height, depth, color = struct.unpack_from(">IIBB", data, 16)
        if color and depth == 16:
            raise ValueError("is a PNG in color with 16 bits; 'tfshards build arrays' stores such pixels")
        return _picture(name, height, width, 3 if color else 1, "uint16" if depth == 16 else "uint8")
    frame = jpeg.structure(data).frame if found.name == "JPEG" else None
    if frame is None or len(data) < frame + 8:
        return _picture(name, None, None, 3)
    height, width, num_components = struct.unpack_from(">HHB", data, frame + 3)
    return _picture(name, height, width, 1 if num_components == 1 else 3)
