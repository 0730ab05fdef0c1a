"""The features of arrays, as determined by dtype and shape, and the values of their rows."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import cast

import numpy as np

from tfshards.prep.records.example import Values
from tfshards.prep.sources.arrays.mapped import AnyArray, ArrayLayout
from tfshards.schemas import Feature, InputError
from tfshards.schemas.feature import ITEM_SIZES, KINDS


def feature_of(name: str, array: ArrayLayout, *, as_list: bool, is_label: bool) -> Feature:
    """Return the feature that an array is stored as.

    Args:
        name: name of the feature.
        array: the values.
        as_list: whether to store numbers as an int64 or float list.
        is_label: whether the values are classes.

    Raises:
        InputError: the dtype cannot be stored, or cannot be stored as a list.
    """
    try:
        return _feature(name, array, as_list=as_list, is_label=is_label)
    except ValueError as error:
        raise InputError("array-fault", name=name, error=error) from None


def row_bytes(array: ArrayLayout) -> int:
    """Return the number of bytes of one row in memory."""
    item = 2 if array.dtype == "bfloat16" else np.dtype(array.dtype).itemsize
    return math.prod(array.shape[1:]) * item


def is_text(array: ArrayLayout) -> bool:
    """Return whether an array holds byte strings or text."""
    return array.dtype != "bfloat16" and np.dtype(array.dtype).kind in "SU"


def values_of(feature: Feature, block: AnyArray, dtype: str) -> Sequence[Values]:
    """Return the values of each row of ``block``, in the form that the encoder expects.

    Raises:
        InputError: text is not valid Unicode.
    """
    if feature.kind == "raw":
        data = block.astype(block.dtype.newbyteorder("<"), copy=False).tobytes()
        step = feature.num_bytes
        return (
            [data[start : start + step] for start in range(0, len(data), step)]
            if step
            else [b""] * len(block)
        )
    if feature.kind == "bytes":
        found, number = strings(feature.name, block), feature.num_elements
        if not feature.shape:
            return found
        return [found[row * number : (row + 1) * number] for row in range(len(block))]
    block = widened(block, dtype)
    values: Sequence[Values] = block.reshape(len(block), -1).tolist() if feature.shape else block.tolist()
    return values


def widened(block: AnyArray, dtype: str) -> AnyArray:
    """Return values of bfloat16, which are mapped as uint16, as float32; others as they are."""
    # the upper half of a float32
    return (block.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else block


def is_class_dtype(array: ArrayLayout) -> bool:
    """Return whether a label is stored with the dtype of an array, rather than as int64."""
    return array.dtype != "bfloat16" and np.dtype(array.dtype).newbyteorder("=").name in KINDS["label"].dtypes


def strings(name: str, block: AnyArray) -> list[bytes]:
    """Return the elements in row-major order: bytes, or text as UTF-8 with surrogate escapes as bytes.

    Raises:
        InputError: the array ``name`` holds text that is not valid Unicode.
    """
    if block.dtype.kind == "S":
        return cast("list[bytes]", block.ravel().tolist())
    block = np.ascontiguousarray(block, block.dtype.newbyteorder("="))
    # a file may hold numbers that are not characters
    if block.size and block.itemsize and int(block.view(np.uint32).max()) > sys.maxunicode:
        raise InputError("array-bad-character", name=name, maxunicode=sys.maxunicode)
    try:
        return [item.encode("utf-8", "surrogateescape") for item in block.ravel().tolist()]
    except UnicodeEncodeError as error:
        raise InputError("array-not-unicode", name=name, error=error) from None


def _feature(name: str, array: ArrayLayout, *, as_list: bool, is_label: bool) -> Feature:
    shape = array.shape[1:]
    if is_text(array):
        if as_list:
            raise InputError("list-of-strings", name=name)
        return Feature(name, "label", "int64") if is_label else Feature(name, "bytes", "bytes", shape)
    dtype = "bfloat16" if array.dtype == "bfloat16" else np.dtype(array.dtype).newbyteorder("=").name
    if dtype not in ITEM_SIZES:
        raise InputError("array-dtype", name=name, dtype=dtype, remedy=_remedy(dtype))
    if is_label:
        return Feature(name, "label", dtype if is_class_dtype(array) else "int64", shape)
    scalar_int = not shape and dtype in KINDS["int"].dtypes and dtype != "bool"
    if not as_list and not scalar_int:
        return Feature(name, "raw", dtype, shape)
    kind = "float" if dtype in KINDS["float"].dtypes else "int"
    if dtype not in KINDS[kind].dtypes:
        raise InputError("list-dtype", name=name, dtype=dtype)
    return Feature(name, kind, dtype, shape)


def _remedy(dtype: str) -> str:
    if dtype.startswith(("datetime64", "timedelta64")):
        return "convert it with array.view('int64')"
    if dtype == "void16":
        return ".npy files cannot record bfloat16; pass the array from Python, or save array.view('uint16')"
    if dtype.startswith("void"):
        return "save plain bytes as array.view('uint8')"
    return f"convert it to one of {', '.join(sorted(ITEM_SIZES))}"
