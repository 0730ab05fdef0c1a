"""What elements of a pipeline, and examples of an iterable, are stored as: features by role, and keys."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from pathlib import PurePath
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tfshards.prep.imaging.coordinates import Outside, Reference
from tfshards.prep.imaging.options import MAX_BYTES, ImageOptions
from tfshards.prep.imaging.pillow import Picture
from tfshards.prep.imaging.pixels import encoded_picture, encoded_pixels
from tfshards.prep.option import check_choices
from tfshards.prep.records.example import Values
from tfshards.prep.sources.classes import check_class_names
from tfshards.prep.sources.features import kind_of
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.pictures import ImageRules, check_mask_depth, mask_options
from tfshards.prep.sources.roles import (
    check_roles,
    check_undeclared,
    check_undeclared_boxes,
    features_of,
    is_template,
    resolve_roles,
)
from tfshards.schemas import Feature, InputError, OptionsError
from tfshards.schemas.coordinates import Coordinates, coordinates_of
from tfshards.schemas.errors import check_instance, listed, one_line
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import name_fault
from tfshards.schemas.schema import COORDINATES
from tfshards.schemas.storage.untrusted import open_regular

# names, and characters of a value, in a message
_SHOWN_NAMES, _SHOWN = 20, 80
# items of a list that may be images
_LOOKED_AT = 8


class Form(NamedTuple):
    """What all elements have in common.

    Attributes:
        roles: pairs of a value that has a role, and the role.
        features: features that are stored, images first; the order depends on names and roles only.
    """

    roles: tuple[tuple[str, str], ...]
    features: tuple[Feature, ...]

    @property
    def wide(self) -> tuple[Feature, ...]:
        """The features whose values are written to files, see ``wide.py``."""
        return tuple(feature for feature in self.features if not feature.is_label)

    def has_role(self, *roles: str) -> bool:
        """Return whether a value has one of these roles."""
        return any(role in roles for _, role in self.roles)

    @property
    def image(self) -> str | None:
        """The name of the first image; None without one."""
        return next((feature.name for feature in self.features if feature.is_image), None)

    @property
    def label(self) -> str | None:
        """The name of the first label; None without one."""
        return next((feature.name for feature in self.features if feature.is_label), None)

    def __str__(self) -> str:
        """Return the names of the features, for a message."""
        return listed([feature.name for feature in self.features], _SHOWN_NAMES)

    def to_json(self) -> dict[str, Json]:
        """Return the form as ``from_json`` takes it."""
        return {"roles": dict(self.roles), "features": [feature.to_json() for feature in self.features]}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Form:
        """Return the form that ``to_json`` has described."""
        features = (Feature(**{**each, "shape": tuple(each["shape"])}) for each in found["features"])
        return cls(tuple(found["roles"].items()), tuple(features))

    def warnings(self) -> list[str]:
        """Return a warning for each feature that may have lost bits."""
        # without the role list, only lists of Python become lists
        roles = dict(self.roles)
        return [
            f"{feature.name!r}: lists of numbers are stored as float32"
            for feature in self.features
            if feature.wire == "float" and roles.get(feature.name, "value") == "value"
        ]

    def check_same(self, key: str, other: Form, other_key: str) -> None:
        """Raise InputError unless two elements, which have these keys, have the same form."""
        ours, theirs = (
            {name: f"of the role {role}" for name, role in form.roles}
            | {each.name: each.text for each in form.features}
            for form in (self, other)
        )
        for name in sorted({*ours, *theirs}):
            if ours.get(name) != theirs.get(name):
                raise InputError(
                    f"the elements differ: {name!r} is {ours.get(name, 'missing')} in {key!r} but "
                    f"{theirs.get(name, 'missing')} in {other_key!r} || give every element the same values, "
                    "each of one dtype and shape; with the role list, and in lists of Python, the length may "
                    "differ; arrays of different sizes that are images have the role image"
                )


class Encoded(NamedTuple):
    """One element as it is stored.

    Attributes:
        form: roles and features.
        values: value of each feature but the label, as ``records.example`` encodes it.
        label: number or name of the class; None for no class.
        split: name of the split; empty without one.
        key: value with the role ``key``, or None.
    """

    form: Form
    values: Sequence[Values]
    label: int | str | None
    split: str
    key: object


@dataclass(frozen=True)
class Elements:
    """How elements are stored: the arguments that ``Examples`` and ``WriteShards`` describe.

    Attributes:
        source: what gives the elements, as manifests and messages name it.
        examples: the elements; empty for those of a pipeline.

    Raises:
        OptionsError: a role is unknown or given twice, or an option is not valid.
    """

    source: ClassVar[str] = "WriteShards"

    examples: Any = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    images: ImageOptions = field(default_factory=ImageOptions)
    class_names: Sequence[str] | None = None
    outside_boxes: Outside = "reject"
    boxes_in: Reference | None = None

    RECORDED: ClassVar[tuple[str, ...]] = ("outside_boxes", "boxes_in")

    def __post_init__(self) -> None:
        check_choices(self)
        check_roles(self.roles)
        check_class_names(self.class_names)
        check_instance("images", self.images, ImageOptions)
        if template := next(filter(is_template, self.roles), None):
            raise OptionsError(f"roles: {template!r} is a template of paths, which only tables have")

    def encode(self, values: object, first: Form | None = None) -> Encoded:
        """Return an element as it is stored.

        Args:
            values: values by name.
            first: the form of the first element, if it decides about lists and numbers of Python.

        Raises:
            InputError: a value cannot be stored, or does not fit its role.
        """
        given = _flat(values)
        roles, stored_names = _roles_of(tuple(sorted(given)), tuple(self.roles.items()), self.source)
        firsts = {} if first is None else {feature.name: feature for feature in first.features}
        features: list[Feature] = []
        encoded: list[Values] = []
        label: int | str | None = None
        for name, feature_name in stored_names:
            value, role = given[name], roles.get(name, "value")
            if role == "label":
                label = _label_value(name, value)
                features.append(_feature_of(feature_name, "label", "int64"))
                continue
            if role in ("image", "mask"):
                options = self.images if role == "image" else mask_options(self.images)
                feature = _feature_of(feature_name, role, options.dtype, options.shape)
                stored: Values = _image_value(name, value)
            else:
                if name not in roles:
                    items = value[:_LOOKED_AT] if isinstance(value, list) else [value]
                    check_undeclared(name, items, self.source)
                feature, stored = _stored_value(name, value, role, firsts.get(name))
            features.append(feature)
            encoded.append(stored)
        if "image" in roles.values():
            check_undeclared_boxes((each for each in features if each.name not in roles), self.source)
        single = {role: given[name] for name, role in roles.items() if role in ("split", "key")}
        split = _split_value(single["split"]) if "split" in single else ""
        form = Form(tuple(roles.items()), tuple(features))
        return Encoded(form, encoded, label, split, single.get("key"))

    def check(self, form: Form) -> None:
        """Raise an error if an option has no effect on elements of this form."""
        if self.images != ImageOptions() and not form.has_role("image", "mask"):
            raise OptionsError(f"images= has no effect: none of {form} is an image || declare it in roles=")
        if self.class_names is not None and not form.has_role("label"):
            raise InputError(f"class_names= has no effect: none of {form} is a label || declare it in roles=")
        check_mask_depth(self.images, has_masks=form.has_role("mask"))
        self.rules(form)

    def rules(self, form: Form) -> ImageRules:
        """Return how images are stored of elements of this form."""
        masks = frozenset(feature.name for feature in form.features if feature.is_mask)
        coordinates, image = coordinates_of(form.features), form.image
        return ImageRules(self.images, masks, coordinates, image, self.outside_boxes, self.boxes_in)


def _flat(values: object, prefix: str = "") -> dict[str, Any]:
    """Return plain values by name; dicts become ``NAME/FIELD``."""
    if not isinstance(values, Mapping):
        raise InputError(f"the values must be a dict by name, not {type(values).__name__}")
    flat: dict[str, object] = {}
    for name, value in values.items():
        # a dict with these two is an image of Hugging Face's datasets
        if isinstance(value, Mapping) and {*value} != {"bytes", "path"}:
            inner = _flat(value, f"{prefix}{name}/")
        else:
            inner = {f"{prefix}{name}": _plain_value(value)}
        if twice := flat.keys() & inner.keys():
            raise InputError(f"two values are named {min(twice)!r}; rename one")
        flat |= inner
    return flat


# elements have one set of names
@lru_cache(maxsize=16)
def _roles_of(
    names: tuple[str, ...], declared: tuple[tuple[str, str], ...], source: str
) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """Return the roles of the values that have one, and the names and features of those that are stored."""
    roles = resolve_roles(names, dict(declared), source)
    return roles, tuple(features_of(names, roles, source).items())


# features check themselves, and elements have one set of them
_feature_of = lru_cache(maxsize=256)(Feature)


def _plain_value(value: Any) -> object:  # noqa: ANN401 -- values of other packages, which are not imported
    """Return a value as text, bytes, a number, an array, a list, or an image."""
    if isinstance(value, (str, bytes, int, float, list, PurePath, Picture, Mapping)):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, np.ma.MaskedArray):
        raise InputError("a value is a masked array || fill it, such as with array.filled(0)")
    if hasattr(value, "__array__"):
        # tensors, too
        value = np.asarray(value)
        # as tables and TensorFlow hold lists and text; only text has no other dtype where it is empty
        if value.dtype.hasobject and not value.size:
            return value.astype("S")
        is_text = value.dtype.kind in "SU" and not value.shape
        return value.tolist() if value.dtype.hasobject or is_text else value
    return [*value] if isinstance(value, tuple) else value


def _image_value(name: str, value: object) -> bytes:
    """Return an image, in any of the forms that ``_plain_value`` leaves, as the bytes of a file.

    A file that exceeds the limit is cut one byte later, so that it is rejected.
    """
    if isinstance(value, Mapping):
        value = value["path"] if value["bytes"] is None else bytes(value["bytes"])
    if isinstance(value, bytes):
        return value
    try:
        if isinstance(value, (str, PurePath)):
            with open_regular(os.fspath(value)) as file:
                return file.read(MAX_BYTES + 1)
        return encoded_picture(value) if isinstance(value, Picture) else encoded_pixels(np.asarray(value))
    except (OSError, ValueError) as error:
        raise InputError(f"the image {name!r}: {error}") from None


def _label_value(name: str, value: object) -> int | str | None:
    """Return the number or the name of a class; None for no class."""
    value = _single(value)
    if value is None or value == b"":
        return None
    if isinstance(value, bytes):
        return to_text(value)
    if isinstance(value, int) and -1 <= value < 1 << 63:
        return int(value)
    raise InputError(
        f"the label {name!r} is {one_line(repr(value))[:_SHOWN]}, which is not a class || give the number of "
        "a class, or its name; the role value stores it as it is"
    )


def _split_value(value: object) -> str:
    """Return the name of a split; numbers become text."""
    split = to_text(_name("split", value))
    if fault := name_fault(split):
        raise InputError(f"the split {fault}")
    return split


def encode_key(key: object) -> bytes:
    """Return a key, text, bytes or an integer, as bytes, or raise InputError if it cannot be one."""
    encoded = _name("key", key)
    if not encoded or b"\0" in encoded:
        raise InputError(f"the key {key!r} must be one or more characters without NUL")
    return encoded


def _name(what: str, value: object) -> bytes:
    """Return text, bytes or an integer as bytes; ``what`` it is, is for messages."""
    name = _single(value)
    if isinstance(name, int) and not isinstance(name, bool):
        return b"%d" % name
    if not isinstance(name, bytes):
        raise InputError(f"the {what} {value!r} is of type {type(value).__name__}, not text or an integer")
    return name


def _single(value: object) -> object:
    """Return a single number of NumPy as one of Python, and text as bytes."""
    if isinstance(value, (np.ndarray, np.generic)) and not value.shape:
        value = value.item()
    try:
        return to_bytes(value) if isinstance(value, str) else value
    except UnicodeEncodeError as error:
        raise InputError(f"{value!r} is not valid Unicode: {error.reason}") from None


def _stored_value(name: str, value: Any, role: str, first: Feature | None = None) -> tuple[Feature, Values]:  # noqa: ANN401
    """Return the feature of a value that is neither an image nor a label, and the value as it is encoded.

    Integers become int64 lists, text and bytes byte strings, and other numbers and arrays raw little-endian
    bytes. Lists of Python, and arrays with the role ``list``, may have any length: they become lists of int64
    or of float32, to which floating point numbers of Python are rounded, or of byte strings.

    Args:
        name: name of the feature.
        value: a value as ``_plain_value`` returns it.
        role: ``value``, ``list``, or a format of coordinates.
        first: the feature of the first example: an empty list has its dtype, and so have integers of Python
            where it has floating point numbers.
    """
    try:
        if role in COORDINATES:
            return _coordinates(name, value, role)
        if isinstance(value, list) and not value and first and first.is_ragged:
            return first, []
        is_list = role == "list" or isinstance(value, list)
        texts = _texts(name, value)
        array: Any = None if texts is not None else _numbers(name, value, first)
        shape, dtype = (np.shape(value), "bytes") if array is None else (array.shape, _name_of(array.dtype))
        if is_list and not shape:
            raise InputError(f"the value {name!r} is a single value; the role list needs lists")
        kind = kind_of(dtype, shape, is_list=is_list)
        feature = _feature_of(name, kind, dtype, (None, *shape[1:]) if is_list else shape)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise InputError(f"the value {name!r} cannot be stored: {error}") from None
    if texts is not None:
        return feature, texts if shape else texts[0]
    if feature.is_raw:
        # NumPy knows no other byte order of bfloat16
        data = np.ascontiguousarray(array).view(np.uint16) if dtype == "bfloat16" else array
        return feature, data.astype(data.dtype.newbyteorder("<"), copy=False).tobytes()
    wide = array.astype(np.int64 if feature.wire == "int64" else np.float32, copy=False)
    return feature, wide.ravel().tolist() if shape else wide.item()


# NumPy composes the name each time
_name_of = lru_cache(maxsize=64)(attrgetter("name"))


def _texts(name: str, value: Any) -> list[bytes] | None:  # noqa: ANN401
    """Return the byte strings in a text, or in a list or an array of text; None for other values."""
    if isinstance(value, (str, bytes)):
        items: list[Any] = [value]
    elif isinstance(value, np.ndarray) and value.dtype.kind in "SU":
        items = value.ravel().tolist()
    elif isinstance(value, list) and any(isinstance(each, (str, bytes)) for each in value):
        items = value
    else:
        return None
    if not all(isinstance(each, (str, bytes)) for each in items):
        raise InputError(f"the list {name!r} holds text and other values")
    return [each if isinstance(each, bytes) else to_bytes(each) for each in items]


def _numbers(name: str, value: Any, first: Feature | None) -> Any:  # noqa: ANN401 -- arrays of any dtype
    """Return numbers as an array, those of Python with the dtype that they are stored as."""
    if type(value) is int and first == _feature_of(name, "raw", "float64") and float(value) == value:
        return np.asarray(float(value))
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise InputError(
            f"the value {name!r} of type {type(value).__name__} is, or holds, other objects than numbers || "
            "give text, bytes, numbers, or arrays or lists of these; the role drop leaves the value out"
        )
    if not isinstance(value, list):
        return array
    if not value:
        raise InputError(
            f"the list {name!r} is empty, which does not show what it holds || give an array with the role "
            "list, such as np.zeros((0, 4), 'float32')"
        )
    if array.dtype == np.float64 or (first and first.wire == "float" and array.dtype.kind in "iu"):
        with np.errstate(over="raise"):
            return array.astype(np.float32)
    return array


def _coordinates(name: str, value: object, role: str) -> tuple[Feature, Values]:
    """Return boxes or keypoints: one box, or a row for each object, whose number varies."""
    array = np.asarray(value, np.float64)
    if array.shape == (0,):
        coordinates = Coordinates.parse(role)
        array = array.reshape(0, 4 if coordinates.are_boxes else len(coordinates.order))
    # numbers beyond float32 become infinite, which is reported with their image
    with np.errstate(over="ignore"):
        numbers = array.astype(np.float32)
    shape = array.shape if array.ndim == 1 else (None, *array.shape[1:])
    return _feature_of(name, "float", "float32", shape, role), numbers.ravel().tolist()
