"""Text tables: CSV, TSV and JSON Lines as columns, typed by one rule that does not depend on Arrow."""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.sources.fetching import unreadable
from tfshards.prep.sources.keys import to_bytes
from tfshards.schemas import InputError
from tfshards.schemas.errors import size
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import open_regular

# Length of the longest line, and of the longest value.
_LONGEST = 64 << 20
# Levels of lists and objects in a line of JSON.
_DEEPEST = 64
_INTEGER = re.compile("0|-?[1-9][0-9]{0,18}")
_INTEGERS = range(-(1 << 63), 1 << 63)
_LOOKED_AT, _SHOWN = 64, 60
_ENCODINGS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def csv_columns(path: AnyPath) -> dict[str, list[str]]:
    """Return the columns of a CSV or TSV file by the names in its header, as text.

    Raises:
        InputError: there is no header, a row has another number of values, or a quote is not closed.
    """
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    csv.field_size_limit(_LONGEST)
    with _lines(path, newline="") as lines:
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            names = next(reader, [])
            _check_header(path, names, delimiter)
            rows = []
            for row in filter(None, reader):
                if len(row) != len(names):
                    where = f"{path}:{reader.line_num}"
                    raise InputError(f"{where}: {len(row)} values, but the header has {len(names)} columns")
                rows.append(row)
        except csv.Error as error:
            hint = "; a quote is not closed" if "unexpected end" in str(error) else ""
            raise InputError(f"{path}:{reader.line_num}: {error}{hint}") from None
    columns = [*map(list, zip(*rows, strict=True))] or [[] for _ in names]
    return dict(zip(names, columns, strict=True))


def _check_header(path: AnyPath, names: Sequence[str], delimiter: str) -> None:
    if not names:
        raise InputError("table-no-rows", path=path)
    for name in names:
        if os.path.splitext(to_bytes(name))[1].lower() in SUFFIXES:
            raise InputError("table-no-header", name=name)
        if names.count(name) > 1:
            raise InputError("column-repeated", path=path, twice=name)
    # names may hold these marks, too
    mark = next((mark for mark in ";|\t," if mark != delimiter and mark in names[0]), None)
    if mark and len(names) == 1:
        raise InputError("table-separators", path=str(path), header=names[0][:_SHOWN], mark=mark)


def typed(name: str, texts: Sequence[str], path: AnyPath | str) -> tuple[pa.Array, str | None]:
    """Return the values of a column of text, and a warning if numbers in it are kept as text.

    A column is int64 or float64 only if each number would be written back as it is, and bool only if each is
    ``true`` or ``false``. An empty text is null, except among texts.
    """
    distinct = {*texts} - {""}
    if distinct and distinct <= {"true", "false"}:
        return pa.array([text == "true" if text else None for text in texts], pa.bool_()), None
    numbers: dict[str, int | float | None] = {"": None}
    for text in distinct:
        numbers[text] = number = _number(text)
        if number is None:
            break
    else:
        found = [number for number in numbers.values() if number is not None]
        are_integers = all(type(number) is int for number in found)
        # a large integer among fractions would be rounded
        if found and (are_integers or all(float(number) == number for number in found)):
            kind = pa.int64() if are_integers else pa.float64()
            return pa.array([numbers[text] for text in texts], kind), None
    warning = None
    if distinct and all(text in ("true", "false") or _is_number(text) for text in distinct):
        odd = min(distinct, key=lambda text: (_number(text) is not None, text))
        warning = f"column {name!r} is stored as text, since {odd!r} would not be written back as it is"
    return _text(name, texts, path), warning


def _number(text: str) -> int | float | None:
    """Return the number that is written exactly as a text, or None."""
    if _INTEGER.fullmatch(text):
        return int(text) if int(text) in _INTEGERS else None
    if not _is_number(text):
        return None
    number = float(text)
    return number if repr(number) == text and math.isfinite(number) else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _text(name: str, texts: Sequence[str | None], path: AnyPath | str) -> pa.Array:
    try:
        return pa.array(texts, pa.large_string())
    except UnicodeEncodeError:
        raise InputError("column-not-utf8", path=path, name=name) from None


def path_column(values: Sequence[object], name: str, path: AnyPath | str) -> pa.Array:
    """Return a column of paths, which may look like numbers and need not be UTF-8, as bytes."""
    for value in values:
        if value is not None and not isinstance(value, str):
            raise InputError("column-paths-type", name=name, kind=f"{type(value).__name__} in {path}")
    return pa.array([None if value is None else to_bytes(str(value)) for value in values], pa.large_binary())


def add_json(path: AnyPath, columns: dict[str, list[Any]], count: int) -> int:
    """Add the values of a JSON Lines file to columns of ``count`` rows, and return the number of all rows.

    An object that lacks a name has None.

    Raises:
        InputError: a line is not one object, or a number is not exact in int64 or float64.
    """
    with _lines(path, newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            row = _object(f"{path}:{number}", line)
            for name in row:
                if name not in columns:
                    columns[name] = [None] * count
            for name, values in columns.items():
                values.append(row.get(name))
            count += 1
    return count


def _object(where: str, line: str) -> dict[str, Any]:
    """Return the object in a line; ``where`` is the line, for messages."""
    hint = "JSON Lines have one object per line, without commas between them"
    try:
        found = json.loads(line, object_pairs_hook=_unique, parse_int=_integer, parse_float=_real)
        is_deep = line.count("[") + line.count("{") > _DEEPEST and _is_deep(found)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}, character {error.pos + 1}: {error.msg} || {hint}") from None
    except RecursionError:
        found, is_deep = {}, True
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{where}: holds a {type(found).__name__} || {hint}")
    if is_deep:
        raise InputError(f"{where}: lists and objects in {_DEEPEST} levels at most")
    return found


def _integer(text: str) -> int:
    number = int(text)
    if number not in _INTEGERS:
        raise ValueError(f"the number {text[:_SHOWN]} is beyond int64; save it as text")
    return number


def _real(text: str) -> float:
    if math.isinf(float(text)):
        raise ValueError(f"the number {text} is beyond float64; save it as text")
    return float(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return found


def _is_deep(value: object) -> bool:
    """Return whether lists and objects are in more levels than Arrow's recursion is safe for."""
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        parts = [each.values() if isinstance(each, dict) else each for each in level]
        level = [item for part in parts for item in part if isinstance(item, (dict, list))]
        if not level:
            return False
    return True


def json_array(name: str, values: Sequence[Any], path: AnyPath | str) -> pa.Array | pa.ChunkedArray:
    """Return the values of a column of JSON as Arrow has them; integers and fractions become float64.

    Raises:
        InputError: the values have several types, or an integer among fractions is not exact in float64.
    """
    try:
        return pa.array(values)
    except UnicodeEncodeError:
        raise InputError("column-not-utf8", path=path, name=name) from None
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        line = str(error).splitlines()[0]
        raise InputError(f"{path}: the values of column {name!r} have no exact type: {line}") from None


@contextmanager
def _lines(path: AnyPath, newline: str) -> Iterator[Iterator[str]]:
    """Yield the lines of a file in UTF-8, in which other bytes become surrogates."""
    try:
        with open_regular(path) as start:
            head = start.read(_LOOKED_AT)
        encoding = next((name for mark, name in _ENCODINGS.items() if head.startswith(mark)), None)
        if encoding is None and b"\0" in head:
            encoding = "UTF-16 or binary"
        if encoding is not None:
            raise InputError(f"{path} is {encoding}; save it as UTF-8")
        with io.TextIOWrapper(open_regular(path), "utf-8-sig", "surrogateescape", newline) as file:
            yield _checked(path, file)
    except OSError as error:
        raise unreadable(path, error) from None


def _checked(path: AnyPath, file: io.TextIOWrapper) -> Iterator[str]:
    for number, line in enumerate(iter(partial(file.readline, _LONGEST + 1), ""), 1):
        if len(line) > _LONGEST:
            raise InputError(f"{path}:{number}: the line is longer than {size(_LONGEST)}")
        yield line
