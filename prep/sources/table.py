"""Tables as sources: files of rows, whose columns are joined by name, or any Arrow stream."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import PurePosixPath
from typing import ClassVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from tfshards.prep.imaging.formats import METADATA_NAMES
from tfshards.prep.sources.classes import usual_split
from tfshards.prep.sources.features import classes_in, flattened
from tfshards.prep.sources.fetching import Boundary, unreadable
from tfshards.prep.sources.patterns import key_pattern
from tfshards.prep.sources.roles import check_no_repeats
from tfshards.prep.sources.row_columns import TableRows
from tfshards.prep.sources.table_rows import RowSource
from tfshards.prep.sources.text_tables import (
    JSON_SUFFIXES,
    check_same_columns,
    read_text_tables,
    typed,
)
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.storage import AnyPath, LocalPath, any_path

SUFFIXES = (".csv", ".tsv", *JSON_SUFFIXES, ".parquet")
_NO_TABLE = (
    f"tables have the suffixes {', '.join(SUFFIXES)}; save other rows as Parquet, for example with pandas, "
    "DuckDB, or to_parquet of a Hugging Face dataset; 'tfshards build coco' reads annotations of COCO"
)
# data/train-00000-of-00002.parquet, perhaps with a hash, as Hugging Face writes them
_SHARD = re.compile(r"(?P<split>.+?)-(?P<index>[0-9]+)-of-(?P<count>[0-9]+)(-[0-9a-f]+)?")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_SPLIT = "split"
_COPY_BYTES = 1 << 20
# Rows of a Parquet file that are read at a time: about as many bytes, and at most as many rows.
_BATCH_BYTES, _BATCH_ROWS = 8 << 20, 1 << 16


@dataclass(frozen=True)
class Table(RowSource):
    """The rows of CSV, TSV, JSON Lines or Parquet files, or of any Arrow stream in memory.

    Attributes are also those of ``RowSource``.

    Attributes:
        source: CSV, TSV, JSON Lines or Parquet file; a folder with metadata.csv, metadata.jsonl or
            metadata.parquet; or a folder or pattern of files of one suffix, whose names, or folders such as
            year=2024 below it or at the end of its path, may give splits and columns. In Python also a pandas
            or polars DataFrame, a relation of DuckDB, or anything else with ``__arrow_c_stream__``.
        label_separator: what separates the classes in a text of the label column, such as "|". An empty text
            is no class. An empty string states that each text is one class.
    """

    label_separator: str | None = None

    RECORDED: ClassVar[tuple[str, ...]] = (*RowSource.RECORDED, "label_separator")
    kind = "table"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.source, (str, os.PathLike)) and not hasattr(self.source, "__arrow_c_stream__"):
            kind = type(self.source).__name__
            raise OptionsError(
                f"the source of a table is a path, or has __arrow_c_stream__, not {kind}; several files are "
                "a folder or a pattern, such as 'rows/*.csv', and a LazyFrame of polars has collect()"
            )

    def rows(self, root: AnyPath | None, needed: Collection[str | None]) -> TableRows:
        """Return the rows of the files or the stream; ``needed`` names columns to read even if dropped."""
        if isinstance(self.source, (str, os.PathLike)):
            dropped = {name for name, role in self.roles.items() if role == "drop"}.difference(needed)
            read = read_table(self.source, dropped, follow_links=self.follow_links)
        else:
            where = f"this {type(self.source).__name__}"
            try:
                stream = pa.RecordBatchReader.from_stream(self.source)
            except (pa.ArrowException, TypeError, ValueError) as error:
                more = "for arrays in cells, build Examples(frame.to_dict('records'))"
                raise InputError(
                    f"{where} is not a table that Arrow can read: {first_line(error)}; {more}"
                ) from None
            class_names = classes_in(stream.schema.metadata)
            read = TableRows(stream, root=_real(LocalPath()), where=where, class_names=class_names)
        if root is not None:
            read = replace(read, root=_real(root), is_scattered=False, owns_root=False)
        return replace(read, separator=self.label_separator)


def read_table(path: str | os.PathLike[str], dropped: Collection[str], *, follow_links: bool) -> TableRows:
    """Return the rows of a table: a file, the metadata file of a folder, or files of one suffix.

    These match a pattern, or are below a folder without a metadata file. The names of several files, or of
    their folders, may be those of splits, as in ``train-00000-of-00002.parquet`` or ``test/0000.parquet``,
    which the column ``split`` holds. Folders such as ``year=2024`` below that of the source are columns.

    Args:
        path: path of the file or the folder, or the pattern.
        dropped: columns that are not needed.
        follow_links: allow links out of the folder, or that of the pattern.

    Raises:
        InputError: a file cannot be read, or a column is not in all files, or has types that are not joined.
    """
    given = any_path(path)
    try:
        folder, paths = _find(given)
        if not folder.is_far and paths != [given]:
            inside = Boundary(str(folder), follow_links=follow_links)
            for each in paths:
                inside.check(str(each))
    except OSError as error:
        raise unreadable(os.fspath(path), error) from None
    class_names: Mapping[str, tuple[str, ...]] = {}
    lines: list[str] = []
    if paths[0].suffix.lower() == ".parquet":
        names, lengths, types, class_names = _parquet_schema(paths, dropped)
        tables: Iterator[pa.Table] = chain.from_iterable(_parquet_tables(path, types) for path in paths)
    else:
        read, names, lengths, lines = read_text_tables(paths, dropped)
        tables = iter([read])
        types = {field.name: field.type for field in read.schema}
    of_names, warnings = _columns_of_names(folder, paths, names)
    schema = pa.schema([*types.items(), *((name, column.type) for name, column in of_names.items())])
    files = pa.array(np.repeat(np.arange(len(paths)), lengths))

    def batches() -> Iterator[pa.RecordBatch]:
        start = 0
        for table in tables:
            of_rows = files.slice(start, table.num_rows)
            for name, column in of_names.items():
                table = table.append_column(name, column.take(of_rows))
            start += table.num_rows
            yield from table.cast(schema).to_batches()

    where = paths[0] if len(paths) == 1 else given
    return TableRows(
        pa.RecordBatchReader.from_batches(schema, batches()),
        root=_real(where if where.is_dir() else paths[0].parent),
        is_scattered=not where.is_dir() and len({path.parent for path in paths}) > 1,
        where=str(where),
        class_names=class_names,
        warnings=(*_missing_parts(paths), *lines, *warnings),
        # by convention the folder belongs to its metadata
        owns_root=where.name in METADATA_NAMES,
        unread=tuple(name for name in names if name in dropped),
    )


def _real(folder: AnyPath) -> bytes:
    return os.fsencode(folder.real_name())


def _columns_of_names(
    folder: AnyPath, paths: Sequence[AnyPath], names: Collection[str]
) -> tuple[dict[str, pa.ChunkedArray], list[str]]:
    """Return the columns that the names of folders and files give, with a value a file, and warnings.

    Folders ``NAME=VALUE`` below that of the source, or at the end of its path, are columns. The names of
    several files, or of their folders, may be those of splits.
    """
    # the current folder may be NAME=VALUE, too
    folder = folder.normalized()
    while "=" in folder.name:
        folder = folder.parent
    above = len(PurePosixPath(str(folder)).parts)
    folders = [PurePosixPath(str(path.normalized())).parts[above:-1] for path in paths]
    pairs = [dict(part.split("=", 1) for part in each if "=" in part) for each in folders]
    for path, each in zip(paths, pairs, strict=True):
        if {*each} != {*pairs[0]}:
            raise InputError(
                f"{path} is not in folders of {', '.join(pairs[0]) or 'no values'}=, as {paths[0]}"
            )
    found = {unquote(name): [unquote(each[name]) for each in pairs] for name in pairs[0]}
    for name in names:
        if name in found:
            raise InputError(f"{folder}: the column {name!r} is in the files and, as {name}=, in folders")
    splits = [*map(_split_of, paths)] if len(paths) > 1 and _SPLIT not in {*names, *found} else []
    if any(splits):
        if "" in splits:
            other, named = paths[splits.index("")], paths[[*map(bool, splits)].index(True)]
            raise InputError(
                f"the name of {other} is not that of a split, unlike {named}; move or rename it, or name "
                "the files to build with a pattern"
            )
        found[_SPLIT] = splits
    columns, warnings = dict[str, pa.ChunkedArray](), list[str]()
    for name, values in found.items():
        texts = pa.array(["" if value == _NO_VALUE else value for value in values], pa.large_string())
        columns[name], lines = typed(name, pa.chunked_array([texts]))
        warnings += lines
    return columns, warnings


def _find(path: AnyPath) -> tuple[AnyPath, list[AnyPath]]:
    """Return the folder of the files, and the files."""
    if glob.has_magic(str(path)) and not path.exists():
        folder = path
        while glob.has_magic(str(folder)):
            folder = folder.parent
        if not folder.is_far:
            return folder, _of_one_suffix(path, [*map(LocalPath, glob.glob(str(path), recursive=True))])
        matches = key_pattern(str(path)).fullmatch
        return folder, _of_one_suffix(path, [file for file, _ in folder.files_below() if matches(str(file))])
    if not path.is_dir():
        if not path.is_file():
            raise InputError(f"{path} does not exist, or is not a file; name the file of the table")
        if path.suffix.lower() not in SUFFIXES:
            raise OptionsError(f"{path}: {_NO_TABLE}")
        return path.parent, [path]
    metadata = [name for name in METADATA_NAMES if (path / name).is_file()]
    if len(metadata) > 1:
        raise InputError(f"{path} must hold one of {', '.join(METADATA_NAMES)}; name the file of the table")
    if metadata:
        return path, [path / metadata[0]]
    paths = _of_one_suffix(path, [path / name for name in path.sizes_below() if "/." not in f"/{name}"])
    for line in _missing_parts(paths):
        pattern = path / f"*{paths[0].suffix}"
        raise InputError(f"{path}: {line}; add them, or name those to build by a pattern, as {pattern}")
    return path, paths


def _of_one_suffix(path: AnyPath, found: Sequence[AnyPath]) -> list[AnyPath]:
    """Return the files that are tables, which have one suffix."""
    tables = [each for each in sorted(found) if each.suffix.lower() in SUFFIXES]
    if not tables:
        raise InputError(f"{path}: there is no table; {_NO_TABLE}")
    for each in tables:
        if each.suffix.lower() != tables[0].suffix.lower():
            pattern = shlex.quote(str((path / "**" if path.is_dir() else path.parent) / f"*{each.suffix}"))
            raise InputError(f"{path} has tables of two kinds: {tables[0]} and {each}; name one by {pattern}")
    return tables


def _missing_parts(paths: Sequence[AnyPath]) -> list[str]:
    """Return a line for each series of files, such as ``train-*-of-00002``, of which files are missing."""
    series: dict[tuple[AnyPath, str, str], set[int]] = {}
    for path in paths:
        if shard := _SHARD.fullmatch(path.stem):
            series.setdefault((path.parent, shard["split"], shard["count"]), set()).add(int(shard["index"]))
    return [
        f"{int(count) - len(indices):,} of the {int(count):,} files {folder}/{split}-*-of-{count} are missing"
        for (folder, split, count), indices in series.items()
        if len(indices) < int(count)
    ]


def _split_of(path: AnyPath) -> str:
    """Return the split that the name of a file, or else of its folder, names, or an empty text."""
    if shard := _SHARD.fullmatch(path.stem):
        return usual_split(shard["split"]) or shard["split"]
    return usual_split(path.stem) or usual_split(path.parent.name) or ""


def _parquet_schema(
    paths: Sequence[AnyPath], dropped: Collection[str]
) -> tuple[list[str], list[int], dict[str, pa.DataType], dict[str, tuple[str, ...]]]:
    """Return the columns of all files, the rows of each file, and types and class names by column."""
    lengths: list[int] = []
    for path in paths:
        with _parquet(path) as file:
            own = file.schema_arrow
            lengths.append(file.metadata.num_rows)
        flat = flattened(pa.Table.from_batches([], own)).schema
        check_no_repeats(flat.names, path)
        if path == paths[0]:
            names, class_names = flat.names, classes_in(own.metadata)
            types = {field.name: field.type for field in flat if field.name not in dropped}
        if classes_in(own.metadata) != class_names:
            raise InputError(
                f"{path}: the class names in its metadata differ from those of {paths[0]}; build them as "
                "two datasets with the same class_names=, and merge these"
            )
        check_same_columns(path, flat.names, paths[0], names)
        for name, kind in types.items():
            pair = [pa.schema([(name, each)]) for each in (kind, flat.field(name).type)]
            try:
                types[name] = pa.unify_schemas(pair, promote_options="default").field(0).type
            except pa.ArrowException as error:
                raise InputError(
                    f"{paths[0]} and {path}: {first_line(error)}; save {name!r} with one type in all files"
                ) from None
    return names, lengths, types, class_names


def _parquet_tables(path: AnyPath, names: Collection[str]) -> Iterator[pa.Table]:
    """Yield some rows of a Parquet file at a time; fields of structs are columns."""
    with _parquet(path) as file:
        tops = [
            top for top in file.schema_arrow.names if any(f"{name}/".startswith(f"{top}/") for name in names)
        ]
        metadata = file.metadata
        num_bytes = sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
        num_rows = min(max(1, _BATCH_BYTES * metadata.num_rows // max(1, num_bytes)), _BATCH_ROWS)
        # a table without columns has no rows
        for batch in file.iter_batches(num_rows, columns=tops) if tops else ():
            yield flattened(pa.Table.from_batches([batch])).select([*names])


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its class."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def _parquet(path: AnyPath) -> Iterator[pa.parquet.ParquetFile]:
    """Yield an open Parquet file, of which no more than a part of a row group is in memory."""
    try:
        # a copy of an object, of which Arrow would ask for many small parts
        with path.local_copy() as local, local.open_regular() as file:
            yield pa.parquet.ParquetFile(file, buffer_size=_COPY_BYTES, pre_buffer=False)
    except OSError as error:
        raise unreadable(path, error) from None
    except pa.ArrowException as error:
        raise InputError(f"{path}: cannot be read: {first_line(error)}") from None
