"""Tables in one file, or in several Parquet files, whose names may be those of splits."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

import pyarrow as pa

from tfshards.prep.imaging.formats import METADATA_NAMES
from tfshards.prep.sources.tables.files import TableFile, read_table, table_path
from tfshards.prep.sources.usual_splits import SPLIT_FOLDERS
from tfshards.schemas import InputError

# data/train-00000-of-00002.parquet, perhaps with a hash, as Hugging Face writes them
_SHARD = re.compile(r"(?P<split>.+?)-[0-9]+-of-[0-9]+(-[0-9a-f]+)?")
_SPLIT = "split"


def table_paths(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a table: a file, the metadata file of a folder, or Parquet files.

    Parquet files are those that match a pattern, or those in a folder without a metadata file, or in its
    subfolders, sorted by path.

    Raises:
        OptionsError: the suffix of the file is not supported.
        InputError: there is no such file, a folder has neither a metadata file nor Parquet files, or
            several metadata files.
    """
    text, folder = os.fspath(path), Path(path)
    if glob.has_magic(text) and not folder.exists():
        found = sorted(Path(each) for each in glob.glob(text, recursive=True) if each.endswith(".parquet"))
        if not found:
            raise InputError(f"{path}: there is no such file, and no Parquet file matches the pattern")
        return found
    if folder.is_dir() and not any((folder / name).is_file() for name in METADATA_NAMES):
        found = sorted(folder.rglob("*.parquet"))
        visible = [
            each for each in found if not any(p.startswith(".") for p in each.relative_to(folder).parts)
        ]
        if visible:
            return visible
    return [table_path(path)]


def read_tables(paths: Sequence[Path], text_columns: Collection[str]) -> TableFile:
    """Return the rows of all files; see ``files.read_table``.

    If the names of several files, or of their folders, are those of splits, as in
    ``train-00000-of-00002.parquet`` or ``test/0000.parquet``, the column ``split`` holds them.

    Raises:
        InputError: a file cannot be read, or its columns are not those of the first file.
    """
    if len(paths) == 1:
        return read_table(paths[0], text_columns)
    files = [read_table(path, text_columns) for path in paths]
    first = files[0]
    for path, file in zip(paths, files, strict=True):
        if not file.table.schema.equals(first.table.schema):
            raise InputError(
                f"{path}: its columns or their types are not those of {paths[0]}; build them as two datasets"
            )
    table = pa.concat_tables([file.table for file in files])
    splits = [_split_of(path) for path in paths]
    if _SPLIT not in table.column_names and all(splits):
        lengths = [file.table.num_rows for file in files]
        chunks = [pa.array([name] * count) for name, count in zip(splits, lengths, strict=True)]
        table = table.append_column(_SPLIT, pa.chunked_array(chunks, pa.string()))
    digest = hashlib.sha256("".join(file.digest for file in files).encode("ascii")).hexdigest()
    return TableFile(table, f"sha256:{digest}", (), first.class_names)


def _split_of(path: Path) -> str | None:
    """Return the split that the name of a file, or else of its folder, names, or None."""
    shard = _SHARD.fullmatch(path.stem)
    if shard:
        return shard["split"]
    names = (path.stem, path.parent.name)
    return next((name for name in names if os.fsencode(name.lower()) in SPLIT_FOLDERS), None)
