"""The schema of a dataset: its features, how each kind is stored, and the names of its classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from tfshards.schemas.json_reader import MAX_INT, JsonRecord, WrongValueError, shown

WireType = Literal["bytes", "int64", "float"]

# Bytes per element of each numeric dtype, stored little-endian; complex64 is two float32.
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_OTHERS = ("bool", "float16", "float32", "float64", "complex64", "complex128")
ITEM_SIZES: Mapping[str, int] = {
    "bfloat16": 2,
    **{name: np.dtype(name).itemsize for name in (*_INTEGERS, *_OTHERS)},
}
# Those of them that neither JSON nor Parquet has.
UNCOMMON_DTYPES = ("bfloat16", "complex64", "complex128")


# The orders of the numbers of a box and of a keypoint; each may have the ending.
BOX_ORDERS = ("xywh", "xyxy", "cxcywh", "yxyx")
POINT_ORDERS = ("xy", "xyv")
NORMALIZED = "-normalized"
COORDINATES = tuple(order + ending for order in (*BOX_ORDERS, *POINT_ORDERS) for ending in ("", NORMALIZED))

# How pixels are stored that are not in an image file.
RAW_PIXELS = "raw"


@dataclass(frozen=True)
class Kind:
    """How the values of one kind of feature are stored in a ``tf.train.Example``.

    Attributes:
        wire: the list of ``tf.train.Feature`` that holds the values.
        dtypes: the dtypes that this kind can hold exactly.
        lists: whether the shape may be ``(None,)``: a number of elements that varies between examples.
        rows: whether the shape may be ``(None, k)``: a number of rows, of ``k`` elements each, that varies.
        channels: numbers of channels that the decoded pixels may have, None for one that varies; empty if
            values are not encoded images.
    """

    wire: WireType
    dtypes: frozenset[str]
    lists: bool = False
    rows: bool = False
    channels: tuple[int | None, ...] = ()


# NumPy 1.26's limit; newer releases and TensorFlow have higher ones.
_MAX_DIMENSIONS = 32

_IMAGE_DIMENSIONS = 3

_INT64_EXACT = frozenset(_INTEGERS) - {"uint64"}

KINDS: Mapping[str, Kind] = {
    # one encoded image (JPEG, PNG, ...); dtype and shape describe the decoded pixels
    "image": Kind("bytes", frozenset({"uint8", "uint16"}), channels=(1, 3, 4, None)),
    # one encoded PNG, whose pixel values are numbers of classes or objects: nothing may mix or scale them
    "mask": Kind("bytes", frozenset({"uint8", "uint16"}), channels=(1,)),
    # an index into the schema's class names, or any integer if it has none
    "label": Kind("int64", _INT64_EXACT, lists=True),
    # one byte string per element
    "bytes": Kind("bytes", frozenset({"bytes"}), lists=True),
    # one int64 per element, row-major; uint64 does not fit
    "int": Kind("int64", _INT64_EXACT | {"bool"}, lists=True, rows=True),
    # one float32 per element, row-major; float64 does not fit
    "float": Kind("float", frozenset({"float16", "bfloat16", "float32"}), lists=True, rows=True),
    # one value: the little-endian bytes of the elements, row-major
    "raw": Kind("bytes", frozenset(ITEM_SIZES)),
}


@dataclass(frozen=True)
class Feature(JsonRecord):
    """One named value of every example.

    Attributes:
        name: name of the feature in the ``tf.train.Example``.
        kind: a key of ``KINDS``.
        dtype: a key of ``ITEM_SIZES``, or ``bytes``.
        shape: shape of the value of one example; ``()`` for a scalar. None is a dimension that varies: any
            dimension of an image, a side of a mask, the only dimension of a list, or the first of two:
            ``(None, 4)`` is a list of rows of 4 elements. Images and masks are ``(height, width, channels)``.
        coordinates: one of ``COORDINATES``, if the elements are boxes or keypoints: 4 numbers of each box, 2
            or 3 of each keypoint; None for all other features, and then left out of JSON.
        pixels: ``raw`` if the elements of a feature of kind ``raw`` are the pixels of an image; None for all
            other features, and then left out of JSON.

    Raises:
        ValueError: an attribute is invalid, or they contradict each other.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int | None, ...] = ()
    coordinates: str | None = None
    pixels: str | None = None

    optional: ClassVar[tuple[str, ...]] = ("coordinates", "pixels")

    def __post_init__(self) -> None:
        if fault := self.fault():
            raise WrongValueError(*fault)

    def fault(self) -> tuple[str, str] | None:
        """Return the first attribute that is wrong, and what is wrong with it; None if it is valid."""
        if not self.name or not self.name.isprintable():
            return "name", f"is {shown(self.name)}, must be one or more printable characters"
        if self.kind not in KINDS:
            return "kind", f"is {shown(self.kind)}, must be one of {', '.join(sorted(KINDS))}"
        kind = KINDS[self.kind]
        if self.dtype not in kind.dtypes:
            allowed = ", ".join(sorted(kind.dtypes))
            return "dtype", f"is {shown(self.dtype)}, but kind {self.kind!r} can only be {allowed}"
        if fault := self._shape_fault(kind):
            return "shape", fault
        if self.coordinates is not None and (fault := _coordinates_fault(self)):
            return "coordinates", fault
        if self.pixels is not None and (fault := _pixels_fault(self)):
            return "pixels", fault
        return None

    def _shape_fault(self, kind: Kind) -> str | None:
        shape, listed = self.shape, f"is {shown(list(self.shape))}"
        sizes = [dim or 1 for dim in shape]
        if min(sizes, default=1) < 1 or len(sizes) > _MAX_DIMENSIONS or math.prod(sizes) > MAX_INT:
            most = f"at most {_MAX_DIMENSIONS} dimensions of 0 or more"
            return f"{listed}, must have {most}, and less than 2^63 elements"
        if kind.channels and (len(shape) != _IMAGE_DIMENSIONS or shape[-1] not in kind.channels):
            counts = ", ".join(str(number) for number in kind.channels if number)
            return (
                f"{listed}, but of kind {self.kind!r} it is (height, width, channels), of {counts} channels"
            )
        is_list = shape == (None,) or (kind.rows and len(shape) == 2 and shape[0] is None and bool(shape[1]))
        if None in shape and not kind.channels and not (kind.lists and is_list):
            allowed = "[None] or [None, k] with k >= 1" if kind.rows else "[None]" if kind.lists else "none"
            return f"{listed}, but for kind {self.kind!r} only the shape {allowed} may vary"
        return None

    @property
    def text(self) -> str:
        """Kind, dtype, shape and what is declared, as ``info`` prints them: ``image, uint8 ? x ? x 3``."""
        shape = " x ".join("?" if dim is None else str(dim) for dim in self.shape)
        declared = [self.coordinates, "pixels" if self.pixels else None]
        return ", ".join([self.kind, f"{self.dtype} {shape}".rstrip(), *filter(None, declared)])

    @property
    def wire(self) -> WireType:
        """Name of the list of ``tf.train.Feature`` that holds the values."""
        return KINDS[self.kind].wire

    @property
    def is_encoded(self) -> bool:
        """Whether a value is an encoded image, whose decoded pixels have the dtype and the shape."""
        return bool(KINDS[self.kind].channels)

    @property
    def is_image(self) -> bool:
        """Whether a value is an encoded image whose pixels may be mixed, unlike a mask's."""
        return self.kind == "image"

    @property
    def is_mask(self) -> bool:
        """Whether a value is an encoded image whose pixels are numbers of classes or objects."""
        return self.kind == "mask"

    @property
    def is_label(self) -> bool:
        """Whether the elements are numbers of classes."""
        return self.kind == "label"

    @property
    def is_text(self) -> bool:
        """Whether the elements are byte strings."""
        return self.kind == "bytes"

    @property
    def is_raw(self) -> bool:
        """Whether a value is one byte string that holds the little-endian bytes of all elements."""
        return self.kind == "raw"

    @property
    def holds_numbers(self) -> bool:
        """Whether the elements are numbers in a list, other than labels."""
        return self.kind in ("int", "float")

    @property
    def is_numeric(self) -> bool:
        """Whether the elements are numbers, other than labels."""
        return self.holds_numbers or self.is_raw

    @property
    def holds_strings(self) -> bool:
        """Whether the loader delivers byte strings: elements of kind ``bytes``, or encoded images."""
        return self.wire == "bytes" and not self.is_raw

    @property
    def is_single(self) -> bool:
        """Whether the list in an example holds exactly one value."""
        return self.shape == () or self.is_encoded or self.is_raw

    @property
    def is_ragged(self) -> bool:
        """Whether the number of elements varies: ``(None,)`` or ``(None, k)``."""
        return self.shape[:1] == (None,) and KINDS[self.kind].lists

    @property
    def num_elements(self) -> int:
        """Number of elements of a value, or of a row of a ragged one; an image or a mask is one element."""
        return 1 if self.is_encoded else math.prod(dim for dim in self.shape if dim is not None)

    def values_fault(self, wire: str, values: Sequence[Any]) -> str | None:
        """Return what is wrong with the list that an example has of the feature, of a wire type, or None.

        There is no wire type if an example has no list, which is the same as an empty one.
        """
        if wire != self.wire and (wire or not self.is_ragged):
            return f"is a list of {wire} instead of {self.wire}" if wire else "is missing"
        count = len(values) if self.is_ragged else 1 if self.is_single else self.num_elements
        if len(values) != count:
            return f"has {len(values)} values instead of {count}"
        if self.is_ragged and len(values) % self.num_elements:
            return f"has {len(values)} values, which are not rows of {self.num_elements}"
        if self.is_raw and len(values[0]) != self.num_bytes:
            return f"has {len(values[0])} bytes instead of {self.num_bytes}"
        return None

    @property
    def num_bytes(self) -> int:
        """Number of bytes of one value of kind ``raw``."""
        return self.num_elements * ITEM_SIZES[self.dtype]


def _coordinates_fault(feature: Feature) -> str | None:
    """Return what is wrong with the coordinates of a feature that is valid otherwise, or None."""
    if feature.coordinates not in COORDINATES:
        return f"is {shown(feature.coordinates)}, must be one of {', '.join(COORDINATES)}"
    order, shape = feature.coordinates.removesuffix(NORMALIZED), feature.shape
    # each row of keypoints is an object, and all have the same number of keypoints
    width, last = (4 if order in BOX_ORDERS else len(order)), (shape[-1] if shape else None)
    if not feature.holds_numbers or not last or last % width or (width == 4 and last != width):
        what = f"has not {width} numbers of each {'box' if width == 4 else 'keypoint'}"
        return f"is {order!r}, but kind {feature.kind!r} with shape {shown(list(shape))} {what}"
    return None


def _pixels_fault(feature: Feature) -> str | None:
    """Return what is wrong with the pixels of a feature that is valid otherwise, or None."""
    if feature.pixels != RAW_PIXELS:
        return f"is {shown(feature.pixels)}, must be {RAW_PIXELS!r}"
    # an image is what the loader makes of a raw feature
    if (feature.is_raw or feature.is_image) and are_pixels(feature):
        return None
    what = "pixels are uint8 or uint16 of shape [height, width] or [height, width, 1, 3 or 4]"
    return (
        f"is {RAW_PIXELS!r}, but the feature is {feature.dtype} of shape {shown(list(feature.shape))}; {what}"
    )


def are_pixels(feature: Feature) -> bool:
    """Return whether dtype and shape of a feature fit pixels."""
    shape = feature.shape
    is_image = len(shape) in (2, 3) and all(shape) and (*shape, 1)[2] in (1, 3, 4)
    return is_image and feature.dtype in ("uint8", "uint16")


@dataclass(frozen=True)
class Schema(JsonRecord):
    """The features and class names of a dataset.

    Attributes:
        features: features, in the order in which they are listed and loaded.
        class_names: name of each class, in label order; empty if the classes have no names.

    Raises:
        ValueError: there are no features, a name is repeated, or there are class names but no label.
    """

    features: tuple[Feature, ...]
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if fault := self.fault():
            raise WrongValueError(*fault)

    def fault(self) -> tuple[str, str] | None:
        """Return the first attribute that is wrong, and what is wrong with it; None if both are valid."""
        if not self.features:
            return "features", "is empty, must hold at least one feature"
        for field, names in (("features", self.names), ("class_names", self.class_names)):
            if len(set(names)) < len(names):
                return field, f"contains the name {shown(repeated(names))} more than once"
        if self.class_names and not any(feature.is_label for feature in self.features):
            return "class_names", "is not empty, but no feature is of kind 'label'"
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return tuple(feature.name for feature in self.features)

    def __getitem__(self, name: str) -> Feature:
        for feature in self.features:
            if feature.name == name:
                return feature
        raise KeyError(f"no feature {name!r}; the features are {', '.join(self.names)}")

    @property
    def label(self) -> Feature | None:
        """The scalar feature of kind ``label``, or None if there is none."""
        return next((f for f in self.features if f.is_label and f.shape == ()), None)

    @property
    def key(self) -> Feature | None:
        """The scalar feature ``key`` of kind ``bytes``, or None if there is none."""
        return next((f for f in self.features if (f.name, f.kind, f.shape) == ("key", "bytes", ())), None)

    def class_name(self, label: int) -> str:
        """Return the name of the class with a number; the number as text where classes have no names."""
        if self.class_names and label < 0:
            return "no class"
        return self.class_names[label] if label < len(self.class_names) else str(label)


def repeated(names: Sequence[str]) -> str:
    """Return the first of some names that occurs for a second time."""
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
