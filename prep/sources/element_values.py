"""What one value of an element is stored as: a feature, and the value as ``records.example`` encodes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from operator import attrgetter
from pathlib import PurePath
from typing import Any

import numpy as np

from tfshards.prep.imaging.options import MAX_BYTES
from tfshards.prep.imaging.pillow import Picture
from tfshards.prep.imaging.pixels import encoded_picture, encoded_pixels
from tfshards.prep.records.example import Values
from tfshards.prep.sources.features import kind_of
from tfshards.prep.sources.fetching import unreadable
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.schemas import Feature, InputError
from tfshards.schemas.coordinates import Coordinates
from tfshards.schemas.declared import COORDINATES
from tfshards.schemas.names import name_fault
from tfshards.schemas.storage.untrusted import open_regular

# features check themselves, and elements have one set of them
feature_of = lru_cache(maxsize=256)(Feature)


def plain_value(value: Any) -> object:  # noqa: ANN401 -- values of other packages, which are not imported
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


def image_value(name: str, value: object) -> bytes:
    """Return an image, in any of the forms that ``plain_value`` leaves, as the bytes of a file.

    A file that exceeds the limit is cut one byte later, so that it is rejected.
    """
    if isinstance(value, Mapping):
        value = value["path"] if value["bytes"] is None else bytes(value["bytes"])
    if isinstance(value, bytes):
        return value
    if isinstance(value, (str, PurePath)):
        try:
            with open_regular(os.fspath(value)) as file:
                return file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            fault = error if isinstance(error, OSError) else OSError(None, str(error))
            raise unreadable(os.fspath(value), fault) from None
    try:
        return encoded_picture(value) if isinstance(value, Picture) else encoded_pixels(np.asarray(value))
    except (OSError, ValueError) as error:
        raise InputError(f"the image {name!r}: {error}") from None


def label_value(name: str, value: object) -> int | str | None:
    """Return the number or the name of a class; None for no class."""
    if isinstance(value, (str, bytes)):
        return (value if isinstance(value, str) else to_text(value)) or None
    array = np.asarray(value)
    if not array.shape and array.dtype.kind in "biu" and -1 <= int(array) < 1 << 63:
        return int(array)
    if value is None:
        return None
    raise InputError(
        f"the label {name!r} is {_shown(array)}, which is not a class || give the number of a class, or its "
        "name; the role value stores it as it is"
    )


def split_value(value: object) -> str:
    """Return the name of a split; numbers become text."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        value = str(value)
    text = to_text(value) if isinstance(value, bytes) else value
    fault = name_fault(text) if isinstance(text, str) else f"{value!r} must be a string"
    if fault:
        raise InputError(f"the split {fault}")
    return str(text)


def stored_value(name: str, value: Any, role: str, first: Feature | None = None) -> tuple[Feature, Values]:  # noqa: ANN401
    """Return the feature of a value that is neither an image nor a label, and the value as it is encoded.

    Integers become int64 lists, text and bytes byte strings, and other numbers and arrays raw little-endian
    bytes. Lists of Python, and arrays with the role ``list``, may have any length: they become lists of int64
    or of float32, to which floating point numbers of Python are rounded, or of byte strings.

    Args:
        name: name of the feature.
        value: a value as ``plain_value`` returns it.
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
        array = None if texts is not None else _numbers(name, value, first)
        shape, dtype = (np.shape(value), "bytes") if array is None else (array.shape, _name_of(array.dtype))
        if is_list and not shape:
            raise InputError(f"the value {name!r} is a single value; the role list needs lists")
        kind = kind_of(dtype, shape, is_list=is_list)
        feature = feature_of(name, kind, dtype, (None, *shape[1:]) if is_list else shape)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise InputError(f"the value {name!r} cannot be stored: {error}") from None
    if texts is not None:
        return feature, texts if shape else texts[0]
    if kind == "raw":
        # NumPy knows no other byte order of bfloat16
        data = np.ascontiguousarray(array).view(np.uint16) if dtype == "bfloat16" else array
        return feature, data.astype(data.dtype.newbyteorder("<"), copy=False).tobytes()
    wide = array.astype(np.int64 if kind == "int" else np.float32, copy=False)
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
    """Return numbers as an array, and those of Python with the dtype that they are stored as."""
    if type(value) is int and first == feature_of(name, "raw", "float64") and float(value) == value:
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
    if array.dtype == np.float64 or (first and first.kind == "float" and array.dtype.kind in "iu"):
        with np.errstate(over="raise"):
            return array.astype(np.float32)
    return array


def _coordinates(name: str, value: object, role: str) -> tuple[Feature, Values]:
    """Return boxes or keypoints: one box, or a row for each object, whose number varies."""
    coordinates = Coordinates.parse(role)
    width = 4 if coordinates.are_boxes else len(coordinates.order)
    array = np.asarray(value, np.float64)
    if array.shape == (0,):
        array = array.reshape(0, width)
    if array.ndim not in (1, 2) or not array.shape[-1] or array.shape[-1] % width:
        raise InputError(
            f"the value {name!r} is {_shown(array)}; the role {role} needs a row of {width} numbers for each "
            f"{'box' if coordinates.are_boxes else 'keypoint'}"
        )
    # numbers beyond float32 become infinite, which is reported with their image
    with np.errstate(over="ignore"):
        numbers = array.astype(np.float32)
    shape = array.shape if array.ndim == 1 else (None, array.shape[1])
    return feature_of(name, "float", "float32", shape, role), numbers.ravel().tolist()


def _shown(array: Any) -> str:  # noqa: ANN401
    return f"{array.dtype} {array.shape}" if array.shape else repr(array.item())
