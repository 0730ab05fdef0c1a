"""The rows to stage: image paths, stored values, splits and keys, from the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.classes import SPLIT_FOLDERS, twins
from tfshards.prep.sources.keys import to_text
from tfshards.prep.sources.tables.column_roles import AssignedColumns, fields_of
from tfshards.prep.sources.tables.features import (
    TEXT,
    StoredColumn,
    is_image_struct,
    plain_column,
    row_bytes,
    shown,
)
from tfshards.prep.sources.tables.labels import folder_splits, split_column
from tfshards.prep.sources.tables.staging import BYTES, DROPPED, IMAGE, KEY, PATH, SAME, SPLIT, VALUE
from tfshards.schemas import InputError


def rows_to_stage(table: pa.Table, assigned: AssignedColumns, stored: Sequence[StoredColumn]) -> pa.Table:
    """Return the columns to stage, with their names in the staged file."""
    rows = {}
    for column, feature in assigned.images.items():
        if feature in assigned.embedded:
            rows[PATH + feature], rows[IMAGE + feature] = _paths_and_images(table[column])
        else:
            rows[PATH + feature] = _paths(column, table[column])
    rows |= {VALUE + column.feature.name: column.values for column in stored}
    if assigned.split is not None and assigned.split in assigned.images:
        rows[SPLIT] = split_column(
            assigned.split, folder_splits(rows[PATH + assigned.images[assigned.split]])
        )
    elif assigned.split is not None:
        rows[SPLIT] = split_column(assigned.split, table[assigned.split])
    used = {*assigned.images, *assigned.others, assigned.label, assigned.split}
    # rows may be grouped by columns that are not stored
    rows |= {DROPPED + name: table[name] for name in table.column_names if name not in used}
    sizes = sum((row_bytes(column) for column in stored), np.zeros(table.num_rows, dtype=np.int64))
    return pa.table({**rows, BYTES: sizes})


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
    shown = b", ".join(usual).decode()
    if len(usual) < len(names):
        line = f"column {column!r}: only some paths are in the folders {shown}, so these are no splits"
        return assigned, rows, [f"{line}; add a column split"]
    line = (
        f"the splits are the folders {shown} in column {column!r}, as with "
        f"split={column!r}; split='' builds no splits"
    )
    rows = rows.append_column(SPLIT, split_column(column, folders))
    return replace(assigned, split=column), rows, [line]


def _paths(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the paths in a column; missing paths are empty, as in CSV."""
    if is_image_struct(column.type):
        column = fields_of(column).get("path", pa.chunked_array([pa.nulls(len(column))]))
    if pa.types.is_null(column.type):
        raise InputError("column-no-paths", name=name)
    paths = plain_column(name, column)
    if paths.type != TEXT:
        raise InputError("column-paths-type", name=name, kind=shown(column.type))
    return paths.fill_null(b"")


def _paths_and_images(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return the paths, empty where there are none, and the encoded images of a column."""
    no_paths = pa.chunked_array([pa.array([b""] * len(column), TEXT)])
    if not is_image_struct(column.type):
        return no_paths, column.cast(TEXT)
    fields = fields_of(column)
    paths = fields["path"].cast(TEXT).fill_null(b"") if "path" in fields else no_paths
    return paths, fields["bytes"].cast(TEXT)


def in_order_of_keys(rows: pa.Table, images: Sequence[str]) -> tuple[pa.Table, list[str]]:
    """Return the rows, sorted by the paths of the first image as ``KEY`` if these can be keys, and warnings.

    Paths that are repeated or empty, or contain NUL, cannot be keys. The keys are then the row numbers, and a
    warning reports it, because a row that is inserted later changes the keys of others.
    """
    if not images:
        return rows, []
    paths = rows[PATH + images[0]]
    counts = pc.value_counts(paths).flatten()
    twice = counts[0].filter(pc.greater(counts[1], 1))
    fault = None
    if len(twice):
        more = ""
        if len(twice) > 1:
            are = "images are" if len(twice) > 2 else "image is"
            more = f", and {len(twice) - 1:,} more {are} repeated"
        number = counts[1].filter(pc.greater(counts[1], 1))[0].as_py()
        fault = f"{number:,} rows have the image {to_text(twice[0].as_py())!r}{more}"
    elif any(not path or b"\0" in path for path in paths.to_pylist()):
        fault = "a row names no file"
    if fault and IMAGE + images[0] in rows.column_names:
        # images in a table need no paths
        return rows, []
    if fault:
        return rows, [f"{fault}: the keys of the examples are row numbers, not paths"]
    order = pc.array_sort_indices(paths.combine_chunks())
    rows = rows.take(order)
    return rows.append_column(KEY, rows[PATH + images[0]]), []


def split_warnings(rows: pa.Table, images: Sequence[str]) -> list[str]:
    """Return warnings about names of splits that look alike, and images that are in several splits."""
    if SPLIT not in rows.column_names:
        return []
    warnings = twins(map(to_text, pc.unique(rows[SPLIT]).to_pylist()), "splits")
    if SAME not in rows.column_names or IMAGE + images[0] in rows.column_names:
        # images in a table may have paths that are not unique
        return warnings
    splits_of: dict[bytes, dict[bytes, None]] = {}
    for image, split in zip(rows[SAME].to_pylist(), rows[SPLIT].to_pylist(), strict=True):
        splits_of.setdefault(image, {})[split] = None
    shared = [image for image, splits in splits_of.items() if len(splits) > 1]
    if shared:
        names = " and ".join(map(to_text, splits_of[shared[0]]))
        more = ""
        if len(shared) > 1:
            are = "images are" if len(shared) > 2 else "image is"
            more = f", and {len(shared) - 1:,} more {are} in several splits"
        warnings.append(f"the image {to_text(shared[0])!r} is in the splits {names}{more}")
    return warnings
