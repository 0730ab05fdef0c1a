"""Find and read table files; Arrow determines the types of the columns."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet

from tfshards.prep.imaging.formats import METADATA_NAMES
from tfshards.prep.sources.classes import repeated
from tfshards.prep.sources.recognition import other_formats
from tfshards.prep.sources.tables.csv_file import BLOCK_BYTES, LONG_ROW, read_csv, undated
from tfshards.prep.sources.tables.features import classes_in, flattened
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import listed
from tfshards.schemas.files import file_digest
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.untrusted import open_regular

_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
# Above this, float64 cannot hold every integer.
_EXACT = 2.0**53
# Levels of lists and objects in a line of JSON.
_DEEP = 1000
_JSON_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_DIGITS = 300
_SHOWN = 30
_COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class TableFile:
    """The content of a table file.

    Attributes:
        table: the rows.
        digest: digest of the file, in the form of the manifest.
        warnings: warnings for the user.
        class_names: class names in label order, by column, where the file has them.
        sides: widths, and heights, of the images of the rows as annotations state them, each of which may be
            None; empty where they state none.
        formats: format of each column of boxes or keypoints, see ``ColumnRoles``.
    """

    table: pa.Table
    digest: str
    warnings: tuple[str, ...]
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sides: tuple[tuple[int | None, ...], ...] = ()
    formats: Mapping[str, str] = field(default_factory=dict)


def table_path(path: str | os.PathLike[str]) -> AnyPath:
    """Return the file ``path``, or the file named ``metadata`` with a known suffix in the folder ``path``."""
    found = any_path(path)
    if found.is_dir():
        inside = [name for name in METADATA_NAMES if (found / name).is_file()]
        if len(inside) == 1:
            return found / inside[0]
        deeper = sorted(each.parent.name for name in METADATA_NAMES for each in found.glob(f"*/{name}"))
        if not inside and deeper:
            raise InputError("table-metadata-deeper", path=path, deeper=listed(deeper, _SHOWN))
        raise InputError("table-folder", path=path, names=METADATA_NAMES)
    if not found.is_file():
        raise InputError("table-missing", path=path)
    if found.suffix.lower() not in _SUFFIXES:
        raise OptionsError("table-suffix", *other_formats(str(path)), path=path, suffixes=_SUFFIXES)
    return found


def read_table(path: AnyPath, text_columns: Collection[str]) -> TableFile:
    """Return the rows of a table, with a column ``NAME/FIELD`` for each field of a struct.

    Columns of text tables that are among ``text_columns``, or whose names end in ``file_name``, are bytes.
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
    except (pa.ArrowException, csv.Error, UnicodeDecodeError, RecursionError) as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        reason = LONG_ROW if "straddl" in line else line
        raise InputError("table-unreadable", path=path, reason=reason) from None
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise InputError("changed-while-read", path=path)
    for column, names in class_names.items():
        # two numbers of one name would be two classes or one, depending on the reader
        for name in repeated(names):
            raise InputError("table-class-repeated", path=path, repeated=name, column=column)
    for name in repeated(table.column_names):
        raise InputError("column-repeated", path=path, twice=name)
    return TableFile(table, digest, tuple(warnings), class_names)


def check_unicode(path: AnyPath, table: pa.Table, names: Collection[str]) -> None:
    """Raise InputError if text in one of the columns is not UTF-8; in Parquet files, it may be bytes."""
    for name in names if path.suffix.lower() != ".parquet" else ():
        column = table[name]
        try:
            # Arrow reads text as bytes if it is not UTF-8, but does not check that of JSON
            column.validate(full=True)
            if pa.types.is_binary(column.type):
                column.cast(pa.string())
        except pa.ArrowInvalid:
            raise InputError("column-not-utf8", path=path, name=name) from None


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
    return read_csv(file, "\t" if suffix == ".tsv" else ",", text_columns, shown=path)


def _check_depth(path: AnyPath, copy: Path) -> None:
    """Raise InputError if a line is nested so deeply that Arrow would overflow the stack of the process."""
    with open_regular(copy) as file:
        for number, line in enumerate(iter(partial(file.readline, 2 * BLOCK_BYTES), b""), 1):
            # Arrow fails later, but some rows shorter than this fit into its blocks
            if len(line) == 2 * BLOCK_BYTES:
                raise InputError("table-long-row", path=path, number=number, long_row=LONG_ROW)
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
