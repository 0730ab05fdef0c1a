"""Tables in one file, or in several Parquet files, which may be named after splits."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from tfshards.prep.imaging.formats import METADATA_NAMES
from tfshards.prep.sources.boundary import Boundary
from tfshards.prep.sources.classes import SPLIT_FOLDERS
from tfshards.prep.sources.tables.files import TableFile, read_table, table_path
from tfshards.prep.sources.tree import key_pattern
from tfshards.schemas import InputError
from tfshards.schemas.storage import AnyPath, RemotePath, any_path
from tfshards.schemas.storage.untrusted import open_regular

# data/train-00000-of-00002.parquet, perhaps with a hash, as Hugging Face writes them
_SHARD = re.compile(r"(?P<split>.+?)-(?P<index>[0-9]+)-of-(?P<count>[0-9]+)(-[0-9a-f]+)?")
_SPLIT = "split"


def table_paths(path: str | os.PathLike[str], *, follow_links: bool) -> list[AnyPath]:
    """Return the files of a table: a file, the metadata file of a folder, or Parquet files.

    Parquet files are those that match a pattern, or those in a folder without a metadata file, or in its
    subfolders, sorted by path.

    Args:
        path: the file, the folder or the pattern.
        follow_links: follow links out of the folder, or out of the folder of the pattern.

    Raises:
        OptionsError: the suffix of the file is not supported.
        InputError: there is no such file, a folder has neither a metadata file nor Parquet files, or
            several metadata files, or the names of the Parquet files count files that are missing; or a file
            is a link to one elsewhere.
    """
    text, folder = os.fspath(path), any_path(path)
    try:
        found = _table_paths(text, folder)
        while glob.has_magic(str(folder)) and not folder.exists():
            folder = folder.parent
        if isinstance(folder, Path) and found != [folder]:
            inside = Boundary(folder, follow_links=follow_links)
            for each in found:
                inside.check(str(each))
                open_regular(each).close()
        return found
    except OSError as error:
        raise InputError("unreadable", path=path, why=error.strerror or error) from None


def _table_paths(path: str, folder: AnyPath) -> list[AnyPath]:
    if glob.has_magic(path) and not folder.exists():
        matches = _matches(path) if isinstance(folder, Path) else _matching_objects(folder)
        found = sorted(each for each in matches if each.suffix == ".parquet")
        if not found:
            raise InputError("table-no-match", path=path)
        return found
    if folder.is_dir() and not any((folder / name).is_file() for name in METADATA_NAMES):
        found = sorted(folder.rglob("*.parquet"))
        visible = [
            each for each in found if not any(part.startswith(".") for part in _parts_below(each, folder))
        ]
        if visible:
            missing = _missing_parts(visible)
            if missing:
                raise InputError("parts-missing", path=path, missing=missing[0], folder=folder / "*.parquet")
            return visible
    return [table_path(path)]


def _matches(pattern: str) -> list[AnyPath]:
    return [Path(each) for each in glob.glob(pattern, recursive=True)]


def _matching_objects(pattern: RemotePath) -> list[AnyPath]:
    """Return the objects whose keys match a pattern, in which ``**`` matches across folders."""
    folder = pattern
    while glob.has_magic(folder.key):
        folder = folder.parent
    matches = key_pattern(pattern.key).fullmatch
    return [path for path, _ in folder.walk([]) if matches(path.key)]


def _parts_below(path: AnyPath, folder: AnyPath) -> list[str]:
    """Return the names in the path of a file below a folder."""
    return str(path)[len(str(folder)) :].strip("/").split("/")


def read_tables(paths: Sequence[AnyPath], text_columns: Collection[str]) -> TableFile:
    """Return the rows of all files; see ``files.read_table``.

    If the names of several files, or of their folders, are those of splits, as in
    ``train-00000-of-00002.parquet`` or ``test/0000.parquet``, the column ``split`` holds them.

    Raises:
        InputError: a file cannot be read, its columns or class names are not those of the first file, or
            only some of the names are names of splits.
    """
    missing = tuple(_missing_parts(paths))
    if len(paths) == 1:
        found = read_table(paths[0], text_columns)
        return replace(found, warnings=(*found.warnings, *missing))
    files = [read_table(path, text_columns, may_be_empty=True) for path in paths]
    first = files[0]
    for path, file in zip(paths, files, strict=True):
        if not file.table.schema.equals(first.table.schema):
            raise InputError("parts-columns-differ", path=path, paths=paths[0])
        if file.class_names != first.class_names:
            raise InputError("parts-classes-differ", path=path, paths=paths[0])
    table = pa.concat_tables([file.table for file in files])
    if not table.num_rows:
        raise InputError("parts-no-rows", paths=paths[0])
    empty = [
        f"{path} has no rows" for path, file in zip(paths, files, strict=True) if not file.table.num_rows
    ]
    splits = [_split_of(path) for path in paths]
    if _SPLIT not in table.column_names and any(splits):
        if not all(splits):
            other, named = paths[splits.index(None)], paths[[*map(bool, splits)].index(True)]
            raise InputError("parts-splits", other=other, named=named)
        lengths = [file.table.num_rows for file in files]
        chunks = [pa.array([name] * count, pa.string()) for name, count in zip(splits, lengths, strict=True)]
        table = table.append_column(_SPLIT, pa.chunked_array(chunks, pa.string()))
    digest = hashlib.sha256("".join(file.digest for file in files).encode("ascii")).hexdigest()
    return TableFile(table, f"sha256:{digest}", (*missing, *empty), first.class_names)


def _missing_parts(paths: Sequence[AnyPath]) -> list[str]:
    """Return a line for each series of files, such as ``train-*-of-00002``, of which files are missing."""
    found: dict[tuple[AnyPath, str, str], set[int]] = {}
    for path in paths:
        shard = _SHARD.fullmatch(path.stem)
        if shard:
            series = (path.parent, shard["split"], shard["count"])
            found.setdefault(series, set()).add(int(shard["index"]))
    lines = []
    for (folder, split, count), indices in found.items():
        absent = int(count) - len(indices)
        if absent > 0:
            files = folder / f"{split}-*-of-{count}"
            lines.append(
                f"{absent:,} of the {int(count):,} files {files} {'are' if absent > 1 else 'is'} missing"
            )
    return lines


def _split_of(path: AnyPath) -> str | None:
    """Return the split that the name of a file, or else of its folder, names, or None."""
    shard = _SHARD.fullmatch(path.stem)
    if shard:
        return shard["split"]
    names = (path.stem, path.parent.name)
    return next((name for name in names if os.fsencode(name.lower()) in SPLIT_FOLDERS), None)
