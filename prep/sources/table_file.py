"""Tables in files: CSV, JSON lines and Parquet, read by Arrow and staged where workers can map them.

Types are Arrow's: what a Parquet file says, what JSON has, and in CSV what all values of a column look like.
"""

from __future__ import annotations

import csv
import hashlib
import os
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import overload

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from tfshards.schemas import InputError, OptionsError

# What a folder of the Hugging Face convention holds beside its images.
METADATA_NAMES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_BLOCK_BYTES = 1 << 20


def table_path(path: str | os.PathLike[str]) -> Path:
    """Return the table that ``path`` is, or that lies in the folder ``path`` by the name ``metadata``.

    Raises:
        OptionsError: the file has another suffix than those that are read.
        InputError: there is no such file, or the folder holds none, or several.
    """
    found = Path(path)
    if found.is_dir():
        inside = [name for name in METADATA_NAMES if (found / name).is_file()]
        if len(inside) != 1:
            held = " and ".join(inside) if inside else f"none of {', '.join(METADATA_NAMES)}"
            raise InputError(f"{path} holds {held}; name the table's file")
        return found / inside[0]
    if found.suffix.lower() not in _SUFFIXES:
        raise OptionsError(f"{path}: a table is known by its suffix, one of {', '.join(_SUFFIXES)}")
    if not found.is_file():
        raise InputError(f"{path} {'is no file' if found.exists() else 'does not exist'}")
    return found


def read_table(path: Path, text_columns: Collection[str]) -> tuple[pa.Table, str]:
    """Return the rows of a table, and the digest of the file.

    Args:
        path: a file with one of the suffixes.
        text_columns: names of the columns that are text whatever they look like; and all that end in
            ``file_name``. Only CSV leaves that open.

    Raises:
        InputError: the file cannot be read, has no rows, or a column twice.
    """
    try:
        table = _read(path, text_columns)
        digest = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (pa.ArrowException, csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {_first_line(error)}") from None
    if not table.num_rows:
        raise InputError(f"{path} has no rows; there is nothing to build")
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise InputError(f"{path}: the column {twice[0]!r} stands twice; give it another name")
    return table, digest.hexdigest()


def stage_table(table: pa.Table, path: Path) -> None:
    """Write the table into a file that ``mapped_table`` maps."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())


@lru_cache(maxsize=8)
def mapped_table(path: str) -> pa.Table:
    """Return a staged table without reading it: its columns lie in the file."""
    return pa.ipc.open_file(pa.memory_map(path)).read_all()


class ArrowKeys(Sequence[bytes]):
    """A sorted column of keys as it lies in a staged file."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            keys: list[bytes] = self._column[index].to_pylist()
            return keys
        key: bytes = self._column[index].as_py()
        return key

    def __iter__(self) -> Iterator[bytes]:
        return iter(self[:])

    def find(self, key: bytes) -> int:
        """Return the place of a key.

        Raises:
            KeyError: there is none.
        """
        place = bisect_left(self, key)
        if place == len(self) or self[place] != key:
            raise KeyError(key)
        return place


def _read(path: Path, text_columns: Collection[str]) -> pa.Table:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return pa.parquet.read_table(path)
    if suffix in (".jsonl", ".ndjson"):
        return _read_json(path)
    delimiter = "\t" if suffix == ".tsv" else ","
    names = _header(path, delimiter)
    # paths may be numbers to look at, and need not be UTF-8
    text = {name: pa.binary() for name in names if name in text_columns or name.endswith("file_name")}
    table = _read_csv(path, delimiter, text)
    # Arrow would make dates and times of what looks like them; a table is to say what it says
    dated = {field.name: pa.string() for field in table.schema if _is_dated(field.type)}
    return _read_csv(path, delimiter, text | dated) if dated else table


def _read_json(path: Path) -> pa.Table:
    table = pa.json.read_json(path)
    dated = [field.name for field in table.schema if _is_dated(field.type)]
    if not dated:
        return table
    lists = {field.name for field in table.schema if pa.types.is_list(field.type)}
    text = [(name, pa.list_(pa.string()) if name in lists else pa.string()) for name in dated]
    return pa.json.read_json(path, parse_options=pa.json.ParseOptions(explicit_schema=pa.schema(text)))


def _is_dated(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind.value_type if pa.types.is_list(kind) else kind))


def _read_csv(path: Path, delimiter: str, types: Mapping[str, pa.DataType]) -> pa.Table:
    return pa.csv.read_csv(
        path,
        parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(column_types=types),
    )


def _header(path: Path, delimiter: str) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return next(csv.reader(file, delimiter=delimiter), [])


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
