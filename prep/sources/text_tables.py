"""Text tables: CSV, TSV and JSON Lines as columns, typed by one rule that does not depend on Arrow."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.sources.classes import repeated
from tfshards.prep.sources.features import TEXT, flattened, is_list_type, unlisted
from tfshards.prep.sources.fetching import unreadable
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.sources.text_files import without_mark
from tfshards.schemas import InputError
from tfshards.schemas.errors import size
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import open_regular

JSON_SUFFIXES = (".jsonl", ".ndjson")
# Length of the longest line, and of the longest value.
_LONGEST = 64 << 20
_BLOCK_BYTES = 1 << 20
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
_SHOWN = 60
_JSON_SPACES = " \t\r\n"
_LINES_OF_JSON = "JSON Lines have one object per line, without commas between them"

_Decode: TypeAlias = Callable[[str], tuple[Any, int]]
# The number of some rows, and their values by column.
_Batch: TypeAlias = tuple[int, dict[str, Sequence[Any]]]


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
    parts: dict[str, list[pa.Array]] = {}
    lengths = [0] * len(paths)
    for number, path in enumerate(paths):
        for num_rows, batch in _json_batches(path) if is_json else _csv_batches(path):
            if not is_json:
                check_same_columns(path, batch, paths[0], parts or batch)
            for name in batch:
                parts.setdefault(name, [pa.nulls(sum(lengths))])
            for name, of_column in parts.items():
                if name not in batch or name in dropped:
                    of_column.append(pa.nulls(num_rows))
                else:
                    kind = TEXT if is_path(name) else None if is_json else pa.large_string()
                    of_column.append(arrow_values(name, batch[name], kind, [path]))
            lengths[number] += num_rows
    if not sum(lengths):
        raise InputError(f"{paths[0]} has no rows; there is nothing to build", code="no-inputs")
    columns: dict[str, pa.Array] = {}
    warnings: list[str] = []
    for name, of_column in parts.items():
        columns[name] = _joined(name, of_column, paths).combine_chunks()
        if columns[name].type == TEXT:
            # paths are text, even if they are not UTF-8: columns of bytes are encoded images
            columns[name] = columns[name].view(pa.large_string())
        elif not is_json and columns[name].type == pa.large_string():
            columns[name], lines = typed(name, columns[name])
            warnings += lines
    try:
        table = flattened(pa.table(columns).combine_chunks())
    except UnicodeEncodeError as error:
        raise _not_utf8(error.object, paths) from None
    for column in table.columns if is_json else ():
        numbers, _ = unlisted(unlisted(column)[0])
        if pa.types.is_floating(numbers.type) and pc.any(pc.is_inf(numbers)).as_py():
            # a number beyond float64 is infinite, too
            deque(chain.from_iterable(_json_rows(path, _decode_exactly) for path in paths), maxlen=0)
    return table, lengths, warnings


def arrow_values(
    name: str, values: Sequence[Any], kind: pa.DataType | None, paths: Sequence[AnyPath]
) -> pa.Array | pa.ChunkedArray:
    """Return values of a column as Arrow has them.

    Args:
        name: the column, for messages.
        values: the values, or None where a row has none.
        kind: large strings; ``TEXT`` for paths, which need not be UTF-8; or None for what JSON holds, whose
            type follows from the values: integers and fractions become float64.
        paths: the files that hold the values.
    """
    try:
        if kind is not None:
            return pa.array(values, pa.large_string()).cast(kind)
        return _exact_values(values)
    except UnicodeEncodeError:
        # JSON may also escape half of a character, which no path has
        with suppress(UnicodeEncodeError):
            if kind == TEXT:
                return pa.array([None if value is None else to_bytes(value) for value in values], TEXT)
        raise _not_utf8(name, paths) from None
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if kind is not None:
            # of JSON; whoever needs paths refuses the type that the column has
            return arrow_values(name, values, None, paths)
        raise _mixed(name, paths, str(error).splitlines()[0]) from None


def _exact_values(values: Sequence[Any]) -> pa.Array:
    """Return values of JSON, whose types agree, as Arrow has them."""
    found = pa.array(values)
    if _has_truth(values, found.type):
        raise TypeError("truth values and numbers")
    return found


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


def _not_utf8(name: str, paths: Sequence[AnyPath]) -> InputError:
    return InputError(f"{paths[0]}: column {name!r} is not UTF-8; save it as UTF-8, in Excel as 'CSV UTF-8'")


def _mixed(name: str, paths: Sequence[AnyPath], fault: str) -> InputError:
    """Return the error for a column of JSON Lines whose types differ, with the first line that differs.

    Raises:
        InputError: the fault is a number that is not in int64 or float64.
    """
    values = [row.get(name) for path in paths for row in _json_rows(path, _decode_exactly)]

    def differs(count: int) -> bool:
        try:
            _exact_values(values[:count])
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return True
        return False

    first = bisect_left(range(1, len(values)), True, key=differs)
    lines = (f"{path}:{number}" for path in paths for number, _ in _json_lines(path))
    where = next(islice(lines, first, None))
    return InputError(f"{where}: column {name!r} has another type than before: {fault}; write one type")


def _joined(name: str, parts: Sequence[pa.Array], paths: Sequence[AnyPath]) -> pa.ChunkedArray:
    """Return the values of all parts, whose types may differ in JSON."""
    kinds = {part.type for part in parts if not pa.types.is_null(part.type)} or {pa.null()}
    if len(kinds) > 1:
        return pa.chunked_array([arrow_values(name, [v for p in parts for v in p.to_pylist()], None, paths)])
    (kind,) = kinds
    return pa.chunked_array([part if part.type == kind else pa.nulls(len(part), kind) for part in parts])


def _csv_batches(path: AnyPath) -> Iterator[_Batch]:
    """Yield the rows of a CSV or TSV file, some at a time."""
    rows = _csv_rows(path)
    names = next(rows, [])
    while batch := [*islice(rows, _BATCH_ROWS)]:
        yield len(batch), dict(zip(names, zip(*batch, strict=True), strict=True))


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


def check_no_repeats(names: Iterable[str], where: object) -> None:
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
        names = {*map(tuple, batch)}
        if len(names) == 1:
            # mostly, and much faster
            yield len(batch), dict(zip(names.pop(), zip(*map(dict.values, batch), strict=True), strict=True))
        else:
            every = dict.fromkeys(chain.from_iterable(batch))
            yield len(batch), {name: [row.get(name) for row in batch] for name in every}


def _json_rows(path: AnyPath, decode: _Decode) -> Iterator[dict[str, Any]]:
    """Yield the object in each line of a file."""
    for number, line in _json_lines(path):
        fault = ""
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
        yield row


def _json_lines(path: AnyPath) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not empty."""
    for number, line in enumerate(_lines(path, newline="\n"), 1):
        if text := line.strip(_JSON_SPACES):
            yield number, text


def _depth(value: Any) -> int:  # noqa: ANN401 -- what JSON holds
    """Return the number of levels of lists and objects in a list or object."""
    items = value.values() if isinstance(value, dict) else value
    return 1 + max((_depth(item) for item in items if isinstance(item, (dict, list))), default=0)


def _exact(kind: type[int] | type[float], text: str) -> int | float:
    number = kind(text)
    if math.isinf(number) if kind is float else number not in _INTEGERS:
        raise ValueError(f"the number {text[:_SHOWN]} is beyond {kind.__name__}64; save it as text")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"the name {repeated(name for name, _ in pairs)[0]!r} occurs twice")
    return found


_decode = json.JSONDecoder(object_pairs_hook=_unique).raw_decode
# also raises ValueError for each number that is not in int64 or float64, which takes longer
_decode_exactly = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=partial(_exact, int), parse_float=partial(_exact, float)
).raw_decode


def _lines(path: AnyPath, newline: str) -> Iterator[str]:
    return chain.from_iterable(io.StringIO(block, newline) for block in _blocks(path))


def _blocks(path: AnyPath) -> Iterator[str]:
    """Yield the text of a file in UTF-8 in blocks of whole lines; other bytes become surrogates."""
    try:
        with open_regular(path) as file:
            block, rest, number = without_mark(file.read(_BLOCK_BYTES)), b"", 1
            while block:
                lines, newline, rest = (rest + block).rpartition(b"\n")
                yield (lines + newline).decode("utf-8", "surrogateescape")
                number += lines.count(b"\n") + len(newline)
                if len(rest) > _LONGEST:
                    raise InputError(f"{path}:{number}: the line is longer than {size(_LONGEST)}")
                block = file.read(_BLOCK_BYTES)
            yield rest.decode("utf-8", "surrogateescape")
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise InputError(f"{path} {error}") from None
