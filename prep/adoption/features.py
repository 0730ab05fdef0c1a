"""Infer the features of a schema from the values that all records have in common."""

from __future__ import annotations

import re
import struct
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from tfshards.prep.imaging import formats, jpeg
from tfshards.prep.progress.lines import report_warning
from tfshards.prep.records.frames import Frame
from tfshards.prep.sources.classes import MAX_CLASSES
from tfshards.schemas import Feature, InputError, Problem, Schema, pixel_files
from tfshards.schemas.example import Decoded, ParsedExample
from tfshards.schemas.index import IntArray
from tfshards.schemas.keys import hash_array, hash_key
from tfshards.schemas.storage import AnyPath

_LABEL_NAMES = re.compile(r"(?:.*/)?(?:label|class)")
_IN_WORDS = {"bytes": "byte strings", "int64": "integers", "float": "floats"}
# Bits of what elements are: images, other bytes, images in color, of 16 bits, of both.
_IMAGE, _OTHER, _COLOR, _DEEP, _DEEP_COLOR = 1, 2, 4, 8, 16
# What a message about records that do not fit ends with; docs/maintain.md shows the examples.
_ELSE = "prep.build(prep.Examples(examples), DATASET) builds a dataset of what another library reads"
# Height and width of images; None where they differ, or where the header does not state them.
_Sides: TypeAlias = "tuple[int | None, ...]"


class Kind(NamedTuple):
    """What some records hold of a feature.

    Attributes:
        wire: the type of its lists; empty if no record has one.
        number: the number of elements; None if it differs.
        bits: what the elements are.
        sides: the sides of images.
    """

    wire: str
    number: int | None
    bits: int = 0
    sides: _Sides = ()

    @classmethod
    def of(cls, wire: str, elements: Decoded) -> Kind:
        """Return what one record holds."""
        found = cls(wire, len(elements))
        for data in cast("list[bytes]", elements) if wire == "bytes" else ():
            bits, sides = _image(data) or (_OTHER, ())
            found = found.joined(found._replace(bits=bits, sides=sides))
        return found

    def joined(self, other: Kind) -> Kind:
        """Return what these and other records hold; raise ValueError if they have lists of two types."""
        if self.wire and other.wire and self.wire != other.wire:
            raise ValueError(f"holds {_IN_WORDS[other.wire]}, but {_IN_WORDS[self.wire]} in other records")
        # TensorFlow requires a list of any length if a record has no list, not even an empty one
        number = self.number if self[:2] == other[:2] else None
        both = zip(self.sides, other.sides, strict=True) if self.sides and other.sides else ()
        sides = tuple(one if one == its else None for one, its in both) or self.sides or other.sides
        return Kind(self.wire or other.wire, number, self.bits | other.bits, sides)


@dataclass
class Features:
    """What the records of one file hold.

    Attributes:
        path: the file.
        label: the feature that is given as the label, or None.
        kinds: what all records hold, by feature; nothing of an empty file.
        labels: the first element of each record, for integers that may be classes, by feature.
        keys: the byte strings that are named ``key``.
    """

    path: str
    label: str | None
    kinds: dict[str, Kind] = field(default_factory=dict)
    labels: defaultdict[str, array[int]] = field(default_factory=lambda: defaultdict(lambda: array("q")))
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
            kind = Kind.of(wire, elements)
            before = self.kinds.setdefault(name, kind)
            if kind != before:
                try:
                    self.kinds[name] = before.joined(kind)
                except ValueError as error:
                    raise ValueError(f"the feature {name!r} {error}; {_ELSE}") from None
            may_be_class = name == self.label if self.label else _LABEL_NAMES.fullmatch(name)
            if wire == "int64" and elements and may_be_class:
                self.labels[name].append(elements[0])
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
        InputError: files contradict each other or the arguments; it lists every contradiction.
    """
    files = [each for each in files if each.kinds]
    names = sorted({name for each in files for name in each.kinds})
    of_files = {name: [np.array(each.labels[name], np.int64) for each in files] for name in names}
    labels = {name: np.concatenate(values) for name, values in of_files.items()}
    labeled = label or _usual_label(files, labels)
    features, problems = [], []
    if label is not None and label not in names:
        known = ", ".join(map(repr, names))
        problems.append(Problem(f"feature {label!r}", f"is not in any record; the features are {known}"))
    for name in names:
        try:
            feature = _feature(name, files, name == labeled)
            features.append(feature)
            if name == label and not feature.is_label:
                raise ValueError("was given as label=, but holds no integers")
            if feature.is_label and feature.shape == () and class_names is not None:
                _check_labels(labels[name], len(class_names))
            if name == "key" and feature.is_text and feature.shape == ():
                _check_keys([key for each in files for key in each.keys])
        except ValueError as error:
            problems.append(Problem(f"feature {name!r}", str(error)))
    if class_names is not None and not any(feature.is_label for feature in features):
        problems.append(Problem("class_names=", "no feature is a label; name it with label="))
    if problems:
        lines = (f"  {problem}" for problem in problems)
        raise InputError(f"{folder} cannot be adopted:", *lines, _ELSE)
    return Schema(tuple(features), tuple(class_names or ()))


def _feature(name: str, files: Sequence[Features], is_label: bool) -> Feature:
    have, lack = ([each for each in files if (name in each.kinds) == has] for has in (True, False))
    if lack:
        raise ValueError(f"is in {have[0].path}, but not in {lack[0].path}")
    wire, number, bits, sides = reduce(Kind.joined, (each.kinds[name] for each in files))
    if not wire:
        raise ValueError("has no list in any record")
    shape = () if number == 1 else (number,)
    if bits & _IMAGE and not bits & _OTHER:
        if shape != ():
            raise ValueError("is a list of images, but an image is a feature of its own, in every record")
        if bits & _DEEP_COLOR:
            raise ValueError("is a PNG in color with 16 bits; 'tfshards build arrays' stores such pixels")
        dtype, channels = "uint16" if bits & _DEEP else "uint8", 3 if bits & _COLOR else 1
        return Feature(name, "image", dtype, (*sides, channels))
    if bits & _IMAGE:
        report_warning(f"{name!r} is an image in some records, but not in all: it is bytes")
    kind, dtype = {"bytes": ("bytes", "bytes"), "float": ("float", "float32")}.get(wire, ("int", "int64"))
    return Feature(name, "label" if is_label and wire == "int64" else kind, dtype, shape)


def _usual_label(files: Sequence[Features], labels: Mapping[str, IntArray]) -> str | None:
    """Return the feature that looks like a label by its name and values; of several, the shortest name."""
    names = []
    for name in filter(_LABEL_NAMES.fullmatch, labels):
        if all(name in each.kinds and each.kinds[name][:2] == ("int64", 1) for each in files):
            values = np.unique(labels[name])
            if values[0] >= 0 and len(values) <= MAX_CLASSES:
                names.append(name)
    return min(names, key=lambda name: (name != "label", len(name), name), default=None)


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


def _image(data: bytes) -> tuple[int, _Sides] | None:
    """Return bits and sides of an encoded image, or None if the loader would not decode it as one.

    Gray JPEG, PNG and pixel files are decoded to 1 channel, all others to 3.
    """
    found = formats.format_of(data[: formats.HEAD_BYTES])
    if found is None or not found.is_decoded_by_loader:
        sides = pixel_files.sides_of(data)
        return sides and (_IMAGE | _COLOR * (sides.channels == 3), (sides.height, sides.width))
    if found.name == "PNG" and data[12:16] == b"IHDR" and len(data) >= 26:
        width, height, depth, color = struct.unpack_from(">IIBB", data, 16)
        is_color, is_deep = color != 0, depth == 16
        bits = _IMAGE | _COLOR * is_color | _DEEP * is_deep | _DEEP_COLOR * (is_color and is_deep)
        return bits, (height, width)
    frame = jpeg.structure(data).frame if found.name == "JPEG" else None
    if frame is None or len(data) < frame + 8:
        return _IMAGE | _COLOR, (None, None)
    height, width, num_components = struct.unpack_from(">HHB", data, frame + 3)
    return _IMAGE | _COLOR * (num_components != 1), (height, width)
