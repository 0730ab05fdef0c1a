"""Several classes in a text of the label column, between separators."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.tables.column_roles import ColumnRoles
from tfshards.prep.sources.tables.features import TEXT, is_bytes_type, relisted, shown
from tfshards.prep.sources.tables.files import TableFile
from tfshards.schemas import InputError

_LABEL = "label"
# Usual separators. Names such as "crane, bird" have commas and blanks, too.
_USUAL, _IN_NAMES = "|;", ", "
# Lists and objects.
_JSON = re.compile(r"\[.*\]|\{.*\}", re.DOTALL)
_SHOWN = 60


def with_label_lists(found: TableFile, roles: ColumnRoles) -> tuple[TableFile, ColumnRoles, list[str]]:
    """Return a table whose label column holds lists, if a separator is declared; roles, and lines."""
    name = _LABEL if roles.label is None else roles.label
    separator, table = roles.label_separator, found.table
    is_text = name in table.column_names and is_bytes_type(_kind(table[name].type))
    if not is_text or separator == "":
        if separator:
            kind = shown(table[name].type) if name in table.column_names else "a column that the table lacks"
            raise InputError("label-separator-type", name=name, kind=kind)
        return found, roles, []
    cells = [to_text(value or b"").strip() for value in table[name].cast(TEXT).to_pylist()]
    if separator is None:
        filled = [cell for cell in cells if cell]
        if filled and all(map(_JSON.fullmatch, filled)):
            raise InputError("label-json", name=name, found=filled[0][:_SHOWN])
        return found, roles, [*_likely_separator(name, filled)]
    lists = [[part.strip() for part in cell.split(separator) if part.strip()] for cell in cells]
    texts = pa.array([to_bytes(item) for items in lists for item in items], TEXT)
    column = relisted(pa.chunked_array([texts]), np.array([len(items) for items in lists], np.int64))
    table = table.set_column(table.column_names.index(name), name, column)
    return replace(found, table=table), replace(roles, label=name), []


def _kind(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


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
