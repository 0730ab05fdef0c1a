"""Several classes per row: text with separators, lists as text, and columns of one class each."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.tables.assigned_columns import listed_columns, other_columns
from tfshards.prep.sources.tables.column_roles import ColumnRoles
from tfshards.prep.sources.tables.features import (
    TEXT,
    is_bytes_type,
    plain_values,
    relisted,
    shown,
    without_missing,
)
from tfshards.prep.sources.tables.files import TableFile
from tfshards.schemas import InputError

# The separator of cells that hold lists as JSON or Python write them.
JSON = "json"
_LABEL = "label"
# Usual separators. Names such as "crane, bird" have commas and blanks, too.
_USUAL, _IN_NAMES = "|;", ", "
# A flat list of strings and integers: there are no other values that could be classes.
_ITEM = r"""(?:'[^'\\]*'|"(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|0|[1-9][0-9]{0,17})"""
_LIST = re.compile(rf"\s*\[\s*(?:{_ITEM}(?:\s*,\s*{_ITEM})*)?\s*\]\s*")
# Objects, or a list of them.
_JSON = re.compile(r"\s*(\[\s*)?\{.*\}[\]\s]*", re.DOTALL)
_SHOWN = 60


def one_hot_columns(names: Sequence[str], columns: ColumnRoles) -> list[str]:
    """Return the columns that hold one class each: those without another role that match a pattern."""
    return [
        name
        for name in other_columns(names, columns)
        if any(fnmatchcase(name, pattern) for pattern in columns.one_hot)
    ]


def with_label_lists(
    found: TableFile, roles: ColumnRoles, given: Sequence[str] | None
) -> tuple[TableFile, ColumnRoles, list[str]]:
    """Return a table whose label column holds lists, if its rows have several classes; roles, and lines.

    ``given`` are class names in label order, or None.
    """
    if roles.one_hot:
        return (*_with_one_hot(found, roles, given or ()), [])
    name = _LABEL if roles.label is None else roles.label
    separator, table = roles.label_separator, found.table
    is_text = name in table.column_names and is_bytes_type(_kind(table[name].type))
    if not is_text or separator == "":
        if separator:
            kind = shown(table[name].type) if name in table.column_names else "a column that the table lacks"
            raise InputError("label-separator-type", name=name, kind=kind)
        return found, roles, []
    cells = [to_text(value or b"").strip() for value in table[name].cast(TEXT).to_pylist()]
    lines = []
    if separator is None:
        filled = [cell for cell in cells if cell]
        if filled and all(map(_JSON.fullmatch, filled)):
            raise InputError("label-json", name=name, found=filled[0][:_SHOWN])
        if not filled or not all(map(_LIST.fullmatch, filled)):
            return found, roles, [*_likely_separator(name, filled)]
        separator = JSON
        lines = [
            f"column {name!r} holds lists as text, such as {filled[0][:_SHOWN]!r}, so that a row has several "
            "classes, as with label_separator='json'; label_separator='' takes each text for one class"
        ]
    lists = [_items(name, cell, separator) for cell in cells]
    table = table.set_column(table.column_names.index(name), name, _as_column(name, lists))
    return replace(found, table=table), replace(roles, label=name, label_separator=separator), lines


def _kind(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _items(name: str, cell: str, separator: str) -> list[str] | list[int]:
    """Return the classes in a cell; an empty one has none."""
    if separator != JSON:
        return [part.strip() for part in cell.split(separator) if part.strip()]
    if not cell:
        return []
    if not _LIST.fullmatch(cell):
        raise InputError("label-not-a-list", name=name, found=cell[:_SHOWN])
    try:
        items: list[str] | list[int] = json.loads(cell)
    except ValueError:
        items = ast.literal_eval(cell.strip())
    return items


def _as_column(name: str, lists: Sequence[Sequence[str | int]]) -> pa.ChunkedArray:
    flat = [item for items in lists for item in items]
    lengths = np.array([len(items) for items in lists], np.int64)
    are_numbers = [isinstance(item, int) for item in flat]
    if any(are_numbers) and all(are_numbers):
        return relisted(pa.chunked_array([pa.array(flat, pa.int64())]), lengths)
    try:
        texts = [to_bytes(item) for item in flat if isinstance(item, str)]
    except UnicodeEncodeError:
        raise InputError("label-column-fault", name=name, fault="holds text that is not Unicode") from None
    if any(are_numbers):
        raise InputError("label-column-fault", name=name, fault="holds lists of both text and integers")
    return relisted(pa.chunked_array([pa.array(texts, TEXT)]), lengths)


def _likely_separator(name: str, cells: Sequence[str]) -> Iterator[str]:
    """Yield a warning if cells seem to hold several classes: most do, or their parts are other cells."""
    for separator in _USUAL + _IN_NAMES:
        having = [cell for cell in cells if separator in cell]
        parts = {part.strip() for cell in having for part in cell.split(separator)} - {""}
        singles = {*cells}.difference(having)
        is_usual = 2 * len(having) > len(cells) or not parts.isdisjoint(singles)
        if having and ((separator in _USUAL and is_usual) or len(parts | singles) < len({*cells})):
            yield (
                f"column {name!r}: texts such as {having[0][:_SHOWN]!r} are one class each; if they are "
                f"several, label_separator={separator!r} separates them, and label_separator='' states that "
                "they are not"
            )
            return


def _with_one_hot(
    found: TableFile, roles: ColumnRoles, given: Sequence[str]
) -> tuple[TableFile, ColumnRoles]:
    """Return a table with a column ``label`` in place of the columns of one class each."""
    table, names = found.table, one_hot_columns(found.table.column_names, roles)
    for pattern in roles.one_hot:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InputError("one-hot-none", pattern=pattern, names=listed_columns(table.column_names))
    others = [name for name in table.column_names if name not in names]
    if _LABEL in others and _LABEL not in roles.drop:
        raise InputError("one-hot-label", names=listed_columns(names))
    classes = dict(zip(names, _without_prefix(names, roles.one_hot), strict=True))
    # so that the numbers of a row ascend, whatever the order of the columns
    number = {name: index for index, name in enumerate(given)}
    names = sorted(names, key=lambda name: number.get(classes[name], len(given)))
    matrix = np.stack([_truths(name, table[name]) for name in names], axis=1)
    if {-1, 0} <= {*np.unique(matrix).tolist()}:
        raise InputError("one-hot-mixed", names=listed_columns(names))
    rows, numbers = np.nonzero(matrix == 1)
    lengths = np.bincount(rows, minlength=table.num_rows)
    label = relisted(pa.chunked_array([pa.array(numbers, pa.int64())]), lengths)
    table = table.select([name for name in others if name != _LABEL]).append_column(_LABEL, label)
    class_names = {**found.class_names, _LABEL: tuple(classes[name] for name in names)}
    drop = tuple(name for name in roles.drop if name != _LABEL)
    roles = replace(roles, label=_LABEL, one_hot=(), drop=drop)
    return replace(found, table=table, class_names=class_names), roles


def _truths(name: str, column: pa.ChunkedArray) -> npt.NDArray[np.int8]:
    """Return the values of a column, each of which is 0, 1 or -1."""
    if pa.types.is_nested(column.type):
        raise InputError("one-hot-values", name=name, found=shown(column.type))
    values = without_missing(name, plain_values(name, column, column.type), is_list=False, fill="0")
    if values.type == TEXT:
        raise InputError("one-hot-values", name=name, found=to_text(values[0].as_py())[:_SHOWN])
    numbers = values.to_numpy().astype(np.float64)
    wrong = numbers[~np.isin(numbers, (-1, 0, 1))]
    if len(wrong):
        raise InputError("one-hot-values", name=name, found=f"{wrong[0]:g}")
    truths: npt.NDArray[np.int8] = numbers.astype(np.int8)
    return truths


def _without_prefix(names: Sequence[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """Return names without the text before the first wildcard of their pattern, unless two become equal."""
    short = []
    for name in names:
        pattern = next(each for each in patterns if fnmatchcase(name, each))
        literal = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
        short.append(name.removeprefix(literal) if literal != pattern else name)
    return tuple(short if all(short) and len(set(short)) == len(short) else names)
