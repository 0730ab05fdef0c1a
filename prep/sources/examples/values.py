"""The values of examples: what they are, as the first examples show or the user declares, and as elements."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast

import numpy as np

from tfshards.prep.imaging.formats import SUFFIXES, is_encoded
from tfshards.prep.imaging.pillow import Picture
from tfshards.prep.imaging.pixels import encoded_picture, encoded_pixels
from tfshards.prep.imaging.stored import stored_header
from tfshards.prep.sources.arrays.mapped import AnyArray
from tfshards.prep.sources.fetching import unreadable
from tfshards.prep.sources.keys import to_text
from tfshards.schemas import InputError
from tfshards.schemas.schema import KINDS
from tfshards.schemas.storage.untrusted import open_regular

# What a value can be declared as: kinds of features.
DECLARED = ("image", "mask", "label", "bytes", "int", "float", "raw")
LABEL_NAMES = ("label", "labels", "y", "cls")
# of declared lists without elements
_LISTED = {"int": "int64", "float": "float32"}
_NUMBERS = "biuf"
# Modes that masks have, in formats that keep their numbers; in the first examples only.
_LOOKED_AT = 8
_GRAY = ("1", "L", "P", "I", "I;16", "F")


@dataclass(frozen=True)
class Value:
    """What the values of one name are.

    Attributes:
        kind: one of ``DECLARED``.
        dtype: dtype of the elements of a list, and of numbers of Python; None for the one that arrays have.
        shape: shape of a list of no elements; None for values that are not lists.
        is_rounded: whether lists of float64 are stored as float32.
    """

    kind: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    is_rounded: bool = False


def plain_values(key: str, values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return values as text, bytes, paths, pictures, arrays or lists; dicts become ``NAME/FIELD``."""
    found: dict[str, object] = {}
    for name, value in values.items():
        # a dict with these two is an image of Hugging Face's datasets
        if isinstance(value, Mapping) and {*value} != {"bytes", "path"}:
            inner = plain_values(key, value, f"{prefix}{name}/")
        else:
            inner = {f"{prefix}{name}": _plain(value)}
        for each in inner:
            if each in found:
                raise InputError("element-fault", key=key, error=InputError("two-features", name=each))
        found |= inner
    return found


def _plain(value: Any) -> object:  # noqa: ANN401
    if isinstance(value, Mapping):
        return bytes(value["bytes"]) if value["bytes"] is not None else PurePath(value["path"])
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (str, bytes, PurePath, Picture, int, float)):
        return value
    if hasattr(value, "numpy"):
        # tensors
        value = value.numpy()
    array = value if isinstance(value, np.ndarray) else None
    if array is not None and array.dtype.hasobject and array.ndim:
        # as tables and TensorFlow hold lists and text
        value = array.tolist()
    return [*value] if isinstance(value, (list, tuple)) else value


def values_of(
    examples: Sequence[tuple[str, dict[str, object]]], declared: Mapping[str, str]
) -> dict[str, Value]:
    """Return what the values are, by name, as these first examples show it.

    Args:
        examples: keys and plain values.
        declared: kinds that the user has declared, by name.

    Raises:
        InputError: examples have different names, or what values are is not certain.
    """
    names = {*examples[0][1]}
    unknown = sorted({*declared} - names)
    if not names:
        raise InputError("elements-no-features")
    if unknown:
        raise InputError("schema-unknown", name=unknown[0], names=sorted(names))
    for key, values in examples:
        check_names(key, values, names)
    found = {}
    for name in sorted(names):
        held = [each[name] for _, each in examples]
        kind = declared.get(name) or _kind_of(name, held)
        is_listed = kind in ("list", "int", "float", "bytes")
        found[name] = _in_lists(name, kind, held) if is_listed else Value(kind, _number_dtype(held))
    return found


def check_names(key: str, values: Mapping[str, object], names: Iterable[str]) -> None:
    """Raise InputError unless an example has values of these names, and no others."""
    missing, other = sorted({*names} - {*values}), sorted({*values} - {*names})
    if missing or other:
        raise InputError("example-names", key=key, missing=missing or "none", other=other or "none")


def _kind_of(name: str, values: Sequence[object]) -> str:
    if any(map(_is_image, values)):
        return "image"
    lists = [each for each in values if isinstance(each, list)]
    if any(_is_image(each) for some in lists for each in some):
        raise InputError("example-image-list", name=name)
    if lists:
        return "list"
    if all(isinstance(each, (str, bytes)) for each in values):
        text = values[0] if isinstance(values[0], str) else ""
        if os.fsencode(os.path.splitext(text)[1].lower()) in SUFFIXES and os.path.isfile(text):
            raise InputError("example-path", name=name, path=text)
        return "bytes"
    return "raw"


def _is_image(value: object) -> bool:
    return isinstance(value, (PurePath, Picture)) or is_encoded(value)


def _number_dtype(values: Sequence[object]) -> str | None:
    """Return the dtype of the numbers of Python among the values; None without any."""
    kinds = {type(each) for each in values if isinstance(each, (bool, int, float))}
    if not kinds or bool in kinds:
        return "bool" if kinds == {bool} else None
    return "float64" if float in kinds else "int64"


def _in_lists(name: str, kind: str, values: Sequence[object]) -> Value:
    """Return what values are of which some are lists, or which are declared as text or numbers."""
    if not any(isinstance(each, list) or np.ndim(cast("Any", each)) for each in values):
        return Value(kind, None if kind == "bytes" else _number_dtype(values))
    arrays = [_array(name, each) for each in values]
    full = [array for array in arrays if array.size]
    if not full and kind == "list":
        raise InputError("example-list-empty", name=name)
    are_numbers = {array.dtype.kind in _NUMBERS for array in full}
    if len(are_numbers) > 1:
        raise InputError("example-list", name=name, error="some hold numbers, and others text")
    if kind == "bytes" or False in are_numbers:
        return Value("bytes", shape=(0,))
    dtype = np.result_type(*full) if full else np.dtype(_LISTED[kind])
    shape = (0, *full[0].shape[1:]) if full else (0,)
    if dtype.kind == "f" or kind == "float":
        is_rounded = dtype.name not in KINDS["float"].dtypes
        return Value("float", "float32" if is_rounded else dtype.name, shape, is_rounded)
    return Value("int", dtype.name, shape)


def _array(name: str, value: object) -> AnyArray:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InputError("example-list", name=name, error=error) from None


def label_of(found: Mapping[str, Value], examples: Sequence[Mapping[str, object]]) -> str | None:
    """Return the name of the label: the declared one, or the first of the usual names that holds classes.

    Raises:
        InputError: numbers under a usual name are negative.
    """
    declared = [name for name, value in found.items() if value.kind == "label"]
    for name in [] if declared else [name for name in LABEL_NAMES if name in found]:
        values = [each[name] for each in examples]
        if all(isinstance(each, (str, bytes)) for each in values) and found[name].kind == "bytes":
            return name
        arrays = [np.asarray(each) for each in values]
        if all(not array.ndim and array.dtype.kind in "biu" for array in arrays):
            least = min(int(array) for array in arrays)
            if least < 0:
                raise InputError("example-label", name=name, number=least)
            return name
    return declared[0] if declared else None


def check_masks(
    found: Mapping[str, Value],
    examples: Sequence[Mapping[str, object]],
    declared: Mapping[str, str],
    most: int,
) -> None:
    """Raise InputError if one of several images may be a mask, which would become RGB."""
    images = [name for name, value in found.items() if value.kind == "image"]
    may_be = {}
    for name in images if len(images) > 1 else ():
        some = [_encoded(name, each[name], most) for each in examples[:_LOOKED_AT]]
        kinds = [header.kind.split(", ") for header in map(stored_header, some) if header]
        may_be[name] = all(kind[0] != "JPEG" and kind[1] in _GRAY for kind in kinds)
    unclear = [name for name, is_gray in may_be.items() if is_gray and name not in declared]
    if unclear and not all(may_be.values()):
        raise InputError("example-mask-unclear", name=unclear[0])


def element_of(found: Mapping[str, Value], values: Mapping[str, object], most: int) -> dict[str, object]:
    """Return the values of an example as ``Elements`` takes them; ``most`` is a limit in bytes for files."""
    return {name: _as_element(name, found[name], value, most) for name, value in values.items()}


def _as_element(name: str, what: Value, value: object, most: int) -> object:
    if what.kind in ("image", "mask"):
        return _encoded(name, value, most)
    if what.kind == "label" and isinstance(value, bytes):
        return to_text(value)
    if what.shape is not None:
        return _list(name, what, value)
    if what.kind == "raw" and isinstance(value, list):
        return _array(name, value)
    if what.dtype == "float64" and type(value) is int and float(value) == value:
        return float(value)
    return value


def _list(name: str, what: Value, value: object) -> object:
    if what.kind == "bytes":
        return np.array(value, dtype=object)
    array = _array(name, value)
    if not array.size:
        return np.zeros(what.shape or (0,), what.dtype)
    if array.dtype.kind not in _NUMBERS or not (
        what.kind == "float" or np.can_cast(array.dtype, str(what.dtype))
    ):
        # which is reported as a difference
        return array
    try:
        with np.errstate(over="raise"):
            return array.astype(what.dtype)
    except FloatingPointError:
        raise InputError("example-list", name=name, error="a number is too large for float32") from None


def _encoded(name: str, value: object, most: int) -> bytes:
    """Return an image as the bytes of a file."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, (str, PurePath)):
        try:
            with open_regular(os.fspath(value)) as file:
                # one more than allowed, so that it is rejected
                return file.read(most + 1)
        except OSError as error:
            raise unreadable(os.fspath(value), error) from None
    try:
        if isinstance(value, Picture):
            return encoded_picture(value)
        return encoded_pixels(_array(name, value))
    except (OSError, ValueError) as error:
        raise InputError("example-image", name=name, error=error) from None
