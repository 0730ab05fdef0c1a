"""The features of arrays by dtype and shape: values, classes and splits."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.records.example import Values
from tfshards.prep.sources.arrays.mapped import AnyArray, ArrayLayout, MappedArray, whole
from tfshards.prep.sources.classes import MAX_CLASSES, not_classes, usual_order
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.schemas import Feature, InputError
from tfshards.schemas.index import IntArray
from tfshards.schemas.names import name_fault
from tfshards.schemas.schema import ITEM_SIZES, KINDS


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


_LABEL_NAMES = ("label", "labels", "y")


@dataclass(frozen=True)
class Labels:
    """The class of each example.

    Attributes:
        numbers: shape ``(num_examples,)`` int64.
        class_names: names in label order; empty if the classes have no names.
    """

    numbers: IntArray
    class_names: tuple[str, ...]


def usual_label(names: Sequence[str]) -> str | None:
    """Return the array of labels: the first of label, labels and y that exists, or else in capitals."""
    found = {name.lower(): name for name in names}
    return next((name for name in _LABEL_NAMES if name in names), None) or next(
        (found[name] for name in _LABEL_NAMES if name in found), None
    )


def read_labels(name: str, array: MappedArray | None, class_names: Sequence[str]) -> Labels | None:
    """Return the classes in the array of labels, or None if it does not hold classes.

    Args:
        name: name of the array.
        array: array with one integer or string per example, or None if there is no such array.
        class_names: class names in label order; empty to use the strings in the array, sorted.

    Raises:
        InputError: a string is empty; or there are class names, and the array is missing or has other labels.
    """
    if class_names:
        return Labels(_numbers(name, _named(name, array), class_names), tuple(class_names))
    if array is None or len(array.shape) != 1:
        return None
    if is_text(array):
        return _sorted_classes(name, whole(array))
    if not _is_integer(array):
        return None
    values = whole(array)
    distinct = np.unique(values)
    is_class = len(distinct) <= MAX_CLASSES and (
        not len(distinct) or _fits(int(distinct[0]), int(distinct[-1]))
    )
    return Labels(values.astype(np.int64), ()) if is_class else None


def unused_label(name: str, array: MappedArray) -> list[str]:
    """Return a warning if an array that does not hold classes has numbers that look like classes."""
    if len(array.shape) != 1 or array.dtype == "bfloat16" or np.dtype(array.dtype).kind not in "if":
        return []
    values = whole(array)
    if np.dtype(array.dtype).kind == "i":
        return [not_classes("array", name, "negative")] if len(values) and values.min() < 0 else []
    found = values[np.isfinite(values)]
    are_whole = len(found) and np.array_equal(found, np.floor(found))
    return [not_classes("array", name, "floating-point")] if are_whole else []


def _is_integer(array: MappedArray) -> bool:
    """Return whether an array holds integers, or booleans, which are the classes 0 and 1."""
    return array.dtype != "bfloat16" and np.dtype(array.dtype).kind in "biu"


def _fits(low: int, high: int) -> bool:
    """Return whether values from ``low`` to ``high`` can be the numbers of classes, which are int64."""
    return low >= 0 and high < 1 << 63


def _named(name: str, array: MappedArray | None) -> MappedArray:
    if array is None:
        raise InputError("class-names-no-label")
    if len(array.shape) != 1 or not (is_text(array) or _is_integer(array)):
        dtype = "bfloat16" if array.dtype == "bfloat16" else np.dtype(array.dtype)
        raise InputError("array-label-shape", name=name, dtype=dtype, shape=array.shape[1:])
    return array


def _numbers(name: str, array: MappedArray, class_names: Sequence[str]) -> IntArray:
    values = whole(array)
    if is_text(array):
        number_of = {to_bytes(name): number for number, name in enumerate(class_names)}
        names = strings(name, values)
        for row, each in enumerate(names):
            if each not in number_of:
                raise InputError(
                    "array-label-unknown",
                    name=name,
                    row=row,
                    each=to_text(each),
                    num_class_names=len(class_names),
                )
        return np.array([number_of[each] for each in names], dtype=np.int64)
    # uint64 may exceed int64
    numbers = cast("npt.NDArray[np.int64]", values)
    wrong = np.flatnonzero((numbers < 0) | (numbers >= len(class_names)))
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            "array-label-range",
            name=name,
            row=row,
            numbers=numbers[row],
            num_class_names=len(class_names),
            num_class_names2=len(class_names) - 1,
        )
    return values.astype(np.int64)


def _sorted_classes(name: str, values: AnyArray) -> Labels | None:
    distinct, indexes = np.unique(values, return_inverse=True)
    if len(distinct) > MAX_CLASSES:
        return None
    names = strings(name, distinct)
    if b"" in names:
        row = int(np.flatnonzero(indexes == names.index(b""))[0])
        raise InputError("array-label-empty", name=name, row=row)
    # sorted by bytes, like folders; different strings may have the same bytes
    in_order = sorted(set(names))
    number_of = {each: number for number, each in enumerate(in_order)}
    numbers = np.array([number_of[each] for each in names], dtype=np.int64)[indexes]
    return Labels(numbers, tuple(map(to_text, in_order)))


# Arrays with more distinct values do not hold splits.
_MAX_SPLITS = 100


def is_split_array(array: MappedArray) -> bool:
    """Return whether an array holds one string or one integer per example."""
    if len(array.shape) != 1 or array.dtype == "bfloat16":
        return False
    return is_text(array) or np.dtype(array.dtype).kind in "iu"


def splits_of(name: str, array: MappedArray) -> dict[str, IntArray]:
    """Return the examples of each split that the array ``name`` names, in the usual order of splits.

    Raises:
        InputError: the array does not hold one string or integer per example, a value cannot be the name of
            a split, or there are too many different values.
    """
    if not is_split_array(array):
        raise InputError("split-array-shape", name=name)
    distinct, indexes = np.unique(whole(array), return_inverse=True)
    if len(distinct) > _MAX_SPLITS:
        raise InputError("split-array-many", name=name, num_distinct=len(distinct), max_splits=_MAX_SPLITS)
    names = (
        [to_text(each) for each in strings(name, distinct)]
        if is_text(array)
        else [str(number) for number in distinct.tolist()]
    )
    for number, each in enumerate(names):
        fault = name_fault(each)
        if fault:
            row = int(np.flatnonzero(indexes == number)[0])
            raise InputError("split-array-name", name=name, row=row, fault=fault)
    order = sorted(range(len(names)), key=lambda number: usual_order(names[number]))
    return {names[number]: np.flatnonzero(indexes == number).astype(np.int64) for number in order}
