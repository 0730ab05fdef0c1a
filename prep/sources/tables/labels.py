"""The columns of a table that assign rows to classes, splits and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.classes import MAX_CLASSES, class_map
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.tables.features import (
    TEXT,
    StoredColumn,
    plain_column,
    relisted,
    shown,
    stored_column,
)
from tfshards.prep.sources.usual_splits import usual_order
from tfshards.schemas import Feature, InputError
from tfshards.schemas.index import IntArray
from tfshards.schemas.names import name_fault

_MAX_SPLITS = 100


@dataclass(frozen=True)
class LabelColumn:
    """A column of classes.

    Attributes:
        stored: class numbers.
        names: class names; empty for integers if no class names are given.
    """

    stored: StoredColumn
    names: tuple[str, ...]


def _dtype_name(kind: pa.DataType) -> str:
    """Return the name of a type for a message; floating point types have that of their dtype, ``float64``."""
    return f"float{kind.bit_width}" if pa.types.is_floating(kind) else shown(kind)


def label_fault(name: str, column: pa.ChunkedArray) -> str | None:
    """Return why a column does not hold classes, or None if it does.

    Classes are text, booleans, non-negative integers, or lists of these, with at most 10,000 distinct values.

    Raises:
        InputError: the column cannot be stored at all.
    """
    flat = _flat(_stored(name, column).values)
    if pa.types.is_floating(flat.type):
        return f"labels must be text or integers, not {_dtype_name(column.type)}"
    if len(flat) and flat.type != TEXT:
        limits = pc.min_max(flat).as_py()
        if limits["min"] < 0 or limits["max"] >= 1 << 63:
            wrong = limits["min"] if limits["min"] < 0 else limits["max"]
            return f"the label {wrong} is negative or exceeds int64"
    if pc.count_distinct(flat).as_py() > MAX_CLASSES:
        return f"has more than {MAX_CLASSES} different labels, which is too many for classes"
    return None


def label_column(name: str, column: pa.ChunkedArray, given: Sequence[str] | None) -> LabelColumn:
    """Return the numbers of the classes in a column.

    Text is numbered in the order of the given class names, or in sorted order; booleans are the text
    ``false`` and ``true``; integers are class numbers. A column of lists holds several classes per row.

    Raises:
        InputError: the column does not hold classes, or holds empty text or a class that is not given.
    """
    fault = label_fault(name, column)
    if fault:
        raise InputError(f"column {name!r}: {fault}; name another column with label=, or rename this one")
    stored = _stored(name, column)
    flat, is_list = _flat(stored.values), bool(stored.feature.shape)
    names = tuple(given or ())
    if flat.type == TEXT:
        found = [to_text(value) for value in pc.unique(flat).to_pylist()]
        if "" in found:
            where = "" if is_list else f", row {pc.index(flat, pa.scalar(b'', TEXT)).as_py()}"
            raise InputError(f"column {name!r}{where}: is an empty string, which is not a class name")
        # as in arrays, but not in folders, a class may have no examples
        names = class_map({*found, *names}, given, f"column {name!r} has none of that name")
        flat = pc.index_in(flat, value_set=pa.array([to_bytes(each) for each in names], TEXT))
    elif given is not None and len(flat) and pc.max(flat).as_py() >= len(given):
        raise InputError(
            f"column {name!r}: the label {pc.max(flat).as_py()} is not one of the {len(given)} class names, "
            f"which are numbered from 0 to {len(given) - 1}"
        )
    numbers = flat.cast(pa.int64())
    values = relisted(stored.values, numbers) if is_list else numbers
    feature = Feature(name, "label", "int64", (None,) if is_list else ())
    without = len(names) - pc.count_distinct(numbers).as_py()
    warning = f"column {name!r}: {without} of the {len(names)} classes have no row" if without > 0 else None
    return LabelColumn(StoredColumn(values, feature, warning), names)


def split_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the name of each row's split, as ``TEXT``.

    Raises:
        InputError: the column is neither text nor integers, a value is missing or cannot be the name of a
            split, or there are too many different values.
    """
    stored = stored_column(name, column)
    if stored.feature.shape or stored.feature.kind not in ("bytes", "int"):
        raise InputError(
            f"column {name!r}: names of splits must be text or integers, not {_dtype_name(column.type)}"
        )
    is_text = stored.feature.kind == "bytes"
    texts = stored.values if is_text else stored.values.cast(pa.large_string()).cast(TEXT)
    names = [to_text(value) for value in pc.unique(texts).to_pylist()]
    if len(names) > _MAX_SPLITS:
        raise InputError(
            f"column {name!r}: names {len(names)} splits, more than {_MAX_SPLITS}; if it does not hold "
            f"splits, leave it out with drop={name!r}"
        )
    for each in names:
        fault = name_fault(each)
        if fault:
            row = pc.index(texts, pa.scalar(to_bytes(each), TEXT)).as_py()
            raise InputError(f"column {name!r}, row {row}: the split name {fault}")
    return texts


def splits_of(column: pa.ChunkedArray) -> dict[str, IntArray]:
    """Return the rows of each split that a staged column names, in the usual order of splits."""
    encoded = column.combine_chunks().dictionary_encode()
    names = [to_text(value) for value in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy()
    order = sorted(range(len(names)), key=lambda code: usual_order(names[code]))
    return {names[code]: np.flatnonzero(codes == code).astype(np.int64) for code in order}


def groups_of(name: str, column: pa.ChunkedArray) -> list[bytes]:
    """Return the group of each row: its value as text.

    Raises:
        InputError: the column holds lists, or a row has no value.
    """
    values = plain_column(name, column)
    if pa.types.is_large_list(values.type):
        raise InputError(f"group_by={name!r} is a column of lists; rows are grouped by single values")
    missing = pc.is_null(values, nan_is_null=True)
    texts = values if values.type == TEXT else values.cast(pa.large_string()).cast(TEXT)
    missing = pc.or_(missing, pc.fill_null(pc.equal(texts, pa.scalar(b"", TEXT)), True))
    if pc.any(missing).as_py():
        raise InputError(
            f"group_by={name!r}: {pc.sum(missing).as_py()} rows have no value in this column; fill them in, "
            "or group by another column"
        )
    groups: list[bytes] = texts.to_pylist()
    return groups


def _stored(name: str, column: pa.ChunkedArray) -> StoredColumn:
    """Return a column as it would be stored, booleans as text, since class names are text."""
    plain = plain_column(name, column)
    item = plain.type.value_type if pa.types.is_large_list(plain.type) else plain.type
    if item == pa.bool_():
        plain = plain.cast(pa.large_list(pa.string()) if plain.type != item else pa.string())
    return stored_column(name, plain)


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.list_flatten(column) if pa.types.is_large_list(column.type) else column
