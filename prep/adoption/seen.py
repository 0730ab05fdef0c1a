"""Collect the properties of features record by record, join them, and apply roles that a user gives."""

from __future__ import annotations

import re
import struct
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from tfshards.prep.imaging import formats, jpeg, png
from tfshards.schemas import OptionsError, Problem, pixel_files
from tfshards.schemas.example import Decoded, ParsedExample, fields
from tfshards.schemas.option import check_strings, option

# Height, width and channels; None where the header does not state it.
_Shape: TypeAlias = "tuple[int | None, int | None, int]"
_GRAY_PNG = 0
_LABEL_NAMES = re.compile(r"(?:.*/)?(?:label|class)")


@dataclass(frozen=True)
class FeatureRoles:
    """The roles of features that their values alone do not show.

    Attributes:
        label: the feature whose integers are classes; by default the one named ``label`` or ``class``.
        images: features whose byte strings must all be images.
        drop: features that are left out of the schema.

    Raises:
        OptionsError: a feature is named twice.
    """

    label: str | None = option(
        None,
        "feature whose integers are classes",
        metavar="FEATURE",
        default_text="label or class, if one of them exists",
    )
    images: tuple[str, ...] = option(
        (),
        "feature whose byte strings must all be images",
        flag="image",
        metavar="FEATURE",
        is_repeatable=True,
        default_text="recognized by value",
    )
    drop: tuple[str, ...] = option(
        (), "feature that is left out of the schema", metavar="FEATURE", is_repeatable=True
    )

    def __post_init__(self) -> None:
        check_strings("images", self.images)
        check_strings("drop", self.drop)
        for name, times in Counter(self.names).items():
            if times > 1:
                raise OptionsError("feature-roles-repeated", name=name, times=times)

    @property
    def names(self) -> list[str]:
        """The names of all features with a role."""
        return [*([self.label] if self.label else []), *self.images, *self.drop]

    def may_be_label(self, name: str) -> bool:
        """Return whether the values of a feature may be classes, if they are integers."""
        return name == self.label if self.label else _LABEL_NAMES.fullmatch(name) is not None


KEY = "key"
# The field of a tf.train.SequenceExample that tf.train.Example does not have.
_FEATURE_LISTS = 2

# how many problems of one shard are kept; all are counted
_MAX_PROBLEMS_PER_SHARD = 20
_NONE = 1 << 64
_WIRES: Mapping[type, str] = {bytes: "bytes", int: "int64", float: "float"}
_IN_WORDS = {"bytes": "byte strings", "int64": "integers", "float": "floats"}


@dataclass
class Seen:
    """The values of one feature in all records that were read.

    Attributes:
        wire, wire_at: the type of list that holds them, empty without one, and the first record with it.
        num_records, num_listless: how many records have the feature, and how many of those have no list.
        fewest, most: the least and greatest number of elements.
        least_int, greatest_int: the smallest and the largest integer.
        missing_at: the first record without the feature.
        num_images, no_image_at: in how many records all elements begin like an image, and the first record
            in which one does not.
        image_shape, has_deep_images: the common shape of all images, and whether one has 16 bits.
        deep_color_at: the first record with a PNG in color with 16 bits.
        labels: the first element of each record, if they are integers that may be classes.
        clash: how two shards contradict each other.
    """

    wire: str = ""
    wire_at: str = ""
    num_records: int = 0
    num_listless: int = 0
    fewest: int = _NONE
    most: int = 0
    least_int: int = _NONE
    greatest_int: int = -_NONE
    missing_at: str = ""
    num_images: int = 0
    no_image_at: str = ""
    image_shape: _Shape | None = None
    has_deep_images: bool = False
    deep_color_at: str = ""
    labels: array[int] | None = None
    clash: str = ""

    @property
    def is_scalar(self) -> bool:
        """Whether every record has exactly one element."""
        return self.fewest == self.most == 1

    def add(self, elements: Decoded, wire: str, at: str) -> str | None:
        """Add the elements of the record ``at``; return how they contradict earlier ones, or None."""
        number = len(elements)
        self.num_records += 1
        self.fewest = min(self.fewest, number)
        self.most = max(self.most, number)
        if not wire:
            self.num_listless += 1
            return None
        if wire != self.wire:
            if self.wire:
                return ("" if number else "is empty and ") + self.conflict(wire)
            self.wire, self.wire_at = wire, at
        if not number:
            return None
        first = elements[0]
        if isinstance(first, int):
            integers = cast("list[int]", elements)
            self.least_int = min(self.least_int, *integers)
            self.greatest_int = max(self.greatest_int, *integers)
        if isinstance(first, bytes):
            self._add_bytes(cast("list[bytes]", elements), at)
        elif self.labels is not None and isinstance(first, int):
            self.labels.append(first)
        return None

    def conflict(self, wire: str) -> str:
        """Return a message that the elements have a different type than earlier ones."""
        return f"holds {_IN_WORDS[wire]}, but {_IN_WORDS[self.wire]} in {self.wire_at}"

    def join(self, other: Seen) -> None:
        """Add the findings of a later shard."""
        if not self.wire:
            self.wire, self.wire_at = other.wire, other.wire_at
        elif other.wire and other.wire != self.wire and not self.clash:
            self.clash = f"{self.conflict(other.wire)} (found in {other.wire_at})"
        self.num_records += other.num_records
        self.num_listless += other.num_listless
        self.fewest, self.most = min(self.fewest, other.fewest), max(self.most, other.most)
        self.least_int = min(self.least_int, other.least_int)
        self.greatest_int = max(self.greatest_int, other.greatest_int)
        self.missing_at = self.missing_at or other.missing_at
        self.num_images += other.num_images
        self.no_image_at = self.no_image_at or other.no_image_at
        self.has_deep_images = self.has_deep_images or other.has_deep_images
        self.deep_color_at = self.deep_color_at or other.deep_color_at
        shapes = [shape for shape in (self.image_shape, other.image_shape) if shape]
        self.image_shape = _common_shape(*shapes) if len(shapes) == 2 else next(iter(shapes), None)
        if self.labels is not None:
            self.labels.extend(other.labels or ())

    def _add_bytes(self, elements: list[bytes], at: str) -> None:
        for data in elements:
            shape = _image_shape(data)
            if shape is None:
                self.no_image_at = self.no_image_at or at
                return
            if _has_deep_header(data):
                self.has_deep_images = True
                self.deep_color_at = self.deep_color_at or (at if shape[2] > 1 else "")
            if shape != self.image_shape:
                self.image_shape = _common_shape(self.image_shape, shape) if self.image_shape else shape
        self.num_images += 1


@dataclass
class Findings:
    """What the records of one or more shards hold: their features by name, and their first problems.

    ``keys`` has the elements of the feature ``key`` if they are bytes, and ``dropped`` the features in
    ``roles.drop`` that occur.
    """

    roles: FeatureRoles
    num_records: int = 0
    first_at: str = ""
    features: dict[str, Seen] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    num_problems: int = 0
    keys: list[bytes] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)

    def note(self, path: str, message: str) -> None:
        """Add a problem of the shard ``path``."""
        self.num_problems += 1
        if self.num_problems <= _MAX_PROBLEMS_PER_SHARD:
            self.problems.append(Problem(path, message))

    def all_problems(self) -> list[Problem]:
        """Return the problems, with a final one that counts those that were not kept."""
        left = self.num_problems - len(self.problems)
        return [
            *self.problems,
            *([Problem(self.problems[-1].place, f"and {left:,} more problems")] if left else []),
        ]

    def look(self, path: str, number: int, offset: int, data: bytes) -> None:
        """Add the record ``number`` of the shard ``path``, at the byte ``offset``."""
        where = f"record {number} at byte {offset}"
        try:
            parsed = ParsedExample(data)
            values = parsed.values()
        except ValueError as error:
            self.note(path, f"{where}: {error}")
            return
        others = [tag >> 3 for tag, *_ in fields(data, 0, len(data)) if tag >> 3 != 1]
        if others or not values:
            what = f"has a field {others[0]}" if others else "has no features"
            if others[:1] == [_FEATURE_LISTS]:
                what = "is a tf.train.SequenceExample"
            message = f"{where}: {what}; only tf.train.Example with features can be adopted"
            self.note(path, f"{message}: build a dataset of others with prep.Examples")
            return
        for name in self.roles.drop:
            if values.pop(name, None) is not None:
                self.dropped.add(name)
        wires = parsed.empty_wires() if not all(values.values()) else {}
        if fault := self._add(values, wires, f"{path}, {where}"):
            self.note(path, f"{where}: {fault}")

    def join(self, other: Findings) -> None:
        """Add the findings of a later shard."""
        for name in self.features.keys() - other.features.keys():
            self._missing(name, other.first_at)
        for name, seen in other.features.items():
            self._seen(name).join(seen)
        self.num_records += other.num_records
        self.first_at = self.first_at or other.first_at
        self.problems += other.problems
        self.num_problems += other.num_problems
        self.keys += other.keys
        self.dropped |= other.dropped

    def _add(self, values: Mapping[str, Decoded], empty: Mapping[str, str], at: str) -> str | None:
        fault = None
        for name, elements in values.items():
            wire = _WIRES[type(elements[0])] if elements else empty[name]
            if clash := self._seen(name).add(elements, wire, at):
                fault = f"the feature {name!r} {clash}; leave it out with drop={(name,)!r}"
            if name == KEY:
                self.keys += [key for key in elements if isinstance(key, bytes)]
        if len(values) < len(self.features):
            for name in self.features.keys() - values.keys():
                self._missing(name, at)
        self.num_records += 1
        self.first_at = self.first_at or at
        return fault

    def _seen(self, name: str) -> Seen:
        if name not in self.features:
            labels = array("q") if self.roles.may_be_label(name) else None
            self.features[name] = Seen(missing_at=self.first_at, labels=labels)
        return self.features[name]

    def _missing(self, name: str, at: str) -> None:
        self.features[name].missing_at = self.features[name].missing_at or at


def _image_shape(data: bytes) -> _Shape | None:
    """Return the shape of the pixels of an encoded image, as the loader decodes it.

    Gray JPEG, PNG and pixel files have 1 channel, all others 3.

    Returns:
        None if ``data`` does not begin like a format that the loader decodes.
    """
    found = formats.format_of(data[: formats.HEAD_BYTES])
    if found is None or not found.is_decoded_by_loader:
        return pixel_files.sides_of(data)
    if found.name == "PNG" and data[12:16] == b"IHDR" and len(data) >= 26:
        width, height = struct.unpack_from(">II", data, 16)
        return height, width, 1 if data[25] == _GRAY_PNG else 3
    frame = jpeg.structure(data).frame if found.name == "JPEG" else None
    if frame is None or len(data) < frame + 8:
        return None, None, 3
    height, width, num_components = struct.unpack_from(">HHB", data, frame + 3)
    return height, width, 1 if num_components == 1 else 3


def _has_deep_header(data: bytes) -> bool:
    """Return whether an encoded image is a PNG with 16 bits per sample."""
    return data.startswith(png.SIGNATURE) and data[12:16] == b"IHDR" and data[24:25] == b"\x10"


def _common_shape(one: _Shape, other: _Shape) -> _Shape:
    """Return the shape that describes images of both shapes; gray and color together are color."""
    height = one[0] if one[0] == other[0] else None
    width = one[1] if one[1] == other[1] else None
    return height, width, max(one[2], other[2])
