"""The columns of a table that assign rows to classes, splits and groups."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.classes import MAX_CLASSES, class_map, usual_order
from tfshards.prep.sources.keys import require_values, to_bytes, to_text
from tfshards.prep.sources.tables.features import (
    TEXT,
    StoredColumn,
    is_list_type,
    plain_values,
    relisted,
    shown,
    stored_column,
    unlisted,
    without_missing,
)
from tfshards.schemas import Feature, InputError
from tfshards.schemas.index import IntArray
from tfshards.schemas.names import name_fault

_MAX_SPLITS = 100


def label_fault(name: str, column: pa.ChunkedArray, own: Sequence[str] = ()) -> str | None:
    """Return why a column does not hold classes, or None if it does.

    Classes are text, booleans, non-negative integers, or lists of these, with at most 10,000 distinct values.
    Single integers with ``own`` names may be -1, which means no class.
    """
    if is_list_type(unlisted(column)[0].type):
        return "lists of lists cannot be classes"
    flat, lengths = _classes(name, column)
    lowest = -1 if own and lengths is None else 0
    if pa.types.is_floating(flat.type):
        return f"labels must be text or integers, not {shown(column.type)}"
    if len(flat) > flat.null_count and flat.type != TEXT:
        least, most = pc.min_max(flat).as_py().values()
        if least < lowest or most >= 1 << 63:
            return f"the label {least if least < lowest else most} is negative or exceeds int64"
    if pc.count_distinct(flat).as_py() > MAX_CLASSES:
        return f"has more than {MAX_CLASSES} different labels, which is too many for classes"
    return None


def label_column(
    name: str, column: pa.ChunkedArray, given: Sequence[str] | None, own: Sequence[str] = ()
) -> StoredColumn:
    """Return the numbers of the classes in a column, and their names.

    Text is numbered in the order of the given class names, or in sorted order; booleans are the text
    ``false`` and ``true``; integers are class numbers. A column of lists holds several classes per row. A
    missing value, or an empty text, that is not in a list is -1, which means no class.

    The file may have its ``own`` names of the integers, which are translated to ``given`` ones by name.
    """
    if fault := label_fault(name, column, own):
        raise InputError("label-column-fault", name=name, fault=fault)
    flat, lengths = _classes(name, column)
    if flat.type == TEXT:
        found = [to_text(value) for value in pc.unique(flat).drop_null().to_pylist()]
        if "" in found:
            raise InputError("label-column-empty", name=name)
        given = given if given is not None else own or None
        # as in arrays, but not in folders, a class may have no examples
        names = class_map({*found, *(given or ())}, given, f"column {name!r} has none of that name")
        numbers = pc.index_in(flat, value_set=pa.array([to_bytes(each) for each in names], TEXT))
    else:
        numbers, names = _numbered(name, flat, given, own)
    numbers = numbers.cast(pa.int64()).fill_null(-1)
    feature = Feature(name, "label", "int64", () if lengths is None else (None,))
    warning = _class_warning(name, numbers, names)
    return StoredColumn(relisted(numbers, lengths), feature, warning, names)


def _classes(name: str, column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, IntArray | None]:
    """Return the labels in a column, and their number in each row; booleans are text, as class names are.

    Of single labels, any may be null.
    """
    flat, lengths = unlisted(column)
    if lengths is None and pa.types.is_null(flat.type):
        flat = flat.cast(pa.int64())
    flat = plain_values(name, flat, column.type)
    if flat.type == pa.bool_():
        flat = flat.cast(pa.string()).cast(TEXT)
    if lengths is not None or pa.types.is_floating(flat.type):
        return without_missing(name, flat, is_list=lengths is not None), lengths
    if flat.type == TEXT:
        flat = pc.if_else(pc.equal(flat, pa.scalar(b"", TEXT)), pa.scalar(None, TEXT), flat)
    return flat, None


def _numbered(
    name: str, flat: pa.ChunkedArray, given: Sequence[str] | None, own: Sequence[str]
) -> tuple[pa.ChunkedArray, tuple[str, ...]]:
    """Return the class numbers of integers, and the class names."""
    names = tuple(own or given or ())
    largest = pc.max(flat).as_py() if len(flat) > flat.null_count else -1
    if names and largest >= len(names):
        raise InputError("label-column-range", name=name, largest=largest, num_names=len(names))
    if not own or given is None:
        return flat, names
    numbers = flat.cast(pa.int64()).fill_null(-1).to_numpy()
    used = [names[number] for number in np.unique(numbers[numbers >= 0]).tolist()]
    given = class_map({*used, *given}, given, f"column {name!r} has none of that name")
    number_of = {each: number for number, each in enumerate(given)}
    # the last one is for -1
    translated = np.array([*(number_of.get(each, -1) for each in names), -1], np.int64)
    return pa.chunked_array([pa.array(translated[numbers], pa.int64())]), given


def _class_warning(name: str, numbers: pa.ChunkedArray, names: Sequence[str]) -> str | None:
    """Return a warning about classes without rows, and rows without a class, or None."""
    found = pc.value_counts(numbers).to_pylist()
    without = len(names) - sum(each["values"] >= 0 for each in found)
    num_open = sum(each["counts"] for each in found if each["values"] < 0)
    faults = [f"classes without rows: {without} of {len(names)}"] if names and without else []
    faults += [f"rows without a class (-1): {num_open:,}"] if num_open else []
    return f"column {name!r}: {'; '.join(faults)}" if faults else None


def split_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the name of each row's split, as ``TEXT``."""
    stored = stored_column(name, column)
    if stored.feature.shape or stored.feature.kind not in ("bytes", "int"):
        raise InputError("split-column-type", name=name, dtype_name=shown(column.type))
    texts = _as_text(stored.values)
    names = [to_text(value) for value in pc.unique(texts).to_pylist()]
    if len(names) > _MAX_SPLITS:
        raise InputError("split-column-many", name=name, num_names=len(names), max_splits=_MAX_SPLITS)
    for each in names:
        if fault := name_fault(each):
            row = pc.index(texts, pa.scalar(to_bytes(each), TEXT)).as_py() + 1
            raise InputError("split-column-name", name=name, row=row, fault=fault)
    return texts


def folder_splits(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the first folder of each path, as ``TEXT``; empty for a path without a folder."""
    firsts = [os.path.normpath(path).partition(b"/") for path in paths.to_pylist()]
    return pa.chunked_array([pa.array([first if slash else b"" for first, slash, _ in firsts], TEXT)])


def splits_of(column: pa.ChunkedArray) -> dict[str, IntArray]:
    """Return the rows of each split that a staged column names, in the usual order of splits."""
    encoded = column.combine_chunks().dictionary_encode()
    names = [to_text(value) for value in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy()
    order = sorted(range(len(names)), key=lambda code: usual_order(names[code]))
    return {names[code]: np.flatnonzero(codes == code).astype(np.int64) for code in order}


def groups_of(name: str, column: pa.ChunkedArray) -> list[bytes]:
    """Return the group of each row: its value as text."""
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


def _as_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values if values.type == TEXT else values.cast(pa.large_string()).cast(TEXT)
