"""Read the new labels of examples from a CSV, TSV, JSON Lines or Parquet file with ``key`` and ``label``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.json_reader import load_json, shown
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import KEYS, read_whole

if TYPE_CHECKING:
    from tfshards.prep.sources.tables.files import TableFile

COLUMNS = ("key", "label")
_JSON_LINES = (".jsonl", ".ndjson")


def new_labels(labels: str | os.PathLike[str] | Mapping[str | bytes, str | int]) -> dict[bytes, str]:
    """Return the name of the new class, or its number as text, by key.

    Args:
        labels: file with the columns ``key`` and ``label``; or the labels by key.

    Raises:
        OptionsError: the suffix of the file is not supported, or a mapping holds something else.
        InputError: the file does not exist, lacks a column, has no rows, or gives a key two labels.
        OSError: the file cannot be read.
    """
    if isinstance(labels, Mapping):
        return _checked(labels)
    path = _table_path(labels)
    found: dict[bytes, str] = {}
    rows = _json_rows(path) if path.suffix.lower() in _JSON_LINES else _table_rows(path)
    for number, (key, label) in rows:
        name = to_bytes(_text(key, "key", number, path))
        value = _text(label, "label", number, path)
        if found.setdefault(name, value) != value:
            raise InputError(
                "label-repeated",
                path=path,
                number=number,
                name=to_text(name),
                found=value,
                found2=found[name],
            )
    if not found:
        raise InputError("labels-empty", path=path)
    return found


def _checked(labels: Mapping[str | bytes, str | int]) -> dict[bytes, str]:
    found = {}
    for key, label in labels.items():
        if not isinstance(key, (str, bytes)) or not isinstance(label, (str, int)) or isinstance(label, bool):
            raise OptionsError("labels-mapping", key=key, label=label)
        found[to_bytes(key) if isinstance(key, str) else key] = str(label)
    if not found:
        raise OptionsError("labels-none")
    return found


def _table_path(labels: str | os.PathLike[str]) -> AnyPath:
    # imported late, because Arrow takes a second
    from tfshards.prep.sources.tables.files import table_path

    return table_path(labels)


def _table_rows(path: AnyPath) -> Iterator[tuple[int, tuple[object, object]]]:
    from tfshards.prep.sources.tables.files import read_table

    table: TableFile = read_table(path, COLUMNS)
    _check_columns(table.table.column_names, path)
    columns = (table.table[name].to_pylist() for name in COLUMNS)
    return enumerate(zip(*columns, strict=True), 1)


def _json_rows(path: AnyPath) -> Iterator[tuple[int, tuple[object, object]]]:
    """Yield the rows of JSON Lines, in which a key may be any bytes, unlike for Arrow."""
    try:
        lines = read_whole(path, KEYS).split(b"\n")
    except OSError as error:
        raise InputError("unreadable", path=path, why=error.strerror) from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = load_json(line)
        except ValueError:
            raise InputError("labels-not-json", path=path, number=number, line=shown(to_text(line))) from None
        _check_columns(row if isinstance(row, dict) else (), path)
        yield number, (row["key"], row["label"])


def _check_columns(names: Iterable[str], path: AnyPath) -> None:
    held = [*names]
    for name in COLUMNS:
        if name not in held:
            raise InputError("labels-column", path=path, name=name, join=", ".join(map(repr, held)) or "none")


def _text(value: object, column: str, number: int, path: AnyPath) -> str:
    if isinstance(value, bytes):
        value = to_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value:
        raise InputError("label-type", path=path, number=number, column=column, found=value)
    return value
