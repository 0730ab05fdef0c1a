"""Paths of images that a template such as ``train/{id}.jpg`` makes from the columns of a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import Formatter

import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.tables.assigned_columns import check_column, is_template
from tfshards.prep.sources.tables.column_roles import ColumnRoles
from tfshards.prep.sources.tables.features import TEXT, is_bytes_type
from tfshards.schemas import InputError

# The number of digits of an integer, as in {id:06d}.
_DIGITS = re.compile(r"0?[0-9]{1,2}d?")


def with_paths(table: pa.Table, columns: ColumnRoles, path: str) -> pa.Table:
    """Return a table with a column of paths, named like the template, for each template in the roles."""
    for template in (*columns.images, *columns.masks):
        if is_template(template) and "*" in template:
            raise InputError("template-pattern", template=template)
        if is_template(template) and template not in table.column_names:
            table = table.append_column(template, _paths(table, template, path))
    return table


def _paths(table: pa.Table, template: str, path: str) -> pa.Array:
    try:
        parts = [*Formatter().parse(template)]
    except ValueError as error:
        raise InputError("template-form", template=template, why=str(error)) from None
    pieces: list[Sequence[bytes]] = []
    for literal, name, digits, conversion in parts:
        pieces.append([literal.encode("utf-8", "surrogateescape")] * table.num_rows)
        if name is not None:
            check_column(name, table.column_names, path)
            if conversion or (digits and not _DIGITS.fullmatch(digits)):
                raise InputError(
                    "template-form", template=template, why="only digits as in {id:06d} may follow"
                )
            pieces.append(_texts(table[name], name, template, digits or ""))
    return pa.array([b"".join(row) for row in zip(*pieces, strict=True)], TEXT)


def _texts(column: pa.ChunkedArray, name: str, template: str, digits: str) -> list[bytes]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    is_integer = pa.types.is_integer(column.type)
    if not is_integer and (digits or not is_bytes_type(column.type)):
        raise InputError("template-column", template=template, name=name, kind=str(column.type)[:60])
    values = column if is_integer else column.cast(TEXT)
    lacking = values.null_count if is_integer else pc.sum(pc.equal(values.fill_null(b""), b"")).as_py()
    if lacking:
        raise InputError(
            "column-missing-values", name=name, null_count=lacking, where="of which paths are made"
        )
    found = values.to_pylist()
    return [format(value, digits).encode() for value in found] if is_integer else found
