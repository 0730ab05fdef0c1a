"""The classes, splits and groups of rows, from the values of columns."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.classes import MAX_CLASSES, class_map
from tfshards.prep.sources.features import (
    TEXT,
    StoredColumn,
    is_bytes_type,
    is_list_type,
    numbers_of,
    plain_values,
    relisted,
    shown,
    unlisted,
    without_missing,
)
from tfshards.prep.sources.keys import require_values, to_bytes, to_text
from tfshards.prep.sources.roles import flag
from tfshards.prep.sources.splits import usual_order
from tfshards.schemas import Feature, InputError
from tfshards.schemas.index import IntArray
from tfshards.schemas.names import name_fault

_MAX_SPLITS = 100
_LARGEST = (1 << 63) - 1
# A list, or an object, as text.
_JSON = re.compile(rb"\s*(\[.*\]|\{.*\})\s*", re.DOTALL)
_SHOWN = 60


def label_column(
    name: str,
    column: pa.ChunkedArray,
    given: Sequence[str] | None = None,
    own: Sequence[str] = (),
    separator: str | None = None,
) -> StoredColumn:
    """Return the numbers of the classes in a column, and their names.

    Text is numbered in the order of the given class names, or in sorted order; booleans are the text
    ``false`` and ``true``; integers are class numbers. A column of lists holds several classes per row. A
    missing value, an empty text, or the number -1, that is not in a list, means no class and becomes -1.

    Args:
        name: the column, for messages.
        column: its values.
        given: class names that the user gives, in label order.
        own: names of the integers that the source has; they are translated to ``given`` ones by name.
        separator: what separates several classes in a text; an empty text states that there is one.

    Raises:
        InputError: the values are not classes, or not those of the given names.
    """
    column = _separated(name, column, separator)
    flat, lengths = unlisted(column)
    if is_list_type(flat.type):
        raise _no_classes(name, "lists of lists")
    if lengths is None and pa.types.is_null(flat.type):
        flat = flat.cast(pa.int64())
    flat = plain_values(name, flat, column.type)
    if pa.types.is_floating(flat.type):
        raise _no_classes(name, f"{shown(column.type)} numbers")
    if flat.type == pa.bool_():
        flat = flat.cast(pa.string()).cast(TEXT)
    if lengths is not None:
        flat = without_missing(name, flat, is_list=True)
    if pc.count_distinct(flat).as_py() > MAX_CLASSES:
        raise _no_classes(name, f"more than {MAX_CLASSES:,} different values")
    if flat.type == TEXT:
        numbers, names = _of_text(name, flat, given, own, is_list=lengths is not None)
    else:
        numbers, names = _of_integers(name, flat, given, own, lowest=0 if lengths is not None else -1)
    feature = Feature(name, "label", "int64", () if lengths is None else (None,))
    return StoredColumn(feature, relisted(numbers, lengths), names, _warning(name, numbers, names))


def _no_classes(name: str, what: str) -> InputError:
    return InputError(
        f"column {name!r} holds {what}, which cannot be classes || save classes as integers from 0, or as "
        f"text; {flag(name, 'value')} stores the values as they are"
    )


def _separated(name: str, column: pa.ChunkedArray, separator: str | None) -> pa.ChunkedArray:
    """Return lists of the classes in texts between separators, if there is one."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not is_bytes_type(kind):
        if separator:
            raise InputError("label-separator-type", name=name, kind=shown(column.type))
        return column
    texts = column.cast(kind).cast(TEXT)
    if separator is None:
        filled = [text for text in pc.unique(texts).to_pylist() if text]
        if filled and all(map(_JSON.fullmatch, filled)):
            raise InputError("label-json", name=name, found=to_text(filled[0][:_SHOWN]))
    if not separator:
        return texts
    lists = [
        [part.strip() for part in (text or b"").split(to_bytes(separator)) if part.strip()]
        for text in texts.to_pylist()
    ]
    items = pa.chunked_array([pa.array([item for each in lists for item in each], TEXT)])
    return relisted(items, np.array([*map(len, lists)], np.int64))


def _of_text(
    name: str, flat: pa.ChunkedArray, given: Sequence[str] | None, own: Sequence[str], *, is_list: bool
) -> tuple[pa.ChunkedArray, tuple[str, ...]]:
    values = [to_text(value) for value in pc.unique(flat).drop_null().to_pylist()]
    if is_list and "" in values:
        raise InputError("label-column-empty", name=name)
    given = given if given is not None else own or None
    # as in arrays, but not in folders, a class may have no examples
    names = class_map({*values, *(given or ())} - {""}, given, f"column {name!r} has none of that name")
    numbers = pc.index_in(flat, value_set=pa.array([to_bytes(each) for each in names], TEXT))
    return numbers.cast(pa.int64()).fill_null(-1), names


def _of_integers(
    name: str, flat: pa.ChunkedArray, given: Sequence[str] | None, own: Sequence[str], *, lowest: int
) -> tuple[pa.ChunkedArray, tuple[str, ...]]:
    least, most = pc.min_max(flat).as_py().values() if len(flat) > flat.null_count else (lowest, lowest)
    if least < lowest or most > _LARGEST:
        raise _no_classes(name, f"the number {least if least < lowest else most}")
    names = tuple(own or given or ())
    if names and most >= len(names):
        raise InputError("label-column-range", name=name, largest=most, num_names=len(names))
    numbers = flat.cast(pa.int64())
    numbers = numbers.fill_null(-1) if numbers.null_count else numbers
    if not own or given is None:
        return numbers, names
    found = numbers.to_numpy()
    used = [names[number] for number in np.unique(found[found >= 0]).tolist()]
    given = class_map({*used, *given}, given, f"column {name!r} has none of that name")
    number_of = {each: number for number, each in enumerate(given)}
    # the last one is for -1
    translated = np.array([*(number_of.get(each, -1) for each in names), -1], np.int64)
    return pa.chunked_array([pa.array(translated[found], pa.int64())]), given


def _warning(name: str, numbers: pa.ChunkedArray, names: Sequence[str]) -> str | None:
    """Return a warning about classes without rows, and rows without a class, or None."""
    counts = pc.value_counts(numbers).to_pylist()
    without = len(names) - sum(each["values"] >= 0 for each in counts)
    num_open = sum(each["counts"] for each in counts if each["values"] < 0)
    faults = [f"classes without rows: {without} of {len(names)}"] if names and without else []
    faults += [f"rows without a class (-1): {num_open:,}"] if num_open else []
    return f"column {name!r}: {'; '.join(faults)}" if faults else None


def split_names(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the name of each row's split, as ``TEXT``; integers become text."""
    kind = column.type
    values = column if is_list_type(kind) else plain_values(name, column, kind)
    if is_list_type(kind) or not (values.type == TEXT or pa.types.is_integer(values.type)):
        raise InputError("split-column-type", name=name, dtype_name=shown(kind))
    texts = _as_text(without_missing(name, values, is_list=False))
    names = [to_text(value) for value in pc.unique(texts).to_pylist()]
    if len(names) > _MAX_SPLITS:
        raise InputError("split-column-many", name=name, num_names=len(names), max_splits=_MAX_SPLITS)
    for each in names:
        if fault := name_fault(each):
            row = pc.index(texts, pa.scalar(to_bytes(each), TEXT)).as_py() + 1
            raise InputError("split-column-name", name=name, row=row, fault=fault)
    return texts


def first_folders(paths: Sequence[bytes]) -> list[str]:
    """Return the first folder of each path; empty for a path without a folder."""
    firsts = [os.path.normpath(path).partition(b"/") for path in paths]
    return [to_text(first) if slash else "" for first, slash, _ in firsts]


def splits_of(column: pa.ChunkedArray) -> dict[str, IntArray]:
    """Return the rows of each split that a staged column names, in the usual order of splits."""
    encoded = column.combine_chunks().dictionary_encode()
    names = [to_text(value) for value in encoded.dictionary.to_pylist()]
    codes = numbers_of(encoded.indices)
    order = sorted(range(len(names)), key=lambda code: usual_order(names[code]))
    return {names[code]: np.flatnonzero(codes == code).astype(np.int64) for code in order}


def groups_of(name: str, column: pa.ChunkedArray) -> list[bytes]:
    """Return the group of each row: its value as text.

    Raises:
        InputError: the column holds lists, or a value is missing, empty or NaN.
    """
    if is_list_type(column.type):
        raise InputError("group-by-lists", name=name)
    values = plain_values(name, column, column.type)
    if pa.types.is_floating(values.type):
        # -0.0 becomes 0.0, which it equals; float16 has no sums
        wide = values.cast(pa.float32()) if pa.types.is_float16(values.type) else values
        values = pc.add(wide, pa.scalar(0.0, wide.type))
    missing = pc.is_null(values, nan_is_null=True)
    texts = _as_text(values)
    missing = pc.or_(missing, pc.fill_null(pc.equal(texts, pa.scalar(b"", TEXT)), True))
    require_values(name, pc.sum(missing).as_py() or 0, "column")
    groups: list[bytes] = texts.to_pylist()
    return groups


def key_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the key of each row as ``TEXT``, from text, bytes or integers.

    Raises:
        InputError: a key is missing, empty, repeated, or contains NUL; the error names its row.
    """
    kind = column.type
    values = column if is_list_type(kind) else plain_values(name, column, kind)
    if is_list_type(kind) or not (values.type == TEXT or pa.types.is_integer(values.type)):
        raise InputError(f"column {name!r} holds {shown(kind)}: keys are text, bytes or integers")
    keys = _as_text(without_missing(name, values, is_list=False))
    rows: dict[bytes, int] = {}
    for row, key in enumerate(keys.to_pylist(), 1):
        first = rows.setdefault(key, row)
        faults = ["is empty"] * (not key) + ["contains NUL"] * (b"\0" in key)
        faults += [f"is that of row {first}, too"] * (first != row)
        for fault in faults:
            raise InputError(f"column {name!r}, row {row}: the key {to_text(key[:_SHOWN])!r} {fault}")
    return keys


def _as_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values if values.type == TEXT else values.cast(pa.large_string()).cast(TEXT)
