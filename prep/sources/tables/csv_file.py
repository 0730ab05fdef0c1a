"""Read text tables: a header, and rows of values between delimiters; Arrow finds the types."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.sources.keys import to_bytes
from tfshards.schemas import InputError
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import open_regular

# Size of the block that a thread reads, which is also the maximum length of a row.
BLOCK_BYTES = 16 << 20
# Numbers such as 007 are identifiers, and 0x10 is not decimal.
_NO_NUMBER = r"^\s*[+-]?0[0-9xX]"
_LONG = r"^\s*[+-]?[0-9]{16,}\s*$"

_OTHER_SEPARATORS = ";|\t"
_SHOWN = 60

LONG_ROW = f"a row is longer than {BLOCK_BYTES >> 20} MiB"


def read_csv(
    path: Path, delimiter: str, text_columns: Collection[str], *, shown: AnyPath
) -> tuple[pa.Table, list[str]]:
    """Return the rows of a text table, and a warning for each column of numbers that is kept as text.

    Raises:
        InputError: the header of the table, which messages call ``shown``, is a row of values, or has other
            separators than ``delimiter``.
    """
    with io.TextIOWrapper(open_regular(path), "utf-8-sig", "surrogateescape", newline="") as file:
        # in parts, since a line may be as long as the file
        parts = iter(partial(file.readline, BLOCK_BYTES), "")
        names = next(csv.reader(parts, delimiter=delimiter), [])
    for name in names:
        if os.path.splitext(to_bytes(name))[1].lower() in SUFFIXES:
            raise InputError("table-no-header", name=name)
    mark = next((mark for mark in _OTHER_SEPARATORS if any(mark in name for name in names)), None)
    # paths may look like numbers, and need not be UTF-8
    types = {name: pa.binary() for name in names if name in text_columns or name.endswith("file_name")}
    table = None
    if mark is None:
        table = _parsed(path, delimiter, types)
    elif len(names) > 1:
        # names may hold such a mark, too
        with suppress(pa.ArrowInvalid):
            table = _parsed(path, delimiter, types)
    if table is None:
        header = delimiter.join(names)[:_SHOWN]
        raise InputError("table-separators", path=str(shown), header=header, mark=mark)
    _check_end(path, table)
    # Arrow would convert text that looks like dates or times
    text = {field.name: pa.string() for field in table.schema if undated(field.type) != field.type}
    warnings = []
    for name, number in _changed_numbers(path, delimiter, table):
        text[name] = pa.string()
        warnings.append(f"column {name!r} is stored as text: the number {number} could not be restored")
    return _parsed(path, delimiter, {**types, **text}) if text else table, warnings


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


def _changed_numbers(path: Path, delimiter: str, table: pa.Table) -> Iterator[tuple[str, str]]:
    """Yield each column with a number whose text could not be restored, and that text."""
    kinds = {field.name: field.type for field in table.schema}
    numbers = [name for name in kinds if kinds[name] in (pa.int64(), pa.float64())]
    if not numbers or len(kinds) < len(table.column_names):
        # no numbers, or a repeated column, which is reported later
        return
    written = _parsed(path, delimiter, dict.fromkeys(numbers, pa.binary()), numbers)
    for name in numbers:
        texts = written[name]
        found = texts.filter(pc.match_substring_regex(texts, _NO_NUMBER)).slice(0, 1).to_pylist()
        if not found and kinds[name] == pa.float64():
            long = texts.filter(pc.match_substring_regex(texts, _LONG)).to_pylist()
            # beyond float64, and int() accepts at most 4300 digits
            found = [text for text in long if len(text) > 300 or int(float(text)) != int(text)]
        if found:
            yield name, found[0].decode().strip()


def _check_end(path: Path, table: pa.Table) -> None:
    """Raise ArrowInvalid if the last value extends to the end of the file, as after an unclosed quote."""
    if not table.num_rows or not table.num_columns:
        return
    last = table.column(table.num_columns - 1)[-1].as_py()
    text = last.encode() if isinstance(last, str) else last
    if isinstance(text, bytes) and b"\n" in text:
        with open_regular(path) as file:
            file.seek(-min(path.stat().st_size, 1 << 10), 2)
            if not file.read().rstrip(b"\r\n").endswith(b'"'):
                raise pa.ArrowInvalid("a quote is not closed: the last value extends over several lines")
