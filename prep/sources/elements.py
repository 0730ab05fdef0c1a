"""The values of one element, of a pipeline or an iterable: the features that they become, and their roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import Any

import numpy as np

from tfshards.prep.imaging.convert import encoded_picture, encoded_pixels
from tfshards.prep.imaging.options import MAX_BYTES, ImageOptions
from tfshards.prep.imaging.pillow import Picture
from tfshards.prep.records.example import Values
from tfshards.prep.sources.features import kind_of
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.pictures import image_feature
from tfshards.prep.sources.roles import (
    IMAGE_ROLES,
    check_undeclared,
    check_undeclared_boxes,
    features_of,
    resolve_roles,
)
from tfshards.schemas import Feature, InputError
from tfshards.schemas.columns import raw_bytes
from tfshards.schemas.coordinates import Coordinates
from tfshards.schemas.errors import one_line
from tfshards.schemas.json_reader import JsonRecord
from tfshards.schemas.names import name_fault
from tfshards.schemas.schema import COORDINATES
from tfshards.schemas.storage import LocalPath

# what messages name
WHERE = "the source"
# characters of a value in a message
_SHOWN = 80
# items of a list that may be images
_LOOKED_AT = 8


@dataclass(frozen=True)
class Form(JsonRecord):
    """What all elements have in common.

    Attributes:
        roles: role of each value that has one.
        features: features that are stored, images first; the order depends on names and roles only.
    """

    roles: Mapping[str, str]
    features: tuple[Feature, ...]

    @property
    def spilled(self) -> tuple[Feature, ...]:
        """The features whose values are written to files, see ``staged.Spill``."""
        return tuple(feature for feature in self.features if not feature.is_label)

    def warnings(self) -> list[str]:
        """Return a warning for each feature that may have lost bits."""
        # without the role list, only lists of Python become lists
        return [
            f"{feature.name!r}: lists of numbers are stored as float32"
            for feature in self.features
            if feature.wire == "float" and self.roles.get(feature.name, "value") == "value"
        ]

    def check_same(self, key: str, other: Form, other_key: str) -> None:
        """Raise InputError unless two elements, which have these keys, have the same form."""
        ours, theirs = (
            {name: f"of the role {role}" for name, role in form.roles.items()}
            | {each.name: each.text for each in form.features}
            for form in (self, other)
        )
        for name in sorted({*ours, *theirs}):
            if ours.get(name) != theirs.get(name):
                raise InputError(
                    f"the elements differ: {name!r} is {ours.get(name, 'missing')} in {key!r} but "
                    f"{theirs.get(name, 'missing')} in {other_key!r}; give every element the same values, "
                    "each of one dtype and shape; with the role list, and in lists of Python, the length "
                    "may differ; arrays of different sizes that are images have the role image"
                )


def encode_element(
    values: object, declared: Mapping[str, str], images: ImageOptions, first: Form | None
) -> tuple[Form, list[Values], dict[str, Any]]:
    """Return what is stored of the values of an element.

    Args:
        values: values by name.
        declared: roles that the user gives.
        images: how images are stored.
        first: the form of the first element, if it decides about lists and numbers of Python.

    Returns:
        The form; the value of each feature but the label, as ``records.example`` encodes it; and what has the
        role ``label`` (None for no class), ``split`` or ``key``.

    Raises:
        InputError: a value cannot be stored, or does not fit its role.
    """
    given = _flat(values)
    roles, stored_names = _roles_of(tuple(sorted(given)), tuple(declared.items()))
    firsts = {} if first is None else {feature.name: feature for feature in first.features}
    features: list[Feature] = []
    encoded: list[Values] = []
    for name, feature_name in stored_names:
        value, role = given[name], roles.get(name, "value")
        if role == "label":
            features.append(_feature_of(feature_name, "label", "int64"))
            continue
        if role in IMAGE_ROLES:
            feature = image_feature(feature_name, images, role)
            stored: Values = _image_value(name, value)
        else:
            if name not in roles:
                items = value[:_LOOKED_AT] if isinstance(value, list) else [value]
                check_undeclared(name, items, WHERE)
            feature, stored = _stored_value(name, value, role, firsts.get(name))
        features.append(feature)
        encoded.append(stored)
    if "image" in roles.values():
        check_undeclared_boxes((each for each in features if each.name not in roles), WHERE)
    special = {
        role: special_value(name, given[name], role)
        for name, role in roles.items()
        if role in ("label", "split", "key")
    }
    return Form(roles, tuple(features)), encoded, special


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
    names: tuple[str, ...], declared: tuple[tuple[str, str], ...]
) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """Return the roles of the values that have one, and the names and features of those that are stored."""
    roles = resolve_roles(names, dict(declared), WHERE)
    return roles, tuple(features_of(names, roles, WHERE).items())


# features check themselves, and elements have one set of them
_feature_of = lru_cache(maxsize=256)(Feature)


def _plain_value(value: Any) -> object:  # noqa: ANN401 -- values of other packages, which are not imported
    """Return a value as text, bytes, a number, an array, a list, or an image."""
    if isinstance(value, (str, bytes, int, float, list, PurePath, Picture, Mapping)):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, np.ma.MaskedArray):
        raise InputError("a value is a masked array; fill it, such as with array.filled(0)")
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
            with LocalPath(value).open_regular() as file:
                return file.read(MAX_BYTES + 1)
        return encoded_picture(value) if isinstance(value, Picture) else encoded_pixels(np.asarray(value))
    except (OSError, ValueError) as error:
        raise InputError(f"the image {name!r}: {error}") from None


def special_value(name: str, value: object, role: str) -> int | str | bytes | None:
    """Return the class of a label (None for no class), the name of a split, or the bytes of a key.

    Raises:
        InputError: the value cannot have this role.
    """
    if isinstance(value, (np.ndarray, np.generic)) and not value.shape:
        value = value.item()
    try:
        value = to_bytes(value) if isinstance(value, str) else value
    except UnicodeEncodeError as error:
        raise InputError(f"{value!r} is not valid Unicode: {error.reason}") from None
    if role == "label":
        if value is None or value == b"":
            return None
        if isinstance(value, bytes):
            return to_text(value)
        if isinstance(value, int) and -1 <= value < 1 << 63:
            return int(value)
        raise InputError(
            f"the label {name!r} is {one_line(repr(value))[:_SHOWN]}, which is not a class; give the number "
            "of a class, or its name; the role value stores it as it is"
        )
    if isinstance(value, int) and not isinstance(value, bool):
        value = b"%d" % value
    if not isinstance(value, bytes):
        raise InputError(f"the {role} {value!r} is of type {type(value).__name__}, not text or an integer")
    if role == "split":
        if fault := name_fault(to_text(value)):
            raise InputError(f"the split {fault}")
        return to_text(value)
    if not value or b"\0" in value:
        raise InputError(f"the key {to_text(value)!r} must be one or more characters without NUL")
    return value


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
        shape, dtype = (np.shape(value), "bytes") if array is None else (array.shape, array.dtype.name)
        if is_list and not shape:
            raise InputError(f"the value {name!r} is a single value; the role list needs lists")
        kind = kind_of(dtype, shape, is_list=is_list)
        feature = _feature_of(name, kind, dtype, (None, *shape[1:]) if is_list else shape)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise InputError(f"the value {name!r} cannot be stored: {error}") from None
    if texts is not None:
        return feature, texts if shape else texts[0]
    if feature.is_raw:
        return feature, raw_bytes(array)
    wide = array.astype(np.int64 if feature.wire == "int64" else np.float32, copy=False)
    return feature, wide.ravel().tolist() if shape else wide.item()


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
            f"the value {name!r} of type {type(value).__name__} is, or holds, other objects than numbers; "
            "give text, bytes, numbers, or arrays or lists of these; the role drop leaves the value out"
        )
    if not isinstance(value, list):
        return array
    if not value:
        raise InputError(
            f"the list {name!r} is empty, which does not show what it holds; give an array with the role "
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
