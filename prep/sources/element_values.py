"""What one value of an element is stored as: a feature, and the value as ``records.example`` encodes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import PurePath
from typing import Any, cast

import numpy as np

from tfshards.prep.imaging.options import MAX_BYTES
from tfshards.prep.imaging.pillow import Picture
from tfshards.prep.imaging.pixels import encoded_picture, encoded_pixels
from tfshards.prep.records.example import Values
from tfshards.prep.sources.fetching import unreadable
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.schemas import Feature, InputError
from tfshards.schemas.coordinates import Coordinates
from tfshards.schemas.declared import COORDINATES
from tfshards.schemas.names import name_fault
from tfshards.schemas.schema import ITEM_SIZES, KINDS
from tfshards.schemas.storage.untrusted import open_regular

# features check themselves, and elements have one set of them
feature_of = lru_cache(maxsize=256)(Feature)


def plain_value(value: Any) -> object:  # noqa: ANN401 -- values of other packages, which are not imported
    """Return a value as text, bytes, a number, an array, a list, or an image."""
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (str, bytes, int, float, list, PurePath, Picture, Mapping)):
        return value
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
        if isinstance(value, Picture):
            return encoded_picture(value)
        return encoded_pixels(np.asarray(value))
    except (OSError, ValueError) as error:
        raise InputError(f"the image {name!r}: {error}") from None


def label_value(name: str, value: object) -> int | str | None:
    """Return the number or the name of a class; None for no class."""
    if value is None or (isinstance(value, (str, bytes)) and not value):
        return None
    if isinstance(value, (str, bytes)):
        return str(value) if isinstance(value, str) else to_text(value)
    array = np.asarray(value)
    if not array.shape and array.dtype.kind in "biu" and -1 <= int(array) < 1 << 63:
        return int(array)
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


def stored_value(name: str, value: object, role: str, first: Feature | None = None) -> tuple[Feature, Values]:
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
        is_list = role == "list" or isinstance(value, list)
        if isinstance(value, list) and not value and first and first.shape[:1] == (None,):
            return first, []
        texts = _texts(name, value)
        if texts is not None:
            shape = np.shape(cast("Any", value))
            if is_list and len(shape) != 1:
                raise InputError(f"{name!r} has the shape {shape}; a list of text has one dimension")
            feature = feature_of(name, "bytes", "bytes", (None,) if is_list else shape)
            return feature, texts if shape else texts[0]
        return _numbers(name, value, first, is_list=is_list)
    except (OverflowError, TypeError, ValueError) as error:
        raise InputError(f"the value {name!r}: {error}") from None


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
    try:
        return [each if isinstance(each, bytes) else to_bytes(each) for each in items]
    except AttributeError:
        raise InputError(f"the list {name!r} holds text and other values") from None
    except UnicodeEncodeError as error:
        raise InputError(f"the value {name!r} is not valid Unicode: {error.reason}") from None


def _numbers(name: str, value: Any, first: Feature | None, *, is_list: bool) -> tuple[Feature, Values]:  # noqa: ANN401
    array = np.asarray(value)
    if array.dtype.name not in ITEM_SIZES:
        kind = type(value).__name__ if array.dtype.hasobject else f"{array.dtype}"
        raise InputError(
            f"the value {name!r} is of type {kind}, which cannot be stored || give text, bytes, or numbers "
            f"of one of the dtypes {', '.join(sorted(ITEM_SIZES))}"
        )
    if is_list and not array.shape:
        raise InputError(f"the value {name!r} is {_shown(array)}, a single value; the role list needs lists")
    if isinstance(value, list):
        array = _as_list(name, array, first)
    elif type(value) is int and first == feature_of(name, "raw", "float64") and int(float(value)) == value:
        array = np.asarray(float(value))
    dtype = array.dtype.name
    if is_list:
        kind = "float" if dtype in KINDS["float"].dtypes else "int"
        if dtype not in KINDS[kind].dtypes:
            raise InputError(
                f"the value {name!r}: {dtype} fits neither a list of int64 nor one of float32 || convert it, "
                "such as with astype('float32')"
            )
        wide = array.astype(np.float32 if kind == "float" else np.int64)
        return feature_of(name, kind, dtype, (None, *array.shape[1:])), wide.ravel().tolist()
    if not array.shape and dtype in KINDS["int"].dtypes - {"bool"}:
        return feature_of(name, "int", dtype), int(array)
    data = np.ascontiguousarray(array).view(np.uint16) if dtype == "bfloat16" else array
    return feature_of(name, "raw", dtype, array.shape), data.astype(data.dtype.newbyteorder("<")).tobytes()


def _as_list(name: str, array: Any, first: Feature | None) -> Any:  # noqa: ANN401 -- arrays of any dtype
    """Return the numbers in a list of Python with the dtype that they are stored as."""
    if not array.size:
        raise InputError(
            f"the list {name!r} is empty, which does not show what it holds || give an array with the role "
            "list, such as np.zeros((0, 4), 'float32')"
        )
    if array.dtype == np.float64 or (first and first.kind == "float" and array.dtype.kind in "iu"):
        with np.errstate(over="ignore"):
            short = array.astype(np.float32)
        if np.isfinite(array).all() and not np.isfinite(short).all():
            raise InputError(f"the list {name!r} holds a number that is too large for float32")
        return short
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
