"""Tables in one file, or in several Parquet files, which may be named after splits."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

import pyarrow as pa

from tfshards.prep.imaging.formats import METADATA_NAMES
from tfshards.prep.sources.boundary import Boundary
from tfshards.prep.sources.classes import SPLIT_FOLDERS
from tfshards.prep.sources.patterns import key_pattern
from tfshards.prep.sources.tables.files import TableFile, read_table, table_path
from tfshards.schemas import InputError
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.untrusted import open_regular

# data/train-00000-of-00002.parquet, perhaps with a hash, as Hugging Face writes them
_SHARD = re.compile(r"(?P<split>.+?)-(?P<index>[0-9]+)-of-(?P<count>[0-9]+)(-[0-9a-f]+)?")
_SPLIT = "split"


def table_paths(path: str | os.PathLike[str], *, follow_links: bool) -> list[AnyPath]:
    """Return the files of a table: a file, the metadata file of a folder, or Parquet files.

    Parquet files are those that match a pattern, or those in a folder without a metadata file, or in its
    subfolders, sorted by path. ``follow_links`` allows links out of the folder, or that of the pattern.
    """
    folder = any_path(path)
    try:
        found = _table_paths(path, folder)
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


def _table_paths(path: str | os.PathLike[str], folder: AnyPath) -> list[AnyPath]:
    if glob.has_magic(str(folder)) and not folder.exists():
        found = sorted(each for each in _matches(folder) if each.suffix == ".parquet")
        if not found:
            raise InputError("table-no-match", path=path)
        return found
    if folder.is_dir() and not any((folder / name).is_file() for name in METADATA_NAMES):
        start = len(str(folder))
        found = sorted(folder.rglob("*.parquet"))
        found = [each for each in found if "/." not in str(each)[start:]]
        for line in _missing_parts(found):
            raise InputError("parts-missing", path=path, missing=line, folder=folder / "*.parquet")
        if found:
            return found
    return [table_path(path)]


def _matches(pattern: AnyPath) -> list[AnyPath]:
    """Return the files whose paths match a pattern, in which ``**`` matches across folders."""
    if isinstance(pattern, Path):
        return [Path(each) for each in glob.glob(str(pattern), recursive=True)]
    folder = pattern
    while glob.has_magic(folder.key):
        folder = folder.parent
    matches = key_pattern(pattern.key).fullmatch
    return [path for path, _ in folder.walk([]) if matches(path.key)]


def read_tables(paths: Sequence[AnyPath], text_columns: Collection[str]) -> TableFile:
    """Return the rows of all files, which must have the same columns and class names; see ``read_table``.

    If the names of several files, or of their folders, are those of splits, as in
    ``train-00000-of-00002.parquet`` or ``test/0000.parquet``, the column ``split`` holds them.
    """
    files = [read_table(path, text_columns) for path in paths]
    first = files[0]
    for path, file in zip(paths, files, strict=True):
        if not file.table.schema.equals(first.table.schema):
            raise InputError("parts-columns-differ", path=path, paths=paths[0])
        if file.class_names != first.class_names:
            raise InputError("parts-classes-differ", path=path, paths=paths[0])
    table, lengths = pa.concat_tables([file.table for file in files]), [file.table.num_rows for file in files]
    if not table.num_rows:
        raise InputError("table-no-rows", path=paths[0])
    warnings = [*first.warnings, *_missing_parts(paths)]
    warnings += [f"{path} has no rows" for path, length in zip(paths, lengths, strict=True) if not length]
    splits = [_split_of(path) for path in paths] if len(paths) > 1 else []
    if _SPLIT not in table.column_names and any(splits):
        if not all(splits):
            other, named = paths[splits.index(None)], paths[[*map(bool, splits)].index(True)]
            raise InputError("parts-splits", other=other, named=named)
        chunks = [
            pa.array([name] * length, pa.string()) for name, length in zip(splits, lengths, strict=True)
        ]
        table = table.append_column(_SPLIT, pa.chunked_array(chunks, pa.string()))
    digest = hashlib.sha256("".join(file.digest for file in files).encode("ascii")).hexdigest()
    return TableFile(
        table, f"sha256:{digest}" if len(files) > 1 else first.digest, tuple(warnings), first.class_names
    )


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
        return shard["split"]
    names = (path.stem, path.parent.name)
    return next((name for name in names if os.fsencode(name.lower()) in SPLIT_FOLDERS), None)
