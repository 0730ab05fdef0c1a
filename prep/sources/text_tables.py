"""Text tables: CSV, TSV and JSON Lines as columns, typed by one rule that does not depend on Arrow."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.sources.classes import repeated
from tfshards.prep.sources.features import is_list_type
from tfshards.prep.sources.fetching import unreadable, without_mark
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.sources.roles import check_no_repeats
from tfshards.schemas import InputError
from tfshards.schemas.errors import size
from tfshards.schemas.json_reader import shown
from tfshards.schemas.storage import AnyPath

JSON_SUFFIXES = (".jsonl", ".ndjson")
# Characters of the longest line, and of the longest value.
_LONGEST = 64 << 20
# Rows that are turned into columns at a time, few enough that collecting garbage does not slow them down.
_BATCH_ROWS = 256
# Levels of lists and objects in a line of JSON.
_DEEPEST = 64
_INTEGERS = range(-(1 << 63), 1 << 63)
# Values of a column that are parsed at a time.
_PARSED = 1 << 16
_LOOKED_AT = 64
# What a byte becomes that is not UTF-8.
_LONE = re.compile("[\udc80-\udcff]")
_LINES_OF_JSON = "JSON Lines have one object per line, without commas between them"


# Some rows of a file: their numbers (in JSON those of their lines), and their values by column.
_Batch: TypeAlias = tuple[Sequence[int], dict[str, Sequence[Any]]]


def read_text_tables(
    paths: Sequence[AnyPath], dropped: Collection[str]
) -> tuple[pa.Table, list[str], list[int], list[str]]:
    """Return rows of CSV, TSV or JSON Lines files, all names, the number of rows by file, and warnings.

    Args:
        paths: files of one suffix.
        dropped: columns whose values are left out.

    Raises:
        InputError: a file cannot be read, or the values of a column have no exact type.
    """
    is_json = paths[0].suffix.lower() in JSON_SUFFIXES
    tables: list[pa.Table] = []
    names: dict[str, None] = {}
    lengths = [0] * len(paths)
    for number, path in enumerate(paths):
        for lines, columns in (_json_batches if is_json else _csv_batches)(path):
            if not is_json:
                check_same_columns(path, columns, paths[0], names or columns)
            names |= dict.fromkeys(columns)
            kept = {name: values for name, values in columns.items() if name not in dropped}
            arrays = (
                _json_values(path, lines, *column) if is_json else pa.array(column[1], pa.large_string())
                for column in kept.items()
            )
            tables.append(pa.table([*arrays], [*kept]))
            lengths[number] += len(lines)
    if not names:
        raise InputError(f"{paths[0]} has no rows; there is nothing to build", code="no-inputs")
    try:
        table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except pa.ArrowException as error:
        fault = str(error).splitlines()[0]
        raise InputError(f"{', '.join(map(str, paths))}: {fault}; write one type in all rows") from None
    if table.num_columns and table.num_rows < sum(lengths):
        # Arrow does not count rows without columns
        where, known = ", ".join(map(str, paths)), ", ".join(table.column_names)
        raise InputError(f"{where}: some rows have none of the columns {known}; remove them")
    warnings: list[str] = []
    for number, name in enumerate(table.column_names if not is_json else ()):
        column, of_column = typed(name, table[name])
        table = table.set_column(number, name, column)
        warnings += of_column
    return table, [*names], lengths, warnings


def _json_values(path: AnyPath, lines: Sequence[int], name: str, values: Sequence[Any]) -> pa.Array:
    """Return values of JSON, whose types agree, as Arrow has them; integers and fractions become float64."""
    found, fault = _arrow_values(values)
    if not fault:
        return found
    first = next(n for n in range(len(values)) if _arrow_values(values[: n + 1])[1])
    raise InputError(
        f"{path}:{lines[first]}: column {name!r} is {shown(values[first])}, of another type "
        f"than in the lines before, or beyond 64 bits: {fault}; write one type, and large numbers as text"
    )


def _arrow_values(values: Sequence[Any]) -> tuple[pa.Array | None, str]:
    """Return the values, or why they have no type."""
    try:
        found = pa.array(values)
    except (pa.ArrowException, TypeError, OverflowError, UnicodeEncodeError) as error:
        return None, str(error).splitlines()[0]
    return found, _number_fault(values, found.type)


def _number_fault(values: Sequence[Any], kind: pa.DataType) -> str:
    """Return why fractions are not exact: Arrow takes ``true`` for 1.0, and JSON a large number for inf."""
    if pa.types.is_floating(kind):
        is_large = math.inf in values or -math.inf in values
        return "truth values and numbers" if bool in {*map(type, values)} else "infinite" * is_large
    if is_list_type(kind):
        return _number_fault([*chain.from_iterable(filter(None, values))], kind.value_type)
    if pa.types.is_struct(kind):
        given = [*filter(None, values)]
        faults = (_number_fault([each.get(field.name) for each in given], field.type) for field in kind)
        return next(filter(None, faults), "")
    return ""


def _csv_batches(path: AnyPath) -> Iterator[_Batch]:
    """Yield the rows of a CSV or TSV file, some at a time."""
    rows = _csv_rows(path)
    names = next(rows, [])
    while batch := [*islice(rows, _BATCH_ROWS)]:
        yield range(len(batch)), dict(zip(names, zip(*batch, strict=True), strict=True))


def _csv_rows(path: AnyPath) -> Iterator[list[str]]:
    """Yield the header of a CSV or TSV file, and its rows, which have as many values."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    csv.field_size_limit(_LONGEST)
    reader = csv.reader(_lines(path, newline=""), delimiter=delimiter, strict=True)
    names: list[str] = []
    try:
        for row in filter(None, reader):
            if not names:
                names = row
                _check_header(path, names)
            if len(row) != len(names):
                where = f"{path}:{reader.line_num}"
                raise InputError(f"{where}: {len(row)} values, but the header has {len(names)} columns")
            yield row
    except csv.Error as error:
        hint = "; a quote is not closed" if "unexpected end" in str(error) else ""
        raise InputError(f"{path}:{reader.line_num}: {error}{hint}") from None


def _check_header(path: AnyPath, names: Sequence[str]) -> None:
    check_no_repeats(names, path)
    for name in names:
        if os.path.splitext(to_bytes(name))[1].lower() in SUFFIXES:
            raise InputError(f"the first row names an image, {name!r}; add a header of column names")
    # names may hold these marks, too
    for mark in {*";|\t,"} & {*names[0]} if len(names) == 1 else ():
        raise InputError(
            f"{path}: {mark!r} seems to separate the values; .csv files need commas and .tsv files tabs: "
            f"pandas.read_csv({str(path)!r}, sep={mark!r}).to_csv('commas.csv', index=False)"
        )


def check_same_columns(
    path: AnyPath, names: Collection[str], first: AnyPath, others: Collection[str]
) -> None:
    """Raise InputError unless a file has the columns that the first one has, in any order."""
    for name in sorted({*names} ^ {*others}):
        lacks, has = (first, path) if name in names else (path, first)
        raise InputError(f"{lacks} has no column {name!r}, which {has} has; build them as two datasets")


def typed(name: str, texts: pa.ChunkedArray) -> tuple[pa.ChunkedArray, list[str]]:
    """Return the values of a column of text, and a warning if it holds numbers, but is kept as text.

    A column is int64 or float64 only if each number would be written back as it is by Python's ``str`` or
    ``repr``, and bool only if each is ``true`` or ``false``. An empty text is null, except among texts.
    """
    if not pc.any(pc.not_equal(texts, "")).as_py():
        return texts, []
    for parse, kind in _TYPES:
        try:
            return _parsed(texts, parse, kind), []
        except (KeyError, ValueError) as error:
            fault = error
    with suppress(ValueError):
        _parsed(texts, float, pa.float64())
        return texts, [f"column {name!r} is stored as text, since {fault} would not be written back as it is"]
    return texts, []


def _parsed(texts: pa.ChunkedArray, parse: Callable[[str], object], kind: pa.DataType) -> pa.ChunkedArray:
    """Return what each text that is not empty is parsed as, or raise KeyError or ValueError."""
    slices = (texts.slice(start, _PARSED).to_pylist() for start in range(0, len(texts), _PARSED))
    return pa.chunked_array(
        [pa.array([parse(text) if text else None for text in part], kind) for part in slices], kind
    )


def _integer(text: str) -> int:
    number = int(text)
    if str(number) != text or number not in _INTEGERS:
        raise ValueError
    return number


def _number(text: str) -> float:
    """Return a finite number as Python writes it, or an integer that is not rounded."""
    number = float(text)
    with suppress(ValueError):
        if (repr(number) == text and math.isfinite(number)) or _integer(text) == number:
            return number
    raise ValueError(repr(text))


_TYPES = (
    ({"true": True, "false": False}.__getitem__, pa.bool_()),
    (_integer, pa.int64()),
    (_number, pa.float64()),
)


def _json_batches(path: AnyPath) -> Iterator[_Batch]:
    """Yield the rows of a JSON Lines file, some at a time; a row that lacks a name has None."""
    rows = _json_rows(path)
    while batch := [*islice(rows, _BATCH_ROWS)]:
        lines, objects = zip(*batch, strict=True)
        names = dict.fromkeys(chain.from_iterable(objects))
        yield lines, {name: [row.get(name) for row in objects] for name in names}


def _json_rows(path: AnyPath) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each line that is not empty, and its object."""
    for number, text in enumerate(_lines(path, newline="\n"), 1):
        line, fault = text.strip(" \t\r\n"), ""
        if not line:
            continue
        try:
            row, end = _decode(line)
            if end < len(line) or not isinstance(row, dict):
                fault = f": more than one object, or none; {_LINES_OF_JSON}"
            elif len(line) > 2 * _DEEPEST and line.count("[") + line.count("{") > _DEEPEST < _depth(row):
                raise RecursionError
        except json.JSONDecodeError as error:
            fault = f", character {error.pos + 1}: {error.msg}; {_LINES_OF_JSON}"
        except RecursionError:
            fault = f": lists and objects in {_DEEPEST} levels at most"
        except ValueError as error:
            fault = f": {error}"
        if fault:
            raise InputError(f"{path}:{number}{fault}")
        yield number, row


def _depth(value: Any) -> int:  # noqa: ANN401 -- what JSON holds
    """Return the number of levels of lists and objects in a list or object."""
    items = value.values() if isinstance(value, dict) else value
    return 1 + max((_depth(item) for item in items if isinstance(item, (dict, list))), default=0)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"the name {repeated(name for name, _ in pairs)[0]!r} occurs twice")
    if not "".join(found).isprintable():
        raise ValueError(f"a name in {[*found]} is not of printable characters; rename it")
    return found


_decode = json.JSONDecoder(object_pairs_hook=_unique).raw_decode


def _lines(path: AnyPath, newline: str) -> Iterator[str]:
    """Yield the lines of a file in UTF-8."""
    try:
        with path.open_regular() as file:
            start = file.read(_LOOKED_AT)
            without_mark(start)
            file.seek(0)
            text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline)
            for number, line in enumerate(iter(partial(text.readline, _LONGEST), ""), 1):
                if len(line) == _LONGEST:
                    raise InputError(f"{path}:{number}: the line is longer than {size(_LONGEST)}")
                if not line.isascii() and _LONE.search(line):
                    how = "save it as UTF-8, in Excel as 'CSV UTF-8'"
                    raise InputError(f"{path}:{number}: the line is not UTF-8; {how}")
                yield line
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise InputError(f"{path} {error}") from None
