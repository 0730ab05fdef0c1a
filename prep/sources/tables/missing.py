"""Missing values of columns: filled with a declared value, or their rows rejected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.sources.tables.assigned_columns import check_column, single_columns
from tfshards.prep.sources.tables.column_roles import ColumnRoles
from tfshards.prep.sources.tables.features import TEXT, is_bytes_type, relisted, shown, unlisted
from tfshards.prep.sources.tables.files import TableFile
from tfshards.schemas import InputError
from tfshards.schemas.errors import counted

REJECT, NO_CLASS = "reject", "-1"


def with_missing(found: TableFile, roles: ColumnRoles, path: str) -> tuple[TableFile, list[str] | None]:
    """Return a table without the missing values that are declared, and the column that each row lacks.

    These are the names of columns whose rows are rejected, empty for rows that lack none; None if no row is
    rejected. Rejected rows have values of other rows, so that they name no new classes.
    """
    lines, lacking = [], np.full(found.table.num_rows, "", object)
    for name, value in roles.missing.items():
        table = found.table
        is_label = name == ("label" if roles.label is None else roles.label)
        if name not in table.column_names and is_label and value == NO_CLASS:
            # a table of examples without labels, such as a test set
            table = table.append_column(name, pa.nulls(table.num_rows, pa.int64()))
        check_column(name, table.column_names, path)
        if name in single_columns([name], replace(roles, split="")):
            raise InputError("missing-image", name=name)
        column, without = table[name], _without(table[name])
        if value == REJECT and without.all():
            raise InputError("column-all-missing", name=name)
        if value == REJECT:
            rows = np.where(without, np.argmin(without), np.arange(len(without)))
            column = column.take(pa.array(rows))
            lacking[without & (lacking == "")] = name
        else:
            column = _filled(name, column, value, is_label=is_label)
            if without.any():
                rows_without = counted(int(without.sum()), "row")
                lines.append(f"column {name!r}: {rows_without} without a value: {value}")
        found = replace(found, table=table.set_column(table.column_names.index(name), name, column))
    found = replace(found, warnings=(*found.warnings, *lines))
    return found, lacking.tolist() if (lacking != "").any() else None


def _without(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return whether each row lacks its value, or one in its list; empty text is missing, NaN is not."""
    flat, lengths = unlisted(column)
    if lengths is None:
        found: npt.NDArray[np.bool_] = _lacks(flat).to_numpy()
        return found
    rows = np.repeat(np.arange(len(lengths)), lengths)
    lists: npt.NDArray[np.bool_] = pc.is_null(column).to_numpy()
    return lists | (np.bincount(rows[_without(flat)], minlength=len(lengths)) > 0)


def _lacks(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if not is_bytes_type(values.type):
        return pc.is_null(values)
    return pc.equal(pc.fill_null(values.cast(TEXT), b""), b"")


def _filled(name: str, column: pa.ChunkedArray, value: str, *, is_label: bool) -> pa.ChunkedArray:
    """Return a column with ``value`` for what is missing; a class of text stays missing for no class."""
    flat, lengths = unlisted(column)
    if lengths is not None:
        return relisted(_filled(name, flat, value, is_label=False), lengths)
    if pa.types.is_dictionary(flat.type):
        flat = flat.cast(flat.type.value_type)
    if is_label and value == NO_CLASS:
        flat = _as_classes(flat)
    if pa.types.is_integer(flat.type) and value.lower() == "nan":
        flat = flat.cast(pa.float64())
    if is_bytes_type(flat.type):
        no_class = is_label and value == NO_CLASS
        fill = pa.scalar(None if no_class else to_bytes(value), TEXT)
        return pc.if_else(_lacks(flat), fill, flat.cast(TEXT))
    try:
        kind = pa.float32() if pa.types.is_float16(flat.type) else flat.type
        return pc.fill_null(flat, pa.scalar(value, pa.string()).cast(kind).cast(flat.type))
    except pa.ArrowException:
        raise InputError("missing-value", name=name, found=value, kind=shown(column.type)) from None


def _as_classes(flat: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return labels in a type that can hold their absence: booleans as text, others as int64 if possible."""
    if pa.types.is_boolean(flat.type):
        return flat.cast(pa.string())
    try:
        return flat if is_bytes_type(flat.type) else flat.cast(pa.int64())
    except pa.ArrowException:
        return flat
