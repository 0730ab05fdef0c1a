"""The classes of arrays: the numbers of the feature ``label``, and the classes' names if they have any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfshards.prep.plan import IntArray
from tfshards.prep.sources.array_features import is_text, strings
from tfshards.prep.sources.columns import AnyArray, Column, whole
from tfshards.prep.sources.listing import to_bytes, to_text
from tfshards.schemas import InputError

# Above this, integers named "label" are a quantity rather than classes, and strings are just strings.
_MAX_CLASSES = 10_000


@dataclass(frozen=True)
class Labels:
    """The class of each example.

    Attributes:
        numbers: shape ``(num_examples,)`` int64.
        class_names: the name of class ``i`` at place ``i``, or empty where classes have no names.
    """

    numbers: IntArray
    class_names: tuple[str, ...]


def read_labels(column: Column | None, class_names: Sequence[str]) -> Labels | None:
    """Return the classes of the column ``label``, or None if it holds none.

    Args:
        column: with one integer or string an example, or None if there is no such column.
        class_names: in the order of their numbers; empty to take strings as they are found, sorted.

    Raises:
        InputError: a string is empty; or there are class names, and a label is none of them or missing.
    """
    if class_names:
        return Labels(_numbers(_named(column), class_names), tuple(class_names))
    if column is None or len(column.shape) != 1:
        return None
    if is_text(column):
        return _sorted_classes(whole(column))
    if not _is_integer(column):
        return None
    values = whole(column)
    distinct = np.unique(values)
    is_class = len(distinct) <= _MAX_CLASSES and (not len(distinct) or int(distinct[0]) >= 0)
    return Labels(values.astype(np.int64), ()) if is_class else None


def _is_integer(column: Column) -> bool:
    """Whether int64 holds every value of the dtype."""
    dtype = None if column.dtype == "bfloat16" else np.dtype(column.dtype)
    return dtype is not None and dtype.kind in "iu" and not (dtype.kind == "u" and dtype.itemsize == 8)


def _named(column: Column | None) -> Column:
    if column is None:
        raise InputError("there are class_names, but no array 'label'; name the labels so, or leave them out")
    if len(column.shape) != 1 or not (is_text(column) or _is_integer(column)):
        dtype = "bfloat16" if column.dtype == "bfloat16" else np.dtype(column.dtype)
        raise InputError(
            f"array 'label': is {dtype} {column.shape[1:]} an example, but class_names need one integer of "
            "at most int64, or one string"
        )
    return column


def _numbers(column: Column, class_names: Sequence[str]) -> IntArray:
    values = whole(column)
    if is_text(column):
        number_of = {to_bytes(name): number for number, name in enumerate(class_names)}
        names = strings("label", values)
        for row, name in enumerate(names):
            if name not in number_of:
                raise InputError(
                    f"array 'label', row {row}: {to_text(name)!r} is none of the {len(class_names)} "
                    "class_names; add it at their end, or correct the label"
                )
        return np.array([number_of[name] for name in names], dtype=np.int64)
    numbers = values.astype(np.int64)
    wrong = np.flatnonzero((numbers < 0) | (numbers >= len(class_names)))
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            f"array 'label', row {row}: is {numbers[row]}, but {len(class_names)} class_names are numbered "
            f"from 0 to {len(class_names) - 1}"
        )
    return numbers


def _sorted_classes(values: AnyArray) -> Labels | None:
    distinct, places = np.unique(values, return_inverse=True)
    if len(distinct) > _MAX_CLASSES:
        return None
    names = strings("label", distinct)
    if b"" in names:
        row = int(np.flatnonzero(places == names.index(b""))[0])
        raise InputError(
            f"array 'label', row {row}: is an empty string, which names no class; give it one, or name the "
            "array otherwise to store it as strings"
        )
    # sorted as folders are, by their bytes; two spellings in text may be the same bytes
    in_order = sorted(set(names))
    number_of = {name: number for number, name in enumerate(in_order)}
    numbers = np.array([number_of[name] for name in names], dtype=np.int64)[places]
    return Labels(numbers, tuple(map(to_text, in_order)))
