"""The rows to stage: image paths, stored values, splits and keys, from the columns of a table."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.classes import SPLIT_FOLDERS, twins
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.split_lists import read_split_lists
from tfshards.prep.sources.tables.assigned_columns import AssignedColumns
from tfshards.prep.sources.tables.features import (
    TEXT,
    StoredColumn,
    fields_of,
    is_image_struct,
    plain_values,
    row_bytes,
    shown,
)
from tfshards.prep.sources.tables.labels import folder_splits, split_column
from tfshards.prep.sources.tables.staging import BYTES, DROPPED, IMAGE, KEY, PATH, SAME, SPLIT, VALUE
from tfshards.schemas import InputError
from tfshards.schemas.errors import counted
from tfshards.schemas.storage import AnyPath


def rows_to_stage(table: pa.Table, assigned: AssignedColumns, stored: Sequence[StoredColumn]) -> pa.Table:
    """Return the columns to stage, with their names in the staged file."""
    rows = {}
    no_paths = pa.chunked_array([pa.nulls(table.num_rows)])
    for column, feature in assigned.images.items():
        values, is_embedded = table[column], feature in assigned.embedded
        default = "bytes" if is_embedded else "path"
        fields = fields_of(values) if is_image_struct(values.type) else {default: values}
        paths = fields.get("path", no_paths)
        plain = plain_values(column, paths.cast(TEXT) if is_embedded else paths, values.type)
        if plain.type != TEXT:
            raise InputError("column-paths-type", name=column, kind=shown(values.type))
        # as in CSV
        rows[PATH + feature] = plain.fill_null(b"")
        if is_embedded:
            rows[IMAGE + feature] = fields["bytes"].cast(TEXT)
    rows |= {VALUE + column.feature.name: column.values for column in stored}
    split = assigned.split
    if split is not None:
        is_of_paths = split in assigned.images
        names = folder_splits(rows[PATH + assigned.images[split]]) if is_of_paths else table[split]
        rows[SPLIT] = split_column(split, names)
    # rows may be grouped by columns that are not stored
    used = {*assigned.images, *assigned.stored, split}
    rows |= {DROPPED + name: table[name] for name in table.column_names if name not in used}
    sizes = sum((row_bytes(column) for column in stored), np.zeros(table.num_rows, dtype=np.int64))
    return pa.table({**rows, BYTES: sizes})


def with_listed_splits(
    rows: pa.Table, lists: Mapping[str, str], folder: AnyPath, images: Sequence[str]
) -> tuple[pa.Table, str, list[str]]:
    """Return the rows whose first images are in lists, with splits; a digest of the lists, and lines."""
    if not images or IMAGE + images[0] in rows.column_names or SPLIT in rows.column_names:
        raise InputError("split-list-table")
    paths = [os.path.normpath(path) for path in rows[PATH + images[0]].to_pylist()]
    listed = read_split_lists(lists, folder, {*paths})
    if listed.label_of:
        raise InputError("split-list-table-labels")
    left, lines = listed.unlisted({*paths})
    rows = rows.filter(pa.array([path not in left for path in paths]))
    splits = [to_bytes(listed.split_of[path]) for path in paths if path not in left]
    return rows.append_column(SPLIT, pa.array(splits, TEXT)), listed.digest, lines


def with_split_folders(
    assigned: AssignedColumns, rows: pa.Table
) -> tuple[AssignedColumns, pa.Table, list[str]]:
    """Return the columns and rows with the splits that the folders of the images name, and a line on it.

    As in folders of images, all first folders must have usual names of splits, and there must be several.
    """
    columns = [column for column, name in assigned.images.items() if name not in assigned.masks]
    if not columns or assigned.images[columns[0]] in assigned.embedded:
        return assigned, rows, []
    column = columns[0]
    folders = folder_splits(rows[PATH + assigned.images[column]])
    names = sorted(pc.unique(folders).to_pylist())
    usual = [name for name in names if name.lower() in SPLIT_FOLDERS]
    if len(usual) < 2:
        return assigned, rows, []
    listed = b", ".join(usual).decode()
    if len(usual) < len(names):
        line = f"column {column!r}: only some paths are in the folders {listed}, so these are not splits"
        return assigned, rows, [f"{line}; add a column split"]
    line = f"the splits are the folders {listed} in column {column!r}, as with split={column!r}"
    rows = rows.append_column(SPLIT, split_column(column, folders))
    return replace(assigned, split=column), rows, [f"{line}; split='' builds no splits"]


def in_order_of_keys(rows: pa.Table, images: Sequence[str]) -> tuple[pa.Table, list[str]]:
    """Return the rows, sorted by the paths of the first image as ``KEY`` if these can be keys, and warnings.

    Paths that are repeated or empty, or contain NUL, cannot be keys. The keys are then the row numbers, and a
    warning reports it, because a row that is inserted later changes the keys of others.
    """
    if not images:
        return rows, []
    paths = rows[PATH + images[0]]
    found, counts = pc.value_counts(paths).flatten()
    repeated = found.filter(pc.greater(counts, 1))
    if not len(repeated) and all(path and b"\0" not in path for path in found.to_pylist()):
        rows = rows.take(pc.array_sort_indices(paths.combine_chunks()))
        return rows.append_column(KEY, rows[PATH + images[0]]), []
    if IMAGE + images[0] in rows.column_names:
        # images in a table need no paths
        return rows, []
    fault = "a row names no file"
    if len(repeated):
        first = to_text(repeated[0].as_py())
        fault = f"several rows have the same image, for {counted(len(repeated), 'image')}, such as {first!r}"
    return rows, [f"{fault}: the keys of the examples are row numbers, not paths"]


def split_warnings(rows: pa.Table, images: Sequence[str]) -> list[str]:
    """Return warnings about names of splits that look alike, and images that are in several splits."""
    if SPLIT not in rows.column_names:
        return []
    warnings = twins(map(to_text, pc.unique(rows[SPLIT]).to_pylist()), "splits")
    if not images or IMAGE + images[0] in rows.column_names:
        # images in a table may have paths that are not unique
        return warnings
    splits_of: dict[bytes, dict[bytes, None]] = defaultdict(dict)
    for image, split in zip(rows[SAME].to_pylist(), rows[SPLIT].to_pylist(), strict=True):
        splits_of[image][split] = None
    if shared := [image for image, splits in splits_of.items() if len(splits) > 1]:
        names = " and ".join(map(to_text, splits_of[shared[0]]))
        number = counted(len(shared), "image")
        warnings.append(f"{number} in several splits, such as {to_text(shared[0])!r} in {names}")
    return warnings
