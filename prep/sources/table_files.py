"""Find the files of a table, read them, and join their columns by name."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet

from tfshards.prep.imaging.formats import METADATA_NAMES
from tfshards.prep.sources.boundary import Boundary
from tfshards.prep.sources.classes import repeated
from tfshards.prep.sources.features import (
    classes_in,
    flattened,
    is_bytes_type,
    is_image_struct,
    is_list_type,
    is_text_type,
    shown,
)
from tfshards.prep.sources.fetching import local_copy, unreadable
from tfshards.prep.sources.patterns import key_pattern
from tfshards.prep.sources.splits import usual_split
from tfshards.prep.sources.table_rows import Batches, TableRows
from tfshards.prep.sources.text_tables import add_json, csv_columns, json_array, path_column, typed
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import listed
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.untrusted import open_regular

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
# data/train-00000-of-00002.parquet, perhaps with a hash, as Hugging Face writes them
_SHARD = re.compile(r"(?P<split>.+?)-(?P<index>[0-9]+)-of-(?P<count>[0-9]+)(-[0-9a-f]+)?")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_SPLIT = "split"
_SHOWN = 30
_COPY_BYTES = 1 << 20
# Rows of a Parquet file that are read at a time: about as many bytes, and at most as many rows.
_BATCH_BYTES, _BATCH_ROWS = 8 << 20, 1 << 16


class TableFiles(NamedTuple):
    """The files of a table.

    Attributes:
        paths: the files, sorted.
        base: the folder below which names of folders, such as ``year=2024``, are values of columns.
        where: what messages name.
    """

    paths: Sequence[AnyPath]
    base: AnyPath
    where: AnyPath


def find_files(path: str | os.PathLike[str], *, follow_links: bool) -> TableFiles:
    """Return the files of a table: a file, the metadata file of a folder, or files of one suffix.

    These match a pattern, or are below a folder without a metadata file. ``follow_links`` allows links out of
    the folder, or that of the pattern.
    """
    base = any_path(path)
    try:
        paths = _find(path, base)
        while glob.has_magic(str(base)) and not base.exists():
            base = base.parent
        if isinstance(base, Path) and paths != [base]:
            inside = Boundary(base, follow_links=follow_links)
            for each in paths:
                inside.check(str(each))
                open_regular(each).close()
        return TableFiles(paths, base, paths[0] if len(paths) == 1 else any_path(path))
    except OSError as error:
        raise unreadable(os.fspath(path), error) from None


def _find(path: str | os.PathLike[str], folder: AnyPath) -> list[AnyPath]:
    if glob.has_magic(str(folder)) and not folder.exists():
        return _of_one_suffix(path, _matches(folder))
    if not folder.is_dir():
        if not folder.is_file():
            raise InputError("table-missing", path=path)
        if folder.suffix.lower() not in SUFFIXES:
            how = "save it as Parquet or CSV, for example with pandas or DuckDB"
            raise OptionsError(f"{path}: tables have the suffixes {', '.join(SUFFIXES)} || {how}")
        return [folder]
    metadata = [name for name in METADATA_NAMES if (folder / name).is_file()]
    if len(metadata) == 1:
        return [folder / metadata[0]]
    deeper = sorted(each.parent.name for name in METADATA_NAMES for each in folder.glob(f"*/{name}"))
    if metadata or deeper:
        code = "table-folder" if metadata else "table-metadata-deeper"
        raise InputError(code, path=path, names=METADATA_NAMES, deeper=listed(deeper, _SHOWN))
    start = len(str(folder))
    below = [each for suffix in SUFFIXES for each in folder.rglob(f"*{suffix}")]
    found = _of_one_suffix(path, [each for each in below if "/." not in str(each)[start:]])
    for line in _missing_parts(found):
        raise InputError("parts-missing", path=path, missing=line, folder=folder / f"*{found[0].suffix}")
    return found


def _of_one_suffix(path: str | os.PathLike[str], found: Sequence[AnyPath]) -> list[AnyPath]:
    """Return the files that are tables, which have one suffix."""
    by_suffix: dict[str, list[AnyPath]] = {}
    for each in sorted(found):
        if each.suffix.lower() in SUFFIXES:
            by_suffix.setdefault(each.suffix.lower(), []).append(each)
    if not by_suffix:
        raise InputError(f"{path}: there is no table; tables have the suffixes {', '.join(SUFFIXES)}")
    if len(by_suffix) > 1:
        first, second = (files[0] for files in [*by_suffix.values()][:2])
        pattern = f"'{path}/**/*{first.suffix}'"
        raise InputError(f"{path} has tables of two kinds: {first} and {second} || name one by {pattern}")
    return next(iter(by_suffix.values()))


def _matches(pattern: AnyPath) -> list[AnyPath]:
    """Return the files whose paths match a pattern, in which ``**`` matches across folders."""
    if isinstance(pattern, Path):
        return [Path(each) for each in glob.glob(str(pattern), recursive=True)]
    folder = pattern
    while glob.has_magic(folder.key):
        folder = folder.parent
    matches = key_pattern(pattern.key).fullmatch
    return [path for path, _ in folder.walk([]) if matches(path.key)]


def read_files(files: TableFiles, dropped: Collection[str], is_path: Callable[[str], bool]) -> TableRows:
    """Return the rows of all files, without columns that are dropped.

    The names of several files, or of their folders, may be those of splits, as in
    ``train-00000-of-00002.parquet`` or ``test/0000.parquet``, which the column ``split`` holds. Folders such
    as ``year=2024`` below the folder of the source are columns.

    Args:
        files: the files.
        dropped: columns that are not needed.
        is_path: whether a column of a text table holds paths, which are not typed.

    Raises:
        InputError: a file cannot be read, or a column is not in all files, or has types that are not joined.
    """
    paths = files.paths
    warnings = _missing_parts(paths)
    if paths[0].suffix.lower() == ".parquet":
        return _read_parquet(files, dropped, warnings)
    columns: dict[str, list[Any]] = {}
    counts = [0]
    is_json = paths[0].suffix.lower() in (".jsonl", ".ndjson")
    for path in paths:
        if is_json:
            counts.append(add_json(path, columns, counts[-1]))
            continue
        found = csv_columns(path)
        if path != paths[0]:
            _check_same(path, found, paths[0], columns)
        for name, texts in found.items():
            columns.setdefault(name, []).extend(texts)
        counts.append(counts[-1] + len(next(iter(found.values()))))
    lengths = [end - start for start, end in pairwise(counts)]
    if not counts[-1]:
        raise InputError("table-no-rows", path=files.where)
    arrays: dict[str, pa.Array] = {}
    for name, values in columns.items():
        if name in dropped:
            continue
        if is_path(name):
            arrays[name] = path_column(values, name, files.where)
        elif is_json:
            arrays[name] = json_array(name, values, files.where)
        else:
            arrays[name], warning = typed(name, values, files.where)
            warnings += [warning] if warning else []
    more, notes = _columns_of_folders(files, [*columns], lengths)
    unread = [name for name in columns if name not in arrays]
    return TableRows(
        flattened(pa.table({**arrays, **more})),
        where=str(files.where),
        warnings=(*warnings, *notes),
        unread=tuple(unread),
    )


def _check_same(path: AnyPath, names: Collection[str], first: AnyPath, others: Collection[str]) -> None:
    """Raise InputError unless a file has the columns that the first one has, in any order."""
    for name in sorted({*names} ^ {*others}):
        lacks, has = (first, path) if name in names else (path, first)
        raise InputError(f"{lacks} has no column {name!r}, which {has} has || build them as two datasets")


def _columns_of_folders(
    files: TableFiles, names: Collection[str], lengths: Sequence[int]
) -> tuple[dict[str, pa.Array], list[str]]:
    """Return the columns that the names of files and folders give, and warnings about them."""
    paths = files.paths
    start = len(str(files.base))
    folders = [str(path.parent)[start:].split("/") for path in paths] if len(str(files.base)) else []
    pairs = [dict(part.split("=", 1) for part in each if "=" in part) for each in folders]
    found = {unquote(name): [unquote(each.get(name, "")) for each in pairs] for name in pairs[0]}
    for path, each in zip(paths, pairs, strict=True):
        if {*each} != {*pairs[0]}:
            raise InputError(
                f"{path} is not in folders of {', '.join(pairs[0]) or 'no values'}=, as {paths[0]}"
            )
    for name in found:
        if name in names:
            raise InputError(
                f"{files.where}: the column {name!r} is in the files, and {name}= in the folders"
            )
    splits = [_split_of(path) for path in paths] if len(paths) > 1 else []
    if _SPLIT not in {*names, *found} and any(splits):
        if None in splits:
            other, named = paths[splits.index(None)], paths[[*map(bool, splits)].index(True)]
            raise InputError("parts-splits", other=other, named=named)
        found[_SPLIT] = [split or "" for split in splits]
    columns: dict[str, pa.Array] = {}
    warnings: list[str] = []
    for name, values in found.items():
        given = ["" if value == _NO_VALUE else value for value in values]
        texts = [text for text, length in zip(given, lengths, strict=True) for _ in range(length)]
        columns[name], warning = typed(name, texts, files.where)
        warnings += [warning] if warning else []
    return columns, warnings


def _missing_parts(paths: Sequence[AnyPath]) -> list[str]:
    """Return a line for each series of files, such as ``train-*-of-00002``, of which files are missing."""
    found: dict[tuple[AnyPath, str, str], set[int]] = {}
    for path in paths:
        if shard := _SHARD.fullmatch(path.stem):
            series = (path.parent, shard["split"], shard["count"])
            found.setdefault(series, set()).add(int(shard["index"]))
    return [
        f"{int(count) - len(indices):,} of the {int(count):,} files {folder}/{split}-*-of-{count} missing"
        for (folder, split, count), indices in found.items()
        if len(indices) < int(count)
    ]


def _split_of(path: AnyPath) -> str | None:
    """Return the split that the name of a file, or else of its folder, names, or None."""
    if shard := _SHARD.fullmatch(path.stem):
        return usual_split(shard["split"]) or shard["split"]
    return usual_split(path.stem) or usual_split(path.parent.name)


def _read_parquet(files: TableFiles, dropped: Collection[str], warnings: list[str]) -> TableRows:
    paths = files.paths
    schemas, lengths = zip(*map(_parquet_schema, paths), strict=True)
    class_names = classes_in(schemas[0].metadata)
    for path, schema in zip(paths, schemas, strict=True):
        if classes_in(schema.metadata) != class_names:
            raise InputError("parts-classes-differ", path=path, paths=paths[0])
    if not any(lengths):
        raise InputError("table-no-rows", path=files.where)
    warnings += [f"{path} has no rows" for path, length in zip(paths, lengths, strict=True) if not length]
    flat = [flattened(schema.empty_table()).schema for schema in schemas]
    for path, each in zip(paths, flat, strict=True):
        for name in repeated(each.names):
            raise InputError("column-repeated", path=path, twice=name)
        _check_same(path, each.names, paths[0], flat[0].names)
    types = {field.name: field.type for field in flat[0] if field.name not in dropped}
    for path, each in zip(paths[1:], flat[1:], strict=True):
        for name, kind in types.items():
            types[name] = _joined_type(name, kind, each.field(name).type, f"{paths[0]} and {path}")
    ends = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
    more, notes = _columns_of_folders(files, flat[0].names, lengths)
    schema = pa.schema([*types.items(), *((name, column.type) for name, column in more.items())])

    def tables() -> Iterator[pa.Table]:
        for number, path in enumerate(paths):
            start = ends[number]
            for table in _parquet_batches(path, types):
                for name, column in more.items():
                    table = table.append_column(name, column.slice(start, table.num_rows))
                start += table.num_rows
                yield table.cast(schema)

    unread = [name for name in flat[0].names if name not in types]
    return TableRows(
        Batches(schema, tables()),
        where=str(files.where),
        class_names=class_names,
        warnings=(*warnings, *notes),
        unread=tuple(unread),
    )


def _is_plain_bytes(kind: pa.DataType) -> bool:
    return is_bytes_type(kind) and not is_text_type(kind)


def _parquet_schema(path: AnyPath) -> tuple[pa.Schema, int]:
    with _parquet(path) as file:
        return file.schema_arrow, file.metadata.num_rows


def _parquet_batches(path: AnyPath, types: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
    with _parquet(path) as file:
        tops = [name for name in file.schema_arrow.names if any(_is_in(each, name) for each in types)]
        metadata = file.metadata
        num_bytes = sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
        num_rows = min(max(1, _BATCH_BYTES * metadata.num_rows // max(1, num_bytes)), _BATCH_ROWS)
        # a table without columns has no rows
        for batch in file.iter_batches(num_rows, columns=tops) if tops else ():
            table = flattened(pa.Table.from_batches([batch])).select([*types])
            yield table.cast(pa.schema([*types.items()]))


def _is_in(column: str, name: str) -> bool:
    return column == name or column.startswith(f"{name}/")


@contextmanager
def _parquet(path: AnyPath) -> Iterator[pa.parquet.ParquetFile]:
    """Yield an open Parquet file, of which no more than a part of a row group is in memory."""
    try:
        with local_copy(path) as copy, open_regular(copy) as file:
            yield pa.parquet.ParquetFile(file, buffer_size=_COPY_BYTES, pre_buffer=False)
    except OSError as error:
        raise unreadable(path, error) from None
    except pa.ArrowException as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError("table-unreadable", path=path, reason=line) from None


def _joined_type(name: str, one: pa.DataType, other: pa.DataType, where: str) -> pa.DataType:
    """Return the type that holds the values of two types without loss.

    Types of text are joined, and of bytes, lists of any form, dictionaries and their values, and null with
    any other type.
    """
    found = _joined(one, other)
    if found is None:
        raise InputError(f"{where}: column {name!r} is {shown(one)} in one, and {shown(other)} in the other")
    return found


def _joined(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if one.equals(other):
        return one
    plain, also = (kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (one, other))
    if pa.types.is_null(plain) or pa.types.is_null(also):
        return also if pa.types.is_null(plain) else plain
    if is_text_type(plain) and is_text_type(also):
        return pa.large_string()
    if _is_plain_bytes(plain) and _is_plain_bytes(also):
        return pa.large_binary()
    if is_list_type(plain) and is_list_type(also):
        item = _joined(plain.value_type, also.value_type)
        return None if item is None else pa.large_list(item)
    if is_image_struct(plain) and is_image_struct(also):
        return pa.struct([("bytes", pa.large_binary()), ("path", pa.large_string())])
    return plain if plain.equals(also) else None
