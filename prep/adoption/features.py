"""Infer the features of a schema from the values that all records have in common."""

from __future__ import annotations

import re
import struct
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from tfshards.prep.imaging import formats, jpeg
from tfshards.prep.progress.lines import report_warning
from tfshards.prep.records.frames import Frame
from tfshards.prep.sources.classes import MAX_CLASSES
from tfshards.schemas import Feature, InputError, Problem, Schema, pixel_files
from tfshards.schemas.example import Decoded, ParsedExample
from tfshards.schemas.keys import hash_array, hash_key
from tfshards.schemas.storage import AnyPath

_LABEL_NAMES = re.compile(r"(?:.*/)?(?:label|class)")
_IN_WORDS = {"bytes": "byte strings", "int64": "integers", "float": "floats"}
# Bits of what an element is: an image, in color, of 16 bits.
_IMAGE, _COLOR, _DEEP = 1, 2, 4
# What a message about records that do not fit ends with; docs/maintain.md shows the examples.
_ELSE = "prep.build(prep.Examples(examples), DATASET) builds a dataset of what another library reads"
# Height and width of images; None where they differ, or where the header does not state them.
_Sides: TypeAlias = "tuple[int | None, ...]"


class Kind(NamedTuple):
    """What one record holds of a feature.

    ``wire`` is the type of its list, empty if it has none, ``number`` the number of elements, and ``image``
    has the bits of these if all of them are images.
    """

    wire: str
    number: int
    image: int = 0


@dataclass
class Seen:
    """What some records hold of a feature.

    Attributes:
        kinds: where the first record of each kind is; of kind None are those that lack the feature.
        sides: the sides of its images.
        labels: the first element of each record, if they are integers that may be classes.
        keys: its byte strings, if it is named ``key``.
    """

    kinds: dict[Kind | None, str] = field(default_factory=dict)
    sides: _Sides = ()
    labels: array[int] = field(default_factory=lambda: array("q"))
    keys: list[bytes] = field(default_factory=list)

    def kind_of(self, wire: str, elements: Decoded) -> Kind:
        """Return what a record holds of the feature, and note the sides of images."""
        bits = 0
        for data in cast("list[bytes]", elements) if wire == "bytes" else ():
            image = _image(data)
            if image is None:
                return Kind(wire, len(elements))
            bits |= image[0]
            if self.sides != image[1]:
                self.sides = _common(self.sides, image[1])
        return Kind(wire, len(elements), bits)

    def where(self, bits: int) -> str:
        """Return where a record is whose elements have these bits."""
        return next(
            where for kind, where in self.kinds.items() if kind and kind.number and kind.image == bits
        )


def _common(one: _Sides, other: _Sides) -> _Sides:
    sides = zip(one, other, strict=True) if one and other else ()
    return tuple(mine if mine == its else None for mine, its in sides) or one or other


class Features(defaultdict[str, Seen]):
    """What the records of one file hold, by feature; an empty file has no features."""

    def __init__(self, path: str) -> None:
        super().__init__(Seen)
        self.path: str = path
        self.first: str = ""

    def look(self, frame: Frame, label: str | None) -> None:
        """Add a record; raise ValueError if it is not an example."""
        example = ParsedExample(frame.data or b"")
        names = [*example.names]
        if example.is_sequence or not names:
            what = "is a tf.train.SequenceExample" if example.is_sequence else "has no features"
            raise ValueError(f"{what}, but only tf.train.Example with features can be adopted: {_ELSE}")
        where = f"record {frame.number} at byte {frame.offset} of {self.path}"
        for name in names:
            wire, elements = example.typed(name)
            if name not in self and self.first:
                self[name].kinds[None] = self.first
            seen = self[name]
            seen.kinds.setdefault(seen.kind_of(wire, elements), where)
            if wire == "int64" and elements and (name == label if label else _LABEL_NAMES.fullmatch(name)):
                seen.labels.append(cast("int", elements[0]))
            elif name == "key" and wire == "bytes":
                seen.keys += cast("list[bytes]", elements)
        for name in self.keys() - {*names} if len(self) > len(names) else ():
            self[name].kinds.setdefault(None, where)
        self.first = self.first or where


def infer(
    folder: AnyPath, files: Sequence[Features], label: str | None, class_names: Sequence[str] | None
) -> Schema:
    """Return the schema of the records of all files, each of which must have all features.

    Integers are of kind ``int`` or ``label``, floats of kind ``float``, byte strings of kind ``bytes``, or
    ``image`` if all of them are images. A feature with one element in every record is a scalar, with n
    elements in every record a vector, and with differing numbers a list of any length.

    Raises:
        InputError: records contradict each other or the arguments; it lists every contradiction.
    """
    together = _joined(files)
    labeled = label or _usual_label(together)
    features, problems = [], []
    if label is not None and label not in together:
        known = ", ".join(map(repr, together))
        problems.append(Problem(f"feature {label!r}", f"is not in any record; the features are {known}"))
    for name, seen in together.items():
        try:
            feature = _feature(name, seen, name == labeled)
            features.append(feature)
            if name == label and not feature.is_label:
                where = next(iter(seen.kinds.values()))
                raise ValueError(f"was given as label=, but {where} holds no integers")
            if feature.is_label and feature.shape == () and class_names is not None:
                _check_labels(seen.labels, len(class_names))
            if name == "key" and feature.is_text and feature.shape == ():
                _check_keys(seen.keys)
        except ValueError as error:
            problems.append(Problem(f"feature {name!r}", str(error)))
    if class_names is not None and not any(feature.is_label for feature in features):
        problems.append(Problem("class_names=", "no feature is a label; name it with label="))
    if problems:
        lines = (f"  {problem}" for problem in problems)
        raise InputError(f"{folder} cannot be adopted:", *lines, _ELSE)
    return Schema(tuple(features), tuple(class_names or ()))


def _joined(files: Sequence[Features]) -> dict[str, Seen]:
    """Return what the records of all files hold of each feature, by name."""
    together = {name: Seen() for name in sorted({name for each in files for name in each})}
    for each in files:
        for name, joined in together.items():
            seen = each.get(name) or Seen({None: each.first} if each.first else {})
            joined.kinds = seen.kinds | joined.kinds
            joined.sides = _common(joined.sides, seen.sides)
            joined.labels += seen.labels
            joined.keys += seen.keys
    return together


def _feature(name: str, seen: Seen, is_label: bool) -> Feature:
    kinds = [kind for kind in seen.kinds if kind]
    if None in seen.kinds:
        raise ValueError(f"is in {seen.kinds[kinds[0]]}, but not in {seen.kinds[None]}")
    wires = {kind.wire: seen.kinds[kind] for kind in reversed(kinds) if kind.wire}
    if len(wires) != 1:
        places = [f"{_IN_WORDS[wire]} in {where}" for wire, where in sorted(wires.items())]
        raise ValueError(f"holds {' but '.join(places)}" if places else "has no list in any record")
    (wire,) = wires
    numbers, bits = {kind.number for kind in kinds}, {kind.image for kind in kinds if kind.number}
    # TensorFlow requires a list of any length if a record has no list, not even an empty one
    is_even = len(numbers) == 1 and all(kind.wire for kind in kinds)
    shape = () if numbers == {1} else (*numbers,) if is_even else (None,)
    if bits and all(bits):
        if shape != ():
            raise ValueError("is a list of images, but an image is a feature of its own, in every record")
        if (deep_color := _IMAGE | _COLOR | _DEEP) in bits:
            hint = "'tfshards build arrays' stores such pixels"
            raise ValueError(f"is a PNG in color with 16 bits in {seen.where(deep_color)}; {hint}")
        channels = 3 if any(each & _COLOR for each in bits) else 1
        dtype = "uint16" if any(each & _DEEP for each in bits) else "uint8"
        return Feature(name, "image", dtype, (*seen.sides, channels))
    if any(bits):
        image, other = seen.where(max(bits)), seen.where(0)
        report_warning(f"{name!r} is an image in {image}, but not in {other}: it is bytes")
    kind, dtype = {"bytes": ("bytes", "bytes"), "float": ("float", "float32")}.get(wire, ("int", "int64"))
    return Feature(name, "label" if is_label and wire == "int64" else kind, dtype, shape)


def _usual_label(together: Mapping[str, Seen]) -> str | None:
    """Return the feature that looks like a label by its name and values; of several, the shortest name."""
    names = []
    for name, seen in together.items():
        if _LABEL_NAMES.fullmatch(name) and {*seen.kinds} == {Kind("int64", 1)}:
            labels = np.unique(np.array(seen.labels))
            if labels[0] >= 0 and len(labels) <= MAX_CLASSES:
                names.append(name)
    return min(names, key=lambda name: (name != "label", len(name), name), default=None)


def _check_labels(labels: Sequence[int], number: int) -> None:
    # -1 means no class; in lists, only verify can find a contradiction
    for value in (min(labels, default=-1), max(labels, default=-1)):
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
        return _IMAGE | _COLOR * (color != 0) | _DEEP * (depth == 16), (height, width)
    frame = jpeg.structure(data).frame if found.name == "JPEG" else None
    if frame is None or len(data) < frame + 8:
        return _IMAGE | _COLOR, (None, None)
    height, width, num_components = struct.unpack_from(">HHB", data, frame + 3)
    return _IMAGE | _COLOR * (num_components != 1), (height, width)
