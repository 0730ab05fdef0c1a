"""Infer the features of a schema from the values that all records have in common."""

from __future__ import annotations

import re
import struct
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, cast

import numpy as np

from tfshards.prep.imaging import formats, jpeg
from tfshards.prep.progress.lines import report_warning
from tfshards.prep.sources.classes import MAX_CLASSES
from tfshards.schemas import Feature, Problem, pixel_files
from tfshards.schemas.example import Decoded, ParsedExample, fields, single_lists, single_values
from tfshards.schemas.index import IntArray
from tfshards.schemas.keys import hash_array, hash_key

_LABEL_NAMES = re.compile(r"(?:.*/)?(?:label|class)")
_WIRES: Mapping[type, str] = {bytes: "bytes", int: "int64", float: "float"}
_IN_WORDS = {"bytes": "byte strings", "int64": "integers", "float": "floats"}
# Bits of what an element is: an image, in color, of 16 bits.
_IMAGE, _COLOR, _DEEP = 1, 2, 4
# What a message about records that do not fit ends with; docs/how-to.md shows the examples.
ELSE = "prep.build(prep.Examples(examples), DATASET) builds a dataset of what another library reads"


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
    """What the records of one or more files hold of a feature: how many of each kind, and sides of images.

    ``labels`` has the first element of each record if they are integers that may be classes.
    """

    kinds: Counter[Kind] = field(default_factory=Counter)
    heights: set[int | None] = field(default_factory=set)
    widths: set[int | None] = field(default_factory=set)
    labels: array[int] = field(default_factory=lambda: array("q"))


@dataclass
class Records:
    """What the records of one file hold: their features by name, and what is under ``key``."""

    num_records: int = 0
    features: dict[str, Seen] = field(default_factory=dict)
    keys: list[bytes] = field(default_factory=list)

    def look(self, data: bytes, label: str | None) -> None:
        """Add a record; raise ValueError if it is not an example."""
        for name, (wire, elements) in values_of(data).items():
            seen = self.features.get(name)
            if seen is None:
                seen = self.features[name] = Seen()
            seen.kinds[kind_of(wire, elements, seen)] += 1
            if wire == "int64" and elements and (name == label if label else _LABEL_NAMES.fullmatch(name)):
                seen.labels.append(cast("int", elements[0]))
            elif name == "key" and wire == "bytes":
                self.keys += cast("list[bytes]", elements)
        self.num_records += 1


def labels_of(files: Sequence[Records], name: str) -> IntArray:
    """Return the values of a label; an empty file has no features."""
    found = [np.array(one.features[name].labels, np.int64) for one in files if name in one.features]
    return np.concatenate(found) if found else np.empty(0, np.int64)


# Returns the first record that holds what the function wants of a feature, which is None if it is missing.
Find = Callable[[str, Callable[[Kind | None], bool]], str]


def values_of(data: bytes) -> dict[str, tuple[str, Decoded]]:
    """Return the type of list, empty without one, and the elements of each feature; or raise ValueError."""
    if spans := single_lists(data):
        return {name: (span[0], single_values(data, *span)) for name, span in spans.items()}
    parsed = ParsedExample(data)
    values, empty = parsed.values(), parsed.empty_wires()
    others = [tag >> 3 for tag, *_ in fields(data, 0, len(data)) if tag >> 3 != 1]
    if others or not values:
        what = f"has a field {others[0]}" if others else "has no features"
        what = "is a tf.train.SequenceExample" if others[:1] == [2] else what
        raise ValueError(f"{what}, but only tf.train.Example with features can be adopted: {ELSE}")
    return {name: (_WIRES[type(each[0])] if each else empty[name], each) for name, each in values.items()}


def kind_of(wire: str, elements: Decoded, seen: Seen | None = None) -> Kind:
    """Return what a record holds of a feature; note the sides of images."""
    if wire != "bytes":
        return Kind(wire, len(elements))
    image = 0
    for data in cast("list[bytes]", elements):
        found = _image(data)
        if found is None:
            return Kind(wire, len(elements))
        height, width, bits = found
        image |= bits
        if seen:
            seen.heights.add(height)
            seen.widths.add(width)
    return Kind(wire, len(elements), image)


def infer(
    files: Sequence[Records], label: str | None, find: Find
) -> tuple[tuple[Feature, ...], list[Problem]]:
    """Return the features of the records, each of which must have all of them, and what contradicts that.

    Integers are of kind ``int`` or ``label``, floats of kind ``float``, byte strings of kind ``bytes``, or
    ``image`` if all of them are images. A feature with one element in every record is a scalar, with n
    elements in every record a vector, and with differing numbers a list of any length.
    """
    together: dict[str, Seen] = {}
    for one in files:
        for name, seen in one.features.items():
            joined = together.setdefault(name, Seen())
            joined.kinds.update(seen.kinds)
            joined.heights |= seen.heights
            joined.widths |= seen.widths
    features, problems = [], []
    if label is not None and label not in together:
        known = ", ".join(map(repr, sorted(together)))
        problems.append(Problem(f"feature {label!r}", f"is not in any record; the features are {known}"))
    given, label = label, label or _usual_label(files, together)
    num_records = sum(one.num_records for one in files)
    for name, seen in sorted(together.items()):
        try:
            if seen.kinds.total() < num_records:
                part = f"{seen.kinds.total():,} of {num_records:,} records"
                raise ValueError(f"is only in {part}, and not in {find(name, lambda kind: kind is None)}")
            features.append(_feature(name, seen, name == label, find))
            if name == given and features[-1].kind != "label":
                at = find(name, lambda kind: kind is not None and kind.number > 0)
                raise ValueError(f"was given as label=, but {at} holds no integers")
            if name == "key" and features[-1].kind == "bytes" and features[-1].shape == ():
                _check_keys([key for one in files for key in one.keys])
        except ValueError as error:
            problems.append(Problem(f"feature {name!r}", str(error)))
    return tuple(features), problems


def _feature(name: str, seen: Seen, is_label: bool, find: Find) -> Feature:
    wires = sorted({kind.wire for kind in seen.kinds} - {""})
    if len(wires) != 1:
        places = [f"{_IN_WORDS[each]} in {find(name, partial(_has_wire, each))}" for each in wires]
        raise ValueError(f"holds {' but '.join(places)}" if places else "has no list in any record")
    (wire,) = wires
    numbers, bits = {kind.number for kind in seen.kinds}, {kind.image for kind in seen.kinds if kind.number}
    # TensorFlow requires a list of any length if a record has no list, not even an empty one
    is_even = len(numbers) == 1 and all(kind.wire for kind in seen.kinds)
    shape = () if numbers == {1} else (*numbers,) if is_even else (None,)
    if bits and all(bits):
        if shape != ():
            raise ValueError("is a list of images, but an image is a feature of its own, in every record")
        if any(each & _COLOR and each & _DEEP for each in bits):
            at = find(name, lambda kind: kind is not None and kind.image == _IMAGE | _COLOR | _DEEP)
            raise ValueError(
                f"is a PNG in color with 16 bits in {at}; 'tfshards build arrays' stores such pixels"
            )
        height, width = ((*sides,)[0] if len(sides) == 1 else None for sides in (seen.heights, seen.widths))
        channels = 3 if any(each & _COLOR for each in bits) else 1
        dtype = "uint16" if any(each & _DEEP for each in bits) else "uint8"
        return Feature(name, "image", dtype, (height, width, channels))
    if wire == "bytes":
        if some := sum(count for kind, count in seen.kinds.items() if kind.image):
            report_warning(
                f"{name!r} is an image only in {some:,} of {seen.kinds.total():,} records: it is bytes"
            )
        return Feature(name, "bytes", "bytes", shape)
    if wire == "float":
        return Feature(name, "float", "float32", shape)
    return Feature(name, "label" if is_label else "int", "int64", shape)


def _has_wire(wire: str, kind: Kind | None) -> bool:
    return kind is not None and kind.wire == wire


def _usual_label(files: Sequence[Records], together: Mapping[str, Seen]) -> str | None:
    """Return the feature that looks like a label by its name and values; of several, the shortest name."""
    names = []
    for name, seen in together.items():
        if _LABEL_NAMES.fullmatch(name) and {*seen.kinds} == {Kind("int64", 1)}:
            labels = np.unique(labels_of(files, name))
            if labels[0] >= 0 and len(labels) <= MAX_CLASSES:
                names.append(name)
    return min(names, key=lambda name: (name != "label", len(name), name), default=None)


def _check_keys(keys: Sequence[bytes]) -> None:
    unique = len(np.unique(hash_array(map(hash_key, keys))))
    if unique < len(keys):
        raise ValueError(f"has only {unique:,} different values in {len(keys):,} records, but must be unique")
    if key := next((key for key in keys if b"\0" in key), None):
        raise ValueError(f"has the value {key[:40]!r}, but a key cannot contain NUL")


def _image(data: bytes) -> tuple[int | None, int | None, int] | None:
    """Return height, width and bits of an encoded image; a side is None where the header does not state it.

    Gray JPEG, PNG and pixel files are decoded to 1 channel, all others to 3.

    Returns:
        None if ``data`` does not begin like a format that the loader decodes.
    """
    found = formats.format_of(data[: formats.HEAD_BYTES])
    if found is None or not found.is_decoded_by_loader:
        sides = pixel_files.sides_of(data)
        return sides and (sides.height, sides.width, _IMAGE | _COLOR * (sides.channels == 3))
    if found.name == "PNG" and data[12:16] == b"IHDR" and len(data) >= 26:
        width, height, depth, color = struct.unpack_from(">IIBB", data, 16)
        return height, width, _IMAGE | _COLOR * (color != 0) | _DEEP * (depth == 16)
    frame = jpeg.structure(data).frame if found.name == "JPEG" else None
    if frame is None or len(data) < frame + 8:
        return None, None, _IMAGE | _COLOR
    height, width, num_components = struct.unpack_from(">HHB", data, frame + 3)
    return height, width, _IMAGE | _COLOR * (num_components != 1)
