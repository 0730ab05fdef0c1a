"""A table whose rows are examples: columns of image paths, of a label, and of anything else to store."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from tfshards.prep.classes import check_class_names, twins
from tfshards.prep.example import Values
from tfshards.prep.image_options import ImageOptions
from tfshards.prep.images import decoder_versions
from tfshards.prep.sources.image_file import read_image
from tfshards.prep.sources.listing import Accepted, Listing, Outcome, Rejected, Row, RowKeys, to_bytes
from tfshards.prep.sources.table_columns import label_column, plain_column, splits_of, values_of
from tfshards.prep.sources.table_file import ArrowKeys, mapped_table, read_table, stage_table, table_path
from tfshards.prep.sources.table_images import combined, key_order, stat_images, unmentioned
from tfshards.prep.sources.table_roles import Columns, roles_of
from tfshards.schemas import Feature, InputError, Schema
from tfshards.schemas.reading import Json

_KEY = Feature("key", "bytes", "bytes")
_ROWS, _TABLE = "rows.arrow", "table.arrow"


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
        OptionsError: a class name stands twice, or the options for images do not suit a mask.
    """

    path: str | os.PathLike[str]
    images: ImageOptions = field(default_factory=ImageOptions)
    columns: Columns = field(default_factory=Columns)
    root: str | os.PathLike[str] | None = None
    class_names: Sequence[str] | None = None
    follow_links: bool = False

    def __post_init__(self) -> None:
        check_class_names(self.class_names)
        if self.columns.masks:
            _mask_options(self.images)

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
        root = os.path.realpath(os.fsencode(path.parent if self.root is None else self.root))
        if not os.path.isdir(root):
            raise InputError(f"--root {os.fsdecode(root)} is no folder")
        table, digest = read_table(path, {*self.columns.images, *self.columns.masks})
        roles = roles_of(table.column_names, self.columns, str(path))
        staged: dict[str, pa.ChunkedArray] = {}
        features: list[Feature] = []
        warnings: list[str] = []
        masks = frozenset(name for column, name in roles.images.items() if column in self.columns.masks)
        for column, name in roles.images.items():
            staged[f"path/{name}"], _, _ = plain_column(column, table[column], as_path=True)
            options = _mask_options(self.images) if name in masks else self.images
            features.append(Feature(name, "image", "uint8", options.shape))
        names: tuple[str, ...] = ()
        if roles.label:
            staged[roles.label], feature, names = label_column(
                roles.label, table[roles.label], self.class_names
            )
            features.append(feature)
        elif self.class_names is not None:
            raise InputError(f"{path} has no column of labels; name it with --label")
        for column in roles.others:
            staged[column], feature, warning = plain_column(column, table[column])
            features.append(feature)
            warnings += [warning] if warning else []
        if roles.split:
            staged["/split"], _, _ = plain_column(roles.split, table[roles.split])
        order = key_order(staged, list(roles.images.values()))
        rows = pa.table(staged)
        if order is not None:
            rows, table = rows.take(order), table.take(order)
            rows = rows.append_column("/key", rows[f"path/{next(iter(roles.images.values()))}"])
        rows = stat_images(root, rows, list(roles.images.values()), follow_links=self.follow_links)
        stage_table(rows, folder / _ROWS)
        stage_table(table, folder / _TABLE)
        if roles.images and self.root is None:
            warnings += unmentioned(root, rows, list(roles.images.values()), follow_links=self.follow_links)
        return TableReader(
            str(folder),
            os.fsdecode(root),
            Schema((*features, _KEY), names),
            self.images,
            masks,
            f"sha256:{digest}",
            (*warnings, *twins(names)),
        )


def _mask_options(images: ImageOptions) -> ImageOptions:
    kept = images if images.check == "none" else replace(images, channels=1, alpha=None, format="keep")
    return replace(kept, mask=images.check != "none", jpeg_quality=None)


@dataclass(frozen=True)
class TableReader:
    """The reader of ``Table`` once its rows are staged.

    Attributes:
        folder: holds the staged rows.
        root: the folder to which paths of images are relative.
        schema: of the dataset.
        images: what becomes of images.
        masks: names of the features that are maps of classes.
        identity: of the table.
        warnings: for the person who runs the build.
    """

    folder: str
    root: str
    schema: Schema
    images: ImageOptions
    masks: frozenset[str]
    identity: str
    warnings: tuple[str, ...]

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        names = [feature.name for feature in self.schema.features if feature.kind == "image"]
        if not names:
            return {"source": "table"}
        decoders = {} if self.images.check == "none" else decoder_versions()
        masks: list[Json] = [*sorted(self.masks)]
        return {"source": "table", **self.images.to_json(), "masks": masks, **decoders}

    def listing(self) -> Listing:
        """Return the listing: of the images only sizes and modification times are read."""
        rows = mapped_table(self._rows_path)
        names = [feature.name for feature in self.schema.features if feature.kind == "image"]
        keys = ArrowKeys(rows["/key"]) if "/key" in rows.column_names else RowKeys(rows.num_rows)
        label = self.schema.label
        sizes, stamps = combined(rows, names)
        if not names:
            # what a row takes is not known without reading it; all count alike
            sizes = np.full(rows.num_rows, max(1, rows.nbytes // rows.num_rows), dtype=np.int64)
        return Listing(
            schema=self.schema,
            keys=keys,
            sizes=sizes,
            stamps=stamps,
            labels=None if label is None else rows[label.name].to_numpy(),
            splits=splits_of(rows["/split"]) if "/split" in rows.column_names else None,
            identity=self.identity,
            warnings=self.warnings,
        )

    def read(self, rows: Sequence[Row], schema: Schema) -> list[Outcome]:
        """Return the values of each row, or why one of its images is rejected."""
        staged = mapped_table(self._rows_path)
        keys = ArrowKeys(staged["/key"]) if "/key" in staged.column_names else None
        numbers = [keys.find(to_bytes(row.key)) if keys else int(row.key) for row in rows]
        taken = staged.take(pa.array(numbers, pa.int64()))
        columns: dict[str, Sequence[Values]] = {
            feature.name: values_of(feature, taken[feature.name].combine_chunks())
            for feature in schema.features
            if feature.kind != "image" and feature.name != "key"
        }
        images = [feature.name for feature in schema.features if feature.kind == "image"]
        files = {
            name: list(
                zip(*(taken[f"{what}/{name}"].to_pylist() for what in ("path", "size", "stamp")), strict=True)
            )
            for name in images
        }
        return [
            self._read_one(row, schema, {name: files[name][place] for name in images}, place, columns)
            for place, row in enumerate(rows)
        ]

    def groups(self, listing: Listing, by: str) -> Sequence[bytes]:
        """Return each row's group: its value in the column ``by``, which need not be stored.

        Raises:
            InputError: there is no such column.
        """
        table = mapped_table(str(Path(self.folder) / _TABLE))
        if by not in table.column_names:
            raise InputError(
                f"--group-by {by}: there is no such column; there are {', '.join(table.column_names)}"
            )
        return [repr(value).encode("utf-8", "surrogateescape") for value in table[by].to_pylist()]

    @property
    def _rows_path(self) -> str:
        return str(Path(self.folder) / _ROWS)

    def _read_one(
        self,
        row: Row,
        schema: Schema,
        files: Mapping[str, tuple[bytes, int, int]],
        place: int,
        columns: Mapping[str, Sequence[Values]],
    ) -> Outcome:
        values: dict[str, Values] = {"key": to_bytes(row.key)}
        conversions: list[str] = []
        for name, (path, size, stamp) in files.items():
            found = self._read_image(name, path, size, stamp)
            if isinstance(found, Rejected):
                detail = found.detail if len(files) == 1 else f"{name}: {found.detail}"
                return Rejected(found.reason, detail)
            values[name], new = found
            conversions += new
        values.update((name, column[place]) for name, column in columns.items())
        return Accepted([values[feature.name] for feature in schema.features], tuple(conversions))

    def _read_image(
        self, name: str, path: bytes, size: int, stamp: int
    ) -> tuple[bytes, tuple[str, ...]] | Rejected:
        if size < 0:
            return Rejected("missing", f"there is no file {path!r}")
        options = _mask_options(self.images) if name in self.masks else self.images
        found = read_image(os.path.join(os.fsencode(self.root), path), Row("", -1, size, stamp), options)
        return found if isinstance(found, Rejected) else (found.data, found.conversions)
