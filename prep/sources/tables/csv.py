"""Read CSV and TSV files with Arrow; a column is read as numbers only if their text can be restored."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from tfshards.schemas.storage.untrusted import open_regular

# Size of the block that a thread reads, which is also the maximum length of a row.
BLOCK_BYTES = 16 << 20
# Numbers such as 007 are identifiers, and 0x10 is not decimal.
_NO_NUMBER = r"^\s*[+-]?0[0-9xX]"
_LONG = r"^\s*[+-]?[0-9]{16,}\s*$"


class CsvError(Exception):
    """The file is damaged in a way that Arrow does not notice."""


def read_csv(path: Path, delimiter: str, text_columns: Collection[str]) -> tuple[pa.Table, list[str]]:
    """Return the rows of a CSV file, and a warning for each column of numbers that is kept as text.

    Args:
        path: the file; its first line holds the names of the columns.
        delimiter: character between the values of a row.
        text_columns: columns to read as bytes, in addition to those whose names end in ``file_name``.

    Raises:
        CsvError: a quote is not closed.
        pa.ArrowException: Arrow cannot read the file.
    """
    names = _header(path, delimiter)
    # paths may look like numbers, and need not be UTF-8
    types = {name: pa.binary() for name in names if name in text_columns or name.endswith("file_name")}
    table = _parsed(path, delimiter, types)
    _check_end(path, table)
    # Arrow would convert text that looks like dates or times
    dated = {field.name: pa.string() for field in table.schema if undated(field.type) != field.type}
    changed = _changed_numbers(path, delimiter, table)
    if dated or changed:
        table = _parsed(path, delimiter, {**types, **dated, **dict.fromkeys(changed, pa.string())})
    return table, [
        f"column {name!r} is stored as text: the number {text} could not be restored as it is written"
        for name, text in changed.items()
    ]


def undated(kind: pa.DataType) -> pa.DataType:
    """Return a type with text instead of each date, time and duration, also in lists and structs."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, undated(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(undated(kind.value_type))
    return pa.string() if pa.types.is_temporal(kind) else kind


def _parsed(
    path: Path, delimiter: str, types: Mapping[str, pa.DataType], only: Sequence[str] = ()
) -> pa.Table:
    return pa.csv.read_csv(
        path,
        read_options=pa.csv.ReadOptions(block_size=BLOCK_BYTES),
        parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(column_types=types, include_columns=list(only)),
    )


def _header(path: Path, delimiter: str) -> list[str]:
    with io.TextIOWrapper(open_regular(path), "utf-8-sig", "surrogateescape", newline="") as file:
        # in parts, since a line may be as long as the file
        return next(csv.reader(iter(partial(file.readline, BLOCK_BYTES), ""), delimiter=delimiter), [])


def _changed_numbers(path: Path, delimiter: str, table: pa.Table) -> dict[str, str]:
    """Return each column with a number whose text could not be restored, and that text."""
    kinds = {field.name: field.type for field in table.schema}
    numbers = [name for name in kinds if kinds[name] in (pa.int64(), pa.float64())]
    if not numbers or len(kinds) < len(table.column_names):
        # no numbers, or a repeated column, which is reported later
        return {}
    written = _parsed(path, delimiter, dict.fromkeys(numbers, pa.binary()), numbers)
    changed = {}
    for name in numbers:
        texts = written[name]
        found = texts.filter(pc.match_substring_regex(texts, _NO_NUMBER)).slice(0, 1).to_pylist()
        if not found and kinds[name] == pa.float64():
            long = texts.filter(pc.match_substring_regex(texts, _LONG)).to_pylist()
            found = [text for text in long if _is_rounded(text)][:1]
        if found:
            changed[name] = found[0].decode().strip()
    return changed


def _is_rounded(text: bytes) -> bool:
    # beyond float64, and int() accepts at most 4300 digits
    return len(text) > 300 or int(float(text)) != int(text)


def _check_end(path: Path, table: pa.Table) -> None:
    """Raise CsvError if the last value extends to the end of the file, as it does after an unclosed quote."""
    if not table.num_rows or not table.num_columns:
        return
    last = table.column(table.num_columns - 1)[-1].as_py()
    text = last.encode() if isinstance(last, str) else last
    if not isinstance(text, bytes) or b"\n" not in text:
        return
    with open_regular(path) as file:
        file.seek(-min(path.stat().st_size, 1 << 10), 2)
        if not file.read().rstrip(b"\r\n").endswith(b'"'):
            raise CsvError("a quote is not closed: the last value extends over several lines")
