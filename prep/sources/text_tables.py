"""Text tables: CSV, TSV and JSON Lines as columns, typed by one rule that does not depend on Arrow."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.sources.classes import repeated
from tfshards.prep.sources.features import TEXT, flattened, is_list_type, unlisted
from tfshards.prep.sources.fetching import unreadable, without_mark
from tfshards.prep.sources.keys import to_bytes
from tfshards.schemas import InputError
from tfshards.schemas.errors import size
from tfshards.schemas.json_reader import shown
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import open_regular

JSON_SUFFIXES = (".jsonl", ".ndjson")
# Characters of the longest line, and of the longest value.
_LONGEST = 64 << 20
# Rows that are turned into columns at a time, few enough that collecting garbage does not slow them down.
_BATCH_ROWS = 256
# Levels of lists and objects in a line of JSON.
_DEEPEST = 64
_INTEGER = re.compile("0|-?[1-9][0-9]{0,18}")
_INTEGERS = range(-(1 << 63), 1 << 63)
# Numbers of at most 15 digits, which float64 holds, as Python writes them; it writes 0.00001 as 1e-05.
_PLAIN = (
    r"^(?:-?(?:0\.0|0\.0{0,3}[1-9](?:[0-9]{0,9}[1-9])?|[1-9][0-9]{0,6}\.(?:[0-9]{0,6}[1-9]|0))"
    r"|-?[1-9][0-9]{0,14}|0)$"
)
_TRUTH = pa.array(["false", "true"], pa.large_string())
_SHOWN, _LOOKED_AT = 60, 64
_LINES_OF_JSON = "JSON Lines have one object per line, without commas between them"


_Decode: TypeAlias = Callable[[str], tuple[Any, int]]


class _Batch(NamedTuple):
    """Some rows of a file: their numbers (in JSON those of their lines), and their values by column."""

    path: AnyPath
    lines: Sequence[int]
    columns: dict[str, Sequence[Any]]


def read_text(
    paths: Sequence[AnyPath], dropped: Collection[str], is_path: Callable[[str], bool]
) -> tuple[pa.Table, list[int], list[str]]:
    """Return the rows of CSV, TSV or JSON Lines files, the number of rows of each file, and warnings.

    Args:
        paths: files of one suffix.
        dropped: columns whose values are not needed; they become null.
        is_path: whether a column holds paths, which may look like numbers and need not be UTF-8.

    Raises:
        InputError: a file cannot be read, or the values of a column have no exact type.
    """
    is_json = paths[0].suffix.lower() in JSON_SUFFIXES
    batches, read_values = (_json_batches, _json_values) if is_json else (_csv_batches, _csv_values)
    # the number of rows of each batch, and its columns
    parts: list[tuple[int, dict[str, pa.Array]]] = []
    lengths = [0] * len(paths)
    for number, path in enumerate(paths):
        for batch in batches(path):
            num_rows = len(batch.lines)
            part = {
                name: pa.nulls(num_rows) if name in dropped else read_column(batch, name)
                for name in batch.columns
                for read_column in [_paths if is_path(name) else read_values]
            }
            if not is_json:
                check_same_columns(path, part, paths[0], parts[0][1] if parts else part)
            parts.append((num_rows, part))
            lengths[number] += num_rows
    if not parts:
        raise InputError(f"{paths[0]} has no rows; there is nothing to build", code="no-inputs")
    names = dict.fromkeys(name for _, part in parts for name in part)
    columns = {name: _joined(name, parts, paths) for name in names}
    warnings: list[str] = []
    for name, column in columns.items():
        if column.type == TEXT:
            # paths are text, even if they are not UTF-8: columns of bytes are encoded images
            columns[name] = column.view(pa.large_string())
        elif not is_json and column.type == pa.large_string():
            columns[name], lines = typed(name, column)
            warnings += lines
    try:
        table = flattened(pa.table(columns))
    except UnicodeEncodeError as error:
        raise InputError(
            f"{paths[0]}: column {error.object!r} is not UTF-8; save it as UTF-8, in Excel as 'CSV UTF-8'"
        ) from None
    for column in table.columns if is_json else ():
        numbers, _ = unlisted(unlisted(column)[0])
        if pa.types.is_floating(numbers.type) and pc.any(pc.is_inf(numbers)).as_py():
            # a number beyond float64 is infinite, too
            deque(chain.from_iterable(_json_rows(path, _decode_finite) for path in paths), maxlen=0)
    return table, lengths, warnings


def _joined(
    name: str, parts: Sequence[tuple[int, Mapping[str, pa.Array]]], paths: Sequence[AnyPath]
) -> pa.Array:
    """Return a column of all batches, whose types may differ, and some of which may lack it, in JSON."""
    arrays = [part[name] if name in part else pa.nulls(num_rows) for num_rows, part in parts]
    kinds = {array.type for array in arrays if not pa.types.is_null(array.type)} or {pa.null()}
    if len(kinds) > 1:
        found, fault = _arrow_values([value for array in arrays for value in array.to_pylist()])
        if fault:
            where = ", ".join(map(str, paths))
            raise InputError(f"{where}: column {name!r} has values of several types: {fault}; write one type")
        return found
    (kind,) = kinds
    return pa.concat_arrays([each if each.type == kind else pa.nulls(len(each), kind) for each in arrays])


def text_values(name: str, values: Sequence[str], path: AnyPath) -> pa.Array:
    """Return a column of text as Arrow has it, or raise InputError if it is not UTF-8."""
    try:
        return pa.array(values, pa.large_string())
    except UnicodeEncodeError:
        raise InputError(
            f"{path}: column {name!r} is not UTF-8; save it as UTF-8, in Excel as 'CSV UTF-8'"
        ) from None


def _csv_values(batch: _Batch, name: str) -> pa.Array:
    return text_values(name, batch.columns[name], batch.path)


def _paths(batch: _Batch, name: str) -> pa.Array:
    """Return paths, which need not be UTF-8, as bytes; whoever needs paths refuses other values of JSON."""
    values = batch.columns[name]
    if not all(isinstance(value, (str, type(None))) for value in values):
        return _json_values(batch, name)
    try:
        return pa.array([None if value is None else to_bytes(value) for value in values], TEXT)
    except UnicodeEncodeError:
        # half of a character, which JSON may escape
        raise InputError(
            f"{batch.path}: column {name!r} is not UTF-8; save it as UTF-8, in Excel as 'CSV UTF-8'"
        ) from None


def _json_values(batch: _Batch, name: str) -> pa.Array:
    """Return values of JSON, whose types agree, as Arrow has them; integers and fractions become float64."""
    values = batch.columns[name]
    try:
        found, fault = _arrow_values(values)
    except UnicodeEncodeError:
        raise InputError(
            f"{batch.path}: column {name!r} is not UTF-8; save it as UTF-8, in Excel as 'CSV UTF-8'"
        ) from None
    if not fault:
        return found
    first = next(n for n in range(len(values)) if _arrow_values(values[: n + 1])[1])
    raise InputError(
        f"{batch.path}:{batch.lines[first]}: column {name!r} is {shown(values[first])}, of another type "
        f"than in the lines before, or beyond 64 bits: {fault}; write one type, and large numbers as text"
    )


def _arrow_values(values: Sequence[Any]) -> tuple[pa.Array | None, str]:
    """Return the values, or why they have no type."""
    try:
        found = pa.array(values)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        return None, str(error).splitlines()[0]
    return found, "truth values and numbers" if _has_truth(values, found.type) else ""


def _has_truth(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Return whether truth values are among fractions: Arrow takes ``true`` for 1.0."""
    if pa.types.is_floating(kind):
        return bool in {*map(type, values)}
    if is_list_type(kind):
        return _has_truth([*chain.from_iterable(filter(None, values))], kind.value_type)
    if pa.types.is_struct(kind):
        given = [*filter(None, values)]
        return any(_has_truth([each.get(field.name) for each in given], field.type) for field in kind)
    return False


def _csv_batches(path: AnyPath) -> Iterator[_Batch]:
    """Yield the rows of a CSV or TSV file, some at a time."""
    rows = _csv_rows(path)
    names = next(rows, [])
    while batch := [*islice(rows, _BATCH_ROWS)]:
        yield _Batch(path, range(len(batch)), dict(zip(names, zip(*batch, strict=True), strict=True)))


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
                _check_header(path, names, delimiter)
            if len(row) != len(names):
                where = f"{path}:{reader.line_num}"
                raise InputError(f"{where}: {len(row)} values, but the header has {len(names)} columns")
            yield row
    except csv.Error as error:
        hint = "; a quote is not closed" if "unexpected end" in str(error) else ""
        raise InputError(f"{path}:{reader.line_num}: {error}{hint}") from None


def check_no_repeats(names: Collection[str], where: object) -> None:
    """Raise InputError if two columns have the same name."""
    for name in repeated(names):
        raise InputError(f"{where}: the column {name!r} is repeated; rename one of them")


def _check_header(path: AnyPath, names: Sequence[str], delimiter: str) -> None:
    check_no_repeats(names, path)
    for name in names:
        if os.path.splitext(to_bytes(name))[1].lower() in SUFFIXES:
            raise InputError(f"the first row names an image, {name!r}; add a header of column names")
    # names may hold these marks, too
    mark = next((mark for mark in ";|\t," if mark != delimiter and mark in names[0]), None)
    if mark and len(names) == 1:
        raise InputError(
            f"{path}: {mark!r} seems to separate the values, as in the header {names[0][:_SHOWN]!r}; "
            "tfshards reads commas in .csv files and tabs in .tsv files; before the build, write such a "
            f"file with pandas: pd.read_csv({str(path)!r}, sep={mark!r}).to_csv('commas.csv', index=False)"
        )


def check_same_columns(
    path: AnyPath, names: Collection[str], first: AnyPath, others: Collection[str]
) -> None:
    """Raise InputError unless a file has the columns that the first one has, in any order."""
    for name in sorted({*names} ^ {*others}):
        lacks, has = (first, path) if name in names else (path, first)
        raise InputError(f"{lacks} has no column {name!r}, which {has} has; build them as two datasets")


def typed(name: str, texts: pa.Array) -> tuple[pa.Array, list[str]]:
    """Return the values of a column of text, and a warning if numbers in it are kept as text.

    A column is int64 or float64 only if each number would be written back as it is by Python's ``str`` or
    ``repr``, and bool only if each is ``true`` or ``false``. An empty text is null, except among texts.
    """
    is_given = pc.not_equal(texts, "")
    given = texts.filter(is_given)
    if not len(given):
        return texts, []
    found = pc.if_else(is_given, texts, pa.scalar(None, texts.type))
    if pc.all(pc.is_in(given, _TRUTH)).as_py():
        return pc.equal(found, "true"), []
    first = given[0].as_py()
    # a cast that fails takes long
    with suppress(pa.ArrowInvalid):
        integers = found.cast(pa.int64()) if _INTEGER.fullmatch(first) else None
        # whatever Arrow takes for an integer, this holds only for what str writes
        if integers is not None and integers.cast(texts.type).equals(found):
            return integers, []
    try:
        # most columns of text begin with a text
        float(first)
        if pc.all(pc.match_substring_regex(given, _PLAIN)).as_py():
            return found.cast(pa.float64()), []
        written = given.to_pylist()
        numbers = [*map(float, written)]
    except ValueError:
        return texts, []
    # one comparison, because most columns have no integers among fractions
    if written != [*map(repr, numbers)] or not all(map(math.isfinite, numbers)):
        odd = [text for text, number in zip(written, numbers, strict=True) if not _is_exact(text, number)]
        if odd:
            line = f"column {name!r} is stored as text, since {min(odd)!r} would not be written back as it is"
            return texts, [line]
    return pc.replace_with_mask(pa.nulls(len(texts), pa.float64()), is_given, pa.array(numbers)), []


def _is_exact(text: str, number: float) -> bool:
    """Return whether a text is a finite number as Python writes it, or an integer that is not rounded."""
    if _INTEGER.fullmatch(text):
        return int(text) in _INTEGERS and int(text) == number
    return repr(number) == text and math.isfinite(number)


def _json_batches(path: AnyPath) -> Iterator[_Batch]:
    """Yield the rows of a JSON Lines file, some at a time; a row that lacks a name has None."""
    rows = _json_rows(path, _decode)
    while batch := [*islice(rows, _BATCH_ROWS)]:
        lines, objects = zip(*batch, strict=True)
        names = {*map(tuple, objects)}
        if len(names) == 1:
            # mostly, and much faster
            values = zip(*map(dict.values, objects), strict=True)
            yield _Batch(path, lines, dict(zip(names.pop(), values, strict=True)))
        else:
            every = dict.fromkeys(chain.from_iterable(objects))
            yield _Batch(path, lines, {name: [row.get(name) for row in objects] for name in every})


def _json_rows(path: AnyPath, decode: _Decode) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each line that is not empty, and its object."""
    for number, text in enumerate(_lines(path, newline="\n"), 1):
        line, fault = text.strip(" \t\r\n"), ""
        if not line:
            continue
        try:
            row, end = decode(line)
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
    return found


def _finite(text: str) -> float:
    if math.isinf(float(text)):
        raise ValueError(f"the number {text[:_SHOWN]} is beyond float64; save it as text")
    return float(text)


_decode = json.JSONDecoder(object_pairs_hook=_unique).raw_decode
# also raises ValueError for a number beyond float64, which takes longer
_decode_finite = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite).raw_decode


def _lines(path: AnyPath, newline: str) -> Iterator[str]:
    """Yield the lines of a file in UTF-8; other bytes become surrogates."""
    try:
        with open_regular(path) as file:
            start = file.read(_LOOKED_AT)
            without_mark(start)
            file.seek(0)
            text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline)
            for number, line in enumerate(iter(partial(text.readline, _LONGEST), ""), 1):
                if len(line) == _LONGEST:
                    raise InputError(f"{path}:{number}: the line is longer than {size(_LONGEST)}")
                yield line
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise InputError(f"{path} {error}") from None
