"""Find and read table files; Arrow determines the types of the columns."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from tfshards.prep.imaging.formats import METADATA_NAMES
from tfshards.prep.sources.tables.features import classes_in, flattened
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import listed
from tfshards.schemas.files import file_digest
from tfshards.schemas.storage import AnyPath, any_path
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


_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
# Above this, float64 cannot hold every integer.
_EXACT = 2.0**53
# Levels of lists and objects in a line of JSON.
_DEEP = 1000
_JSON_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_DIGITS = 300
_SHOWN = 30
_COPY_BYTES = 1 << 20
_LONG_ROW = f"a row is longer than {BLOCK_BYTES >> 20} MiB"


@dataclass(frozen=True)
class TableFile:
    """The content of a table file.

    Attributes:
        table: the rows.
        digest: digest of the file, in the form of the manifest.
        warnings: warnings for the user.
        class_names: class names in label order, by column, where the file has them.
        sizes: width and height of the image of each row as the annotations state them, or None; empty for
            tables without annotations.
    """

    table: pa.Table
    digest: str
    warnings: tuple[str, ...]
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sizes: tuple[tuple[int, int] | None, ...] = ()


def table_path(path: str | os.PathLike[str]) -> AnyPath:
    """Return the file ``path``, or the file named ``metadata`` with a known suffix in the folder ``path``.

    Raises:
        OptionsError: the suffix of the file is not supported.
        InputError: the file does not exist, or the folder holds no metadata file, or several.
    """
    found = any_path(path)
    if found.is_dir():
        inside = [name for name in METADATA_NAMES if (found / name).is_file()]
        if len(inside) != 1:
            held = " and ".join(inside) if inside else f"none of {', '.join(METADATA_NAMES)}"
            deeper = sorted(each.parent.name for name in METADATA_NAMES for each in found.glob(f"*/{name}"))
            if not inside and deeper:
                raise InputError("table-metadata-deeper", path=path, deeper=listed(deeper, _SHOWN))
            raise InputError("table-folder", path=path, held=held)
        return found / inside[0]
    if not found.is_file():
        raise InputError(
            "table-missing", path=path, which="is not a file" if found.exists() else "does not exist"
        )
    if found.suffix.lower() not in _SUFFIXES:
        raise OptionsError("table-suffix", path=path, suffixes=_SUFFIXES)
    return found


def read_table(path: AnyPath, text_columns: Collection[str], *, may_be_empty: bool = False) -> TableFile:
    """Return the rows of a table, with a column ``NAME/FIELD`` for each field of a struct.

    Args:
        path: a file with a supported suffix.
        text_columns: columns of CSV files to read as bytes, in addition to those whose names end in
            ``file_name``.
        may_be_empty: whether a file without rows is allowed, as one of several.

    Raises:
        InputError: the file cannot be read, changes while it is read, has no rows, or repeats a column.
    """
    try:
        with local_copy(path) as file:
            before = file.stat()
            table, warnings = _read(path, file, text_columns)
            class_names = classes_in(table.schema.metadata)
            table = flattened(table)
            digest = file_digest(file)
            after = file.stat()
    except OSError as error:
        raise InputError("unreadable", path=path, why=error.strerror or error) from None
    except UnicodeDecodeError:
        raise InputError("table-not-utf8", path=path) from None
    except (pa.ArrowException, csv.Error, CsvError, RecursionError) as error:
        raise InputError("table-unreadable", path=path, reason=_reason(error)) from None
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise InputError("changed-while-read", path=path)
    for column, names in class_names.items():
        # two numbers of one name would be two classes or one, depending on the reader
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise InputError("table-class-repeated", path=path, repeated=repeated[0], column=column)
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise InputError("column-repeated", path=path, twice=twice[0])
    if not table.num_rows and not may_be_empty:
        raise InputError("table-no-rows", path=path)
    return TableFile(table, digest, tuple(warnings), class_names)


def check_unicode(path: AnyPath, table: pa.Table, names: Collection[str]) -> None:
    """Raise InputError if text in one of the columns is not UTF-8; in Parquet files, it may be bytes."""
    if path.suffix.lower() not in _SUFFIXES[:-1]:
        return
    for name in names:
        row = _wrong_row(table[name])
        if row is not None:
            raise InputError("column-not-utf8", path=path, name=name, row=row + 1)


def _wrong_row(column: pa.ChunkedArray) -> int | None:
    """Return the first row with text that is not UTF-8, or None."""
    try:
        # Arrow reads text as bytes if it is not UTF-8, but does not check that of JSON
        column.validate(full=True)
        if not pa.types.is_binary(column.type):
            return None
        column.cast(pa.string())
    except pa.ArrowInvalid:
        return next(row for row, value in enumerate(column) if not _is_unicode(value))
    return None


def _is_unicode(value: pa.Scalar) -> bool:
    try:
        found = value.as_py()
        return not isinstance(found, bytes) or bool(found.decode() or True)
    except UnicodeDecodeError:
        return False


@contextmanager
def local_copy(path: AnyPath) -> Iterator[Path]:
    """Yield a file itself, or for the time of the block a copy of an object on this machine."""
    if isinstance(path, Path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tfshards-") as folder:
        copy = Path(folder) / "table"
        with open_regular(path) as source, copy.open("wb") as file:
            shutil.copyfileobj(source, file, _COPY_BYTES)
        yield copy


def _read(path: AnyPath, file: Path, text_columns: Collection[str]) -> tuple[pa.Table, list[str]]:
    """Return the rows of the table ``path``, whose content is in ``file``."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        # not read_table, which adds columns for folders that are named like NAME=VALUE
        with pa.parquet.ParquetFile(file) as parquet:
            return parquet.read(), []
    if suffix in (".jsonl", ".ndjson"):
        return _read_json(path, file), []
    return read_csv(file, "\t" if suffix == ".tsv" else ",", text_columns)


def _check_depth(path: AnyPath, copy: Path) -> None:
    """Raise InputError if a line is nested so deeply that Arrow would overflow the stack of the process."""
    with open_regular(copy) as file:
        for number, line in enumerate(iter(partial(file.readline, 2 * BLOCK_BYTES), b""), 1):
            # Arrow fails later, but some rows shorter than this fit into its blocks
            if len(line) == 2 * BLOCK_BYTES:
                raise InputError("table-long-row", path=path, number=number, long_row=_LONG_ROW)
            # strings may hold brackets
            if _depth(line) > _DEEP and _depth(_JSON_STRING.sub(b"", line)) > _DEEP:
                raise InputError("table-too-deep", path=path, number=number, deep=_DEEP)


def _depth(line: bytes) -> int:
    if len(line) <= _DEEP:
        return 0
    found = np.frombuffer(line, np.uint8)
    opened, closed = np.isin(found, [*b"[{"]), np.isin(found, [*b"]}"])
    return int(np.cumsum(opened.astype(np.int64) - closed).max())


def _read_json(path: AnyPath, file: Path) -> pa.Table:
    _check_depth(path, file)
    options = pa.json.ReadOptions(block_size=BLOCK_BYTES)
    table = pa.json.read_json(file, read_options=options)
    # Arrow would convert text that looks like dates or times
    kinds = {field.name: undated(field.type) for field in table.schema}
    text = [(field.name, kinds[field.name]) for field in table.schema if kinds[field.name] != field.type]
    if text:
        parsing = pa.json.ParseOptions(explicit_schema=pa.schema(text))
        names = table.column_names
        table = pa.json.read_json(file, read_options=options, parse_options=parsing).select(names)
    _check_integers(path, file, [field.name for field in table.schema if _may_be_rounded(table[field.name])])
    return table


def _may_be_rounded(column: pa.ChunkedArray) -> bool:
    """Return whether a column holds floats so large that integers may have been rounded to them."""
    if pa.types.is_struct(column.type):
        return any(map(_may_be_rounded, column.flatten()))
    if pa.types.is_list(column.type):
        return _may_be_rounded(pc.list_flatten(column))
    if column.type != pa.float64():
        return False
    with np.errstate(invalid="ignore"):
        numbers = np.abs(column.to_numpy())
        # Arrow reads an integer with too many digits as infinity
        return bool(np.any(numbers >= _EXACT))


def _check_integers(path: AnyPath, copy: Path, names: list[str]) -> None:
    """Raise InputError if Arrow rounded an integer in one of the columns."""
    if not names:
        return
    with open_regular(copy) as file:
        for number, line in enumerate(line for line in file if line.strip()):
            row = json.loads(line.decode("utf-8-sig", "surrogateescape"), parse_int=_integer)
            for name in names:
                for value in _flat(row.get(name)):
                    if isinstance(value, int) and int(float(value)) != value:
                        raise InputError(
                            "table-rounded", path=path, number=number, name=name, found=str(value)[:_SHOWN]
                        )


def _integer(text: str) -> int:
    # int() accepts at most 4300 digits; the changed last digit is detected like any rounding
    return int(text) if len(text) <= _DIGITS else int(text[:_DIGITS]) * 10 + 1


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _flat(item)
    else:
        yield value


def _reason(error: Exception) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return _LONG_ROW if "straddl" in line else line
