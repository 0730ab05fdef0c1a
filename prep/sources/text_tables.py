"""Text tables: CSV, TSV and JSON Lines as columns, typed by one rule that does not depend on Arrow."""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
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
_INTEGERS = range(-(1 << 63), 1 << 63)
# Up to this, float64 has every integer.
_EXACT = 1 << 53
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
    kind: Callable[[str], object] | None = None
    if distinct and distinct <= {"true", "false"}:
        kind = "true".__eq__
    elif distinct and all(map(_is_integer, distinct)):
        kind = int
    elif distinct and all(_is_integer(text, _EXACT) or _is_float(text) for text in distinct):
        kind = float
    if kind is not None:
        dtype = {int: pa.int64(), float: pa.float64()}.get(kind, pa.bool_())  # type: ignore[call-overload]
        return pa.array([kind(text) if text else None for text in texts], dtype), None
    kept = [text for text in distinct if not (_is_integer(text) or _is_float(text))]
    looks = bool(distinct) and all(text in ("true", "false") or _is_number(text) for text in distinct)
    warning = (
        f"column {name!r} is stored as text, since {min(kept)!r} would not be written back as it is"
        if looks and kept
        else None
    )
    return _text(name, texts, path), warning


def _is_integer(text: str, most: int = 1 << 63) -> bool:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > len(str(most)):
        return False
    return str(int(text)) == text and int(text) in _INTEGERS and abs(int(text)) <= most


def _is_float(text: str) -> bool:
    return _is_number(text) and repr(float(text)) == text and math.isfinite(float(text))


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


class _NumberError(ValueError):
    """A number that would be rounded."""


def _object(where: str, line: str) -> dict[str, Any]:
    """Return the object in a line; ``where`` is the line, for messages."""
    found = _parsed(where, line, _integer, _real)
    if not isinstance(found, dict):
        raise InputError(f"{where}: holds {_kind(found)} || JSON Lines have one object per line")
    if line.count("[") + line.count("{") > _DEEPEST and _is_deep(found):
        raise InputError(f"{where}: lists and objects in {_DEEPEST} levels at most")
    return found


def _parsed(where: str, line: str, integer: Callable[[str], Any], real: Callable[[str], Any]) -> object:
    try:
        return json.loads(line, object_pairs_hook=_unique, parse_int=integer, parse_float=real)
    except _NumberError as error:
        row = _parsed(where, line, str, str)
        held = row.items() if isinstance(row, dict) else ()
        name = next((name for name, value in held if str(error) in json.dumps(value)), "")
        text = str(error)[:_SHOWN]
        raise InputError(
            f"{where}: column {name!r}: the number {text} does not fit; save it as text"
        ) from None
    except json.JSONDecodeError as error:
        hint = "JSON Lines have one object per line, without commas between them"
        raise InputError(f"{where}, character {error.pos + 1}: {error.msg} || {hint}") from None
    except RecursionError:
        raise InputError(f"{where}: lists and objects in {_DEEPEST} levels at most") from None
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


def _integer(text: str) -> int:
    if len(text) > len(str(_INTEGERS[0])) or int(text) not in _INTEGERS:
        raise _NumberError(text)
    return int(text)


def _real(text: str) -> float:
    if math.isinf(float(text)):
        raise _NumberError(text)
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


def _kind(value: object) -> str:
    return {list: "a list", str: "text", type(None): "null"}.get(type(value), "a number")


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
        raise InputError(f"{path}: the values of column {name!r} have no common type: {line}") from None


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
