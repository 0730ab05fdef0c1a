"""A table whose rows are examples: columns of image paths, of a label, and of anything else to store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.classes import check_class_names, twins
from tfshards.prep.formats import METADATA_NAMES
from tfshards.prep.image_options import ImageOptions
from tfshards.prep.sources.table_columns import (
    TEXT,
    StoredColumn,
    plain_column,
    row_bytes,
    shown,
    stored_column,
)
from tfshards.prep.sources.table_file import read_table, table_path
from tfshards.prep.sources.table_images import stat_images, unmentioned
from tfshards.prep.sources.table_labels import label_column, label_fault, split_column
from tfshards.prep.sources.table_reader import TableReader, mask_options, rows_path
from tfshards.prep.sources.table_roles import Columns, Roles, roles_of
from tfshards.prep.sources.table_staged import BYTES, DROPPED, KEY, PATH, SPLIT, VALUE, stage_table
from tfshards.schemas import Feature, InputError, Schema

_KEY = Feature("key", "bytes", "bytes")


@dataclass(frozen=True)
class Table:
    """The rows of a CSV, JSON lines or Parquet file.

    By the convention of Hugging Face's datasets a column ``file_name`` holds paths of images, relative to the
    table's folder; a column ``NAME_file_name`` holds those of a further image ``NAME``. The key of an example
    is its first image's path; without images, or where two rows have the same one, it is the row's number.

    Attributes:
        path: the file, or a folder with ``metadata.csv``, ``metadata.jsonl`` or ``metadata.parquet`` in it.
        images: what becomes of each image.
        columns: what columns are for whose names do not say it.
        root: the folder to which paths of images are relative; by default the table's.
        class_names: the classes in label order; the labels must be these and no others.
        follow_links: take images that lie outside of ``root``.

    Raises:
        OptionsError: a class name stands twice, or there is none.
    """

    path: str | os.PathLike[str]
    images: ImageOptions = field(default_factory=ImageOptions)
    columns: Columns = field(default_factory=Columns)
    root: str | os.PathLike[str] | None = None
    class_names: Sequence[str] | None = None
    follow_links: bool = False

    def __post_init__(self) -> None:
        check_class_names(self.class_names)

    def location(self) -> None:
        """Return None: the output may lie beside the table."""
        return

    def stage(self, folder: Path, *, preview: bool = False) -> TableReader:
        """Return a reader of the rows; the table is copied into ``folder``, the images are not.

        Raises:
            OptionsError: the file's suffix is none that is read.
            InputError: the table cannot be read, a column is missing or of a type that cannot be stored, or
                an image lies outside of ``root``.
        """
        path = table_path(self.path)
        root = self._root(path)
        found = read_table(path, {*self.columns.images, *self.columns.masks})
        roles = self._roles(found.table, path)
        images = list(roles.images.values())
        stored, names = self._stored(found.table, roles)
        rows, warnings = _in_order_of_keys(_rows(found.table, roles, stored), images)
        rows = stat_images(root, rows, images, follow_links=self.follow_links)
        stage_table(rows, rows_path(folder))
        if images and self.root is None and path.name in METADATA_NAMES:
            # by the convention the folder is the table's own
            warnings += unmentioned(root, rows, images, follow_links=self.follow_links)
        features = [*self._image_features(roles), *(column.feature for column in stored), _KEY]
        inexact = [column.warning for column in stored if column.warning]
        return TableReader(
            str(folder),
            os.fsdecode(root),
            Schema(tuple(features), names),
            roles,
            self.images,
            f"sha256:{found.digest}",
            (*found.warnings, *inexact, *warnings, *twins(names)),
        )

    def _root(self, path: Path) -> bytes:
        root = os.path.realpath(os.fsencode(path.parent if self.root is None else self.root))
        if not os.path.isdir(root):
            raise InputError(f"--root {os.fsdecode(root)} is no folder")
        return root

    def _roles(self, table: pa.Table, path: Path) -> Roles:
        """Return the roles of the columns; one that is only called ``label`` need not hold classes."""
        roles = roles_of(table.column_names, self.columns, str(path))
        if roles.label is None:
            if self.class_names is not None:
                raise InputError(f"{path} has no column of labels; name it with --label")
            return roles
        is_open = not roles.is_label_named and self.class_names is None
        return roles.without_label() if is_open and label_fault(roles.label, table[roles.label]) else roles

    def _stored(self, table: pa.Table, roles: Roles) -> tuple[list[StoredColumn], tuple[str, ...]]:
        """Return all columns that are stored, and the names of the classes."""
        others = [stored_column(name, table[name]) for name in roles.others]
        if roles.label is None:
            return others, ()
        label = label_column(roles.label, table[roles.label], self.class_names)
        return [label.stored, *others], label.names

    def _image_features(self, roles: Roles) -> list[Feature]:
        shapes = {name: mask_options(self.images).shape for name in roles.masks}
        return [
            Feature(name, "image", "uint8", shapes.get(name, self.images.shape))
            for name in roles.images.values()
        ]


def _rows(table: pa.Table, roles: Roles, stored: Sequence[StoredColumn]) -> pa.Table:
    """Return the columns that are staged, under the names of ``table_staged``."""
    rows = {PATH + feature: _paths(column, table[column]) for column, feature in roles.images.items()}
    rows |= {VALUE + column.feature.name: column.values for column in stored}
    if roles.split is not None:
        rows[SPLIT] = split_column(roles.split, table[roles.split])
    used = {*roles.images, *roles.others, roles.label, roles.split}
    # rows may be grouped by what is not stored
    rows |= {DROPPED + name: table[name] for name in table.column_names if name not in used}
    sizes = sum((row_bytes(column) for column in stored), np.zeros(table.num_rows, dtype=np.int64))
    return pa.table({**rows, BYTES: sizes})


def _paths(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the paths in a column; a missing one is empty, as CSV has it."""
    if pa.types.is_null(column.type):
        raise InputError(f"column {name!r}: every path is missing; leave it out with --drop {name}")
    paths = plain_column(name, column)
    if paths.type != TEXT:
        raise InputError(f"column {name!r}: paths of images are text, and these are {shown(column.type)}")
    return paths.fill_null(b"")


def _in_order_of_keys(rows: pa.Table, images: Sequence[str]) -> tuple[pa.Table, list[str]]:
    """Return the rows sorted by the paths of the first image, as ``KEY``, if these are keys.

    They are none if two rows have the same one, or one is empty or holds a NUL: the rows' numbers then are,
    and a warning says so, since a row that is put between others later changes their keys.
    """
    if not images:
        return rows, []
    paths = rows[PATH + images[0]]
    counts = pc.value_counts(paths).flatten()
    twice = counts[0].filter(pc.greater(counts[1], 1))
    fault = None
    if len(twice):
        fault = f"two rows have the image {twice[0].as_py().decode('utf-8', 'surrogateescape')!r}"
    elif any(not path or b"\0" in path for path in paths.to_pylist()):
        fault = "a row names no file"
    if fault:
        return rows, [f"{fault}: the examples' keys are the rows' numbers, not their paths"]
    order = pc.array_sort_indices(paths.combine_chunks())
    rows = rows.take(order)
    return rows.append_column(KEY, rows[PATH + images[0]]), []
