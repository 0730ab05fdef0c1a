"""Join a table with others by a column that both have, and make lists of rows that belong together."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.keys import to_text
from tfshards.prep.sources.tables.assigned_columns import check_column, listed_columns
from tfshards.prep.sources.tables.features import TEXT, is_bytes_type, is_image_struct
from tfshards.prep.sources.tables.files import TYPED, TableFile, read_table, table_path
from tfshards.prep.sources.tables.row_options import Join, RowOptions
from tfshards.schemas import InputError
from tfshards.schemas.errors import counted
from tfshards.schemas.index import IntArray
from tfshards.schemas.storage import AnyPath

_SHOWN = 100


def joined_and_grouped(
    found: TableFile,
    folder: AnyPath,
    rows: RowOptions,
    single: Collection[str],
    images: Collection[str],
) -> TableFile:
    """Return a table with the columns of the tables that are joined to it, and its rows grouped into lists.

    Args:
        found: the table.
        folder: the folder of the table, to which the paths of joined tables are relative.
        rows: which tables are joined, and which rows are grouped.
        single: columns that stay single values if rows are grouped, in addition to those in ``rows``.
        images: columns of images among these, which are bytes, and become lists if rows of a group differ.
    """
    joins = [Join.of(text) for text in rows.join]
    group = rows.one_row_per[0] if rows.one_row_per else None
    for join in joins:
        if join.key != group:
            found = _joined(found, join, folder, rows, images)
    if group is not None:
        found = _grouped(found, group, {*rows.one_row_per, *single}, {*images} - {*rows.one_row_per})
    for join in joins:
        if join.key == group:
            found = _joined(found, join, folder, rows, images)
    return found


def _joined(
    found: TableFile, join: Join, folder: AnyPath, rows: RowOptions, text_columns: Collection[str]
) -> TableFile:
    path = table_path(str(folder / join.path), is_text=rows.delimiter is not None)
    is_text = path.suffix.lower() not in TYPED
    form = rows.joined_form(join) if is_text or join.names else None
    other = read_table(path, text_columns, form)
    table = found.table
    keys, known = _keys("the table", table, join.key), _keys(str(path), other.table, join.key)
    added = [name for name in other.table.column_names if name != join.key]
    for name in added:
        if name in table.column_names:
            raise InputError("join-collision", path=path, name=name)
    counts = pc.value_counts(known).field("counts").to_numpy()
    repeated, without = int((counts > 1).sum()), known.null_count
    if repeated or without:
        raise InputError("join-keys-repeated", path=path, name=join.key, repeated=repeated, without=without)
    numbers = pc.index_in(keys, value_set=known)
    if numbers.null_count:
        lacking = keys.filter(pc.is_null(numbers))
        first = next((to_text(value) for value in lacking.to_pylist() if value is not None), "")
        raise InputError(
            "join-keys-missing", path=path, name=join.key, num_rows=len(lacking), first=first[:_SHOWN]
        )
    for name in added:
        table = table.append_column(name, other.table[name].take(numbers))
    digest = hashlib.sha256(f"{found.digest} {other.digest}".encode("ascii")).hexdigest()
    names = {name: classes for name, classes in other.class_names.items() if name in added}
    return replace(
        found,
        table=table,
        digest=f"sha256:{digest}",
        warnings=(*found.warnings, *other.warnings),
        class_names={**found.class_names, **names},
    )


def _keys(path: str, table: pa.Table, name: str) -> pa.Array:
    """Return the values of a column by which rows belong together, as ``TEXT``."""
    check_column(name, table.column_names, path)
    column = table[name].combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_integer(column.type) and not is_bytes_type(column.type):
        raise InputError("join-key-type", name=name, kind=str(column.type)[:_SHOWN])
    # whether a column of numbers was read as text depends on the values in each table
    return column.cast(pa.large_string() if pa.types.is_integer(column.type) else TEXT).cast(TEXT)


def _grouped(found: TableFile, by: str, single: Collection[str], may_differ: Collection[str]) -> TableFile:
    """Return a table with one row for each value of the column ``by``, in the order of their first rows."""
    table = found.table
    keys = _keys("the table", table, by)
    for name in single:
        check_column(name, table.column_names, "the table")
    if keys.null_count:
        raise InputError("group-no-value", name=by, null_count=keys.null_count)
    groups = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups))
    starts = np.concatenate([[0], ends[:-1]])
    columns, lists = {}, []
    for name in table.column_names:
        values = table[name].take(order)
        if name in single or is_image_struct(values.type):
            differs = _differing(values.combine_chunks(), starts, np.sort(groups))
            if len(differs) and name not in may_differ and not is_image_struct(values.type):
                first = to_text(keys[int(order[starts[differs[0]]])].as_py())[:_SHOWN]
                raise InputError("group-differs", name=name, by=by, num_groups=len(differs), first=first)
            if not len(differs):
                columns[name] = values.take(starts)
                continue
        lists.append(name)
        offsets = pa.array(np.concatenate([[0], ends]), pa.int64())
        columns[name] = pa.chunked_array([pa.LargeListArray.from_arrays(offsets, values.combine_chunks())])
    kept = listed_columns([name for name in columns if name not in lists])
    line = (
        f"{counted(len(groups), 'row')} make {counted(len(ends), 'example')}, one for each value "
        f"of {by!r}; single values: {kept}; lists: {listed_columns(lists) or 'none'}"
    )
    return replace(found, table=pa.table(columns), warnings=(*found.warnings, line), lists=frozenset(lists))


def _differing(values: pa.Array, starts: IntArray, groups: IntArray) -> IntArray:
    """Return the groups whose values are not all equal; the values are in the order of the groups."""
    try:
        codes = values.dictionary_encode().indices.fill_null(-1).to_numpy()
    except pa.ArrowNotImplementedError:
        number: dict[str, int] = {}
        codes = np.array(
            [number.setdefault(repr(each), len(number)) for each in values.to_pylist()], np.int64
        )
    found: IntArray = np.unique(groups[codes != codes[starts][groups]])
    return found
