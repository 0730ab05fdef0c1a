"""The classes of arrays: the numbers in the feature of labels, and the class names if there are any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.sources.arrays.features import is_text, strings
from tfshards.prep.sources.arrays.mapped import AnyArray, MappedArray, whole
from tfshards.prep.sources.classes import MAX_CLASSES, not_classes
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.schemas import InputError
from tfshards.schemas.index import IntArray

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
