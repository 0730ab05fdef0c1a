"""The schema of a dataset: its features, how each kind is stored, and the names of its classes."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal

from tfshards.schemas.declared import coordinates_fault, pixels_fault
from tfshards.schemas.json_reader import MAX_INT, JsonRecord, ObjectReader, as_json, shown

WireType = Literal["bytes", "int64", "float"]

# Bytes per element of each numeric dtype, stored little-endian; complex64 is two float32.
ITEM_SIZES: Mapping[str, int] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
# Those of them that neither JSON nor Parquet has.
UNCOMMON_DTYPES = ("bfloat16", "complex64", "complex128")


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

_INT64_EXACT = frozenset(dtype for dtype in ITEM_SIZES if "int" in dtype) - {"uint64"}

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
        faults = feature_faults(self.name, self.kind, self.dtype, self.shape)
        faults = faults or self._declared_faults(self.coordinates, self.pixels)
        if faults:
            raise ValueError("; ".join(f"{place} {message}" for place, message in faults.items()))

    def _declared_faults(self, coordinates: str | None, pixels: str | None) -> dict[str, str]:
        """Return what is wrong with these optional fields, by field."""
        found = {
            "coordinates": coordinates_fault(coordinates, self.kind, self.shape),
            "pixels": pixels_fault(pixels, self.kind, self.dtype, self.shape),
        }
        return {field: fault for field, fault in found.items() if fault}

    @property
    def wire(self) -> WireType:
        """Name of the list of ``tf.train.Feature`` that holds the values."""
        return KINDS[self.kind].wire

    @property
    def is_encoded(self) -> bool:
        """Whether a value is an encoded image, whose decoded pixels have the dtype and the shape."""
        return bool(KINDS[self.kind].channels)

    @property
    def is_ragged(self) -> bool:
        """Whether the number of elements varies: ``(None,)`` or ``(None, k)``."""
        return self.shape[:1] == (None,) and KINDS[self.kind].lists

    @property
    def row_elements(self) -> int:
        """Number of elements of one row of a ragged feature: ``k`` for shape ``(None, k)``, else 1."""
        return 1 if self.is_encoded else math.prod(dim for dim in self.shape[1:] if dim is not None)

    @property
    def num_elements(self) -> int:
        """Number of elements of one value; an image or a mask is one element, an encoded string.

        Raises:
            ValueError: the feature is ragged, so the number varies between examples.
        """
        if self.is_ragged:
            raise ValueError(
                f"feature {self.name!r} has no fixed number of elements: its shape is {self.shape}"
            )
        return 1 if self.is_encoded else math.prod(dim for dim in self.shape if dim is not None)

    @property
    def num_bytes(self) -> int:
        """Number of bytes of one value of kind ``raw``.

        Raises:
            ValueError: the kind is not ``raw``.
        """
        if self.kind != "raw":
            raise ValueError(f"feature {self.name!r} is of kind {self.kind!r}; only 'raw' has a fixed length")
        return self.num_elements * ITEM_SIZES[self.dtype]

    @classmethod
    def read(cls, reader: ObjectReader) -> Feature | None:
        """Return the feature in ``reader``, or None after noting its problems."""
        known = len(reader.problems)
        reader.only(each.name for each in fields(cls))
        name, kind, dtype = (reader.take(field, str, "") for field in ("name", "kind", "dtype"))
        shape: list[int | None] = []
        for index, dim in enumerate(reader.take("shape", list, [])):
            if dim is None or (isinstance(dim, int) and not isinstance(dim, bool)):
                shape.append(dim)
            else:
                reader.note(f"shape[{index}]", f"is {shown(dim)}, must be an integer or null")
        coordinates, pixels = (
            reader.take(field, str, "") if field in reader.value else None for field in cls.optional
        )
        places = [problem.place for problem in reader.problems[known:]]
        for field, message in feature_faults(name, kind, dtype, tuple(shape)).items():
            # fields of the wrong type are already noted
            if not any(place.startswith(reader.at(field)) for place in places):
                reader.note(field, message)
        if len(reader.problems) > known:
            return None
        feature = cls(name, kind, dtype, tuple(shape))
        faults = feature._declared_faults(coordinates, pixels)
        for field, fault in faults.items():
            reader.note(field, fault)
        if faults:
            return None
        return replace(feature, coordinates=coordinates, pixels=pixels)


def feature_faults(name: str, kind: str, dtype: str, shape: tuple[int | None, ...]) -> dict[str, str]:
    """Return what is wrong with a feature that has these attributes, by attribute; empty if it is valid."""
    faults: dict[str, str] = {}
    if not name or not name.isprintable():
        faults["name"] = f"is {shown(name)}, must be one or more printable characters"
    if kind not in KINDS:
        faults["kind"] = f"is {shown(kind)}, must be one of {', '.join(sorted(KINDS))}"
        return faults
    if dtype not in KINDS[kind].dtypes:
        allowed = ", ".join(sorted(KINDS[kind].dtypes))
        faults["dtype"] = f"is {shown(dtype)}, but kind {kind!r} can only be {allowed}"
    listed, channels = shown(list(shape)), KINDS[kind].channels
    if any(dim is not None and dim < 0 for dim in shape):
        faults["shape"] = f"is {listed}, must have no negative dimensions"
    elif channels and (len(shape) != _IMAGE_DIMENSIONS or shape[-1] not in channels):
        what = "an image is (height, width, channels) with 1, 3 or 4 channels"
        what = what if kind == "image" else "a mask is (height, width, 1)"
        faults["shape"] = f"is {listed}, but {what}"
    elif None in shape and not channels and not KINDS[kind].lists:
        faults["shape"] = f"is {listed}, but every dimension must be known for kind {kind!r}"
    elif None in shape and not channels and not _is_list(shape, KINDS[kind]):
        allowed = "[None] or [None, k] with k >= 1" if KINDS[kind].rows else "[None]"
        faults["shape"] = f"is {listed}, but for kind {kind!r} only the shape {allowed} may vary"
    elif len(shape) > _MAX_DIMENSIONS:
        faults["shape"] = f"has {len(shape)} dimensions; at most {_MAX_DIMENSIONS} are allowed"
    elif math.prod(dim or 1 for dim in shape) > MAX_INT:
        faults["shape"] = f"is {listed}, which has more than 2^63 - 1 elements"
    return faults


def _is_list(shape: tuple[int | None, ...], kind: Kind) -> bool:
    """Whether a shape describes a list, or a list of rows if the kind may have these."""
    return shape == (None,) or (kind.rows and len(shape) == 2 and shape[0] is None and bool(shape[1]))


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
        faults = schema_faults(self.features, self.class_names)
        if faults:
            raise ValueError("; ".join(f"{field} {message}" for field, message in faults))

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
        return next((f for f in self.features if f.kind == "label" and f.shape == ()), None)

    @property
    def key(self) -> Feature | None:
        """The scalar feature ``key`` of kind ``bytes``, or None if there is none."""
        return next((f for f in self.features if (f.name, f.kind, f.shape) == ("key", "bytes", ())), None)

    @property
    def fingerprint(self) -> str:
        """First 16 hex digits of the SHA-256 of the schema's canonical JSON."""
        canonical = json.dumps(as_json(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("ascii")).hexdigest()[:16]

    @classmethod
    def read(cls, reader: ObjectReader) -> Schema | None:
        """Return the schema in ``reader``, or None after noting its problems."""
        known = len(reader.problems)
        reader.only(each.name for each in fields(cls))
        read = [Feature.read(item) for item in reader.objects("features")]
        class_names = reader.strings("class_names")
        features = tuple(feature for feature in read if feature is not None)
        # Faults that a feature with problems of its own might resolve are not reported.
        complete = len(features) == len(read) and isinstance(reader.value.get("features"), list)
        for field, message in (schema_faults if complete else _name_faults)(features, class_names):
            reader.note(field, message)
        return cls(features, class_names) if len(reader.problems) == known else None


def schema_faults(features: Sequence[Feature], class_names: Sequence[str]) -> list[tuple[str, str]]:
    """Return what is wrong with a schema that has these features and class names, as (field, message)."""
    faults = _name_faults(features, class_names)
    if not features:
        faults.append(("features", "is empty, must hold at least one feature"))
    if class_names and not any(feature.kind == "label" for feature in features):
        faults.append(("class_names", "is not empty, but no feature is of kind 'label'"))
    return faults


def _name_faults(features: Sequence[Feature], class_names: Sequence[str]) -> list[tuple[str, str]]:
    lists = (("features", [feature.name for feature in features]), ("class_names", class_names))
    return [
        (field, f"contains the name {shown(name)} {times} times")
        for field, names in lists
        for name, times in Counter(names).items()
        if times > 1
    ]
