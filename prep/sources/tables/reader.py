"""Read the staged rows of a table, and their images."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

import pyarrow as pa

from tfshards.prep.imaging.convert import oriented_size
from tfshards.prep.imaging.masks import Geometry
from tfshards.prep.imaging.normalize import Normalized
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.records.example import Values
from tfshards.prep.sources.base import Accepted, Listing, Outcome, Rejected, Row
from tfshards.prep.sources.fetching import FetchedContent, FetchRequest, StartedRows, read_as_listed
from tfshards.prep.sources.image_file import (
    checked_content,
    checked_image,
    decoders_of,
    mask_options,
    read_image,
)
from tfshards.prep.sources.keys import RowKeys, to_bytes, to_text
from tfshards.prep.sources.tables.annotations import BOXES, fitted_boxes
from tfshards.prep.sources.tables.column_roles import AssignedColumns, listed_columns
from tfshards.prep.sources.tables.features import TEXT, values_of
from tfshards.prep.sources.tables.images import combined, location_of
from tfshards.prep.sources.tables.labels import groups_of, splits_of
from tfshards.prep.sources.tables.staging import (
    BYTES,
    DROPPED,
    HEIGHT,
    IMAGE,
    KEY,
    PATH,
    SAME,
    SIZE,
    SPLIT,
    STAMP,
    VALUE,
    WIDTH,
    ArrowKeys,
    mapped_table,
)
from tfshards.schemas import InputError, Schema
from tfshards.schemas.json_reader import Json
from tfshards.schemas.reasons import Reason
from tfshards.schemas.storage import RemotePath
from tfshards.schemas.storage.reader import NUM_REQUESTS

_ROWS = "rows.arrow"

# Path, size, stamp, and the encoded image if the table has it.
_File: TypeAlias = "tuple[bytes, int, int, bytes | None]"
# What was read of the images of a row, by feature.
Contents: TypeAlias = "dict[str, FetchedContent]"


@dataclass(frozen=True)
class TableReader:
    """The reader of the staged rows of a ``Table``.

    Attributes:
        folder: folder of the staged rows.
        root: folder to which image paths are relative.
        schema: schema of the dataset.
        columns: use of each column.
        images: image options.
        identity: digest of the table.
        form: form of the table, see ``Table``.
        warnings: warnings for the user.
        has_remote_images: whether images may be in object stores.
    """

    folder: str
    root: str
    schema: Schema
    columns: AssignedColumns
    images: ImageOptions
    identity: str
    form: str
    warnings: tuple[str, ...]
    has_remote_images: bool = False

    @property
    def num_in_flight(self) -> int:
        """The number of requests to make at the same time; 0 if all images are on this machine."""
        return NUM_REQUESTS if self.has_remote_images else 0

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        columns: dict[str, Json] = {"source": "table", "split_column": self.columns.split}
        if self.form != "table":
            columns["form"] = self.form
        if not self.columns.images:
            return columns
        names: dict[str, Json] = {feature: column for column, feature in self.columns.images.items()}
        decoders = decoders_of(self.images, has_masks=bool(self.columns.masks))
        masks: list[Json] = [*sorted(self.columns.masks)]
        return {**columns, **self.images.to_json(), "image_columns": names, "masks": masks, **decoders}

    def listing(self) -> Listing:
        """Return the listing, with the sizes and modification times of the images."""
        rows = mapped_table(str(rows_path(self.folder)))
        sizes, stamps = combined(rows, list(self.columns.images.values()))
        label = self.schema.label
        return Listing(
            schema=self.schema,
            keys=ArrowKeys(rows[KEY]) if KEY in rows.column_names else RowKeys(rows.num_rows),
            sizes=sizes + rows[BYTES].to_numpy(),
            stamps=stamps,
            labels=None if label is None else rows[VALUE + label.name].to_numpy(),
            splits=splits_of(rows[SPLIT]) if SPLIT in rows.column_names else None,
            identity=self.identity,
            warnings=self.warnings,
            groups=rows[SAME].to_pylist() if SAME in rows.column_names else None,
        )

    def read(self, rows: Sequence[Row], schema: Schema) -> list[Outcome]:
        """Return the values of each row, or why one of its images is rejected."""
        return self.start(rows, schema).result()

    def start(self, rows: Sequence[Row], schema: Schema) -> StartedRows[Contents]:
        """Start to read rows; requests are made for images that are not on this machine."""
        staged = mapped_table(str(rows_path(self.folder)))
        keys = ArrowKeys(staged[KEY]) if KEY in staged.column_names else None
        numbers = [keys.find(to_bytes(row.key)) if keys else int(row.key) for row in rows]
        images = list(self.columns.images.values())
        values = [feature for feature in schema.features if not feature.is_encoded and feature.name != "key"]
        wanted = [prefix + name for name in images for prefix in (PATH, SIZE, STAMP)]
        wanted += [IMAGE + name for name in self.columns.embedded]
        # stored without a check, images are not turned
        fits = WIDTH in staged.column_names and BOXES in schema.names and self.images.check != "none"
        wanted += [WIDTH, HEIGHT] if fits else []
        taken = staged.select([*wanted, *(VALUE + feature.name for feature in values)]).take(
            pa.array(numbers, pa.int64())
        )
        columns = {
            feature.name: values_of(feature, taken[VALUE + feature.name].combine_chunks())
            for feature in values
        }
        files = [
            list(zip(*(column.to_pylist() for column in self._columns_of(name, taken)), strict=True))
            for name in images
        ]
        names = [name for name in schema.names if name != "key"]
        sides = (taken[side].to_pylist() for side in (WIDTH, HEIGHT)) if fits else ()
        sizes = list(zip(*sides, strict=True))
        of_rows = [
            {name: listed[index] for name, listed in zip(images, files, strict=True)}
            for index in range(len(rows))
        ]

        def decode(index: int, remote: Contents | None) -> Outcome:
            row = rows[index]
            found = self._read_images(of_rows[index], remote or {})
            if isinstance(found, Rejected):
                return found
            encoded, conversions = found
            if fits:
                boxes = self._fitted(row, files[0][index], columns[BOXES][index], sizes[index])
                if isinstance(boxes, Rejected):
                    return boxes
                if boxes != columns[BOXES][index]:
                    conversions = (*conversions, "boxes turned")
                encoded[BOXES] = boxes
            row_values = [encoded[name] if name in encoded else columns[name][index] for name in names]
            return Accepted([*row_values, to_bytes(row.key)], conversions)

        return StartedRows([*map(self._request, of_rows)], decode)

    def _request(self, files: Mapping[str, _File]) -> FetchRequest[Contents] | None:
        """Start to read the images of a row that are not on this machine; None if there are none."""
        if not self.has_remote_images:
            return None
        root, most = os.fsencode(self.root), self.images.max_bytes
        far: dict[str, tuple[RemotePath, int, int]] = {}
        for name, (path, size, stamp, encoded) in files.items():
            # what is too large, missing or in the table is not read
            if encoded is None and 0 <= size <= most and (where := location_of(root, path)):
                far[name] = (where, size, stamp)
        if not far:
            return None

        def read() -> Contents:
            return {name: read_as_listed(*image, most) for name, image in far.items()}

        return FetchRequest(read, sum(size for _, size, _ in far.values()))

    def groups(self, listing: Listing, by: str) -> Sequence[bytes]:
        """Return the group of each row: its value in the column ``by``, which need not be stored.

        Raises:
            InputError: there is no column of single values with this name, or a row has no value in it.
        """
        rows = mapped_table(str(rows_path(self.folder)))
        staged = {
            **{name: DROPPED + name for name in self._names(rows, DROPPED)},
            **{name: VALUE + name for name in self._names(rows, VALUE)},
            **{column: PATH + feature for column, feature in self.columns.images.items()},
        }
        if by not in staged:
            columns = listed_columns(sorted(staged))
            raise InputError("group-by-column", by=by, columns=columns)
        column = rows[staged[by]]
        if by == self.columns.label and self.schema.label and self.schema.class_names:
            # by name, because a new class changes the numbers
            names = [to_bytes(name) for name in self.schema.class_names]
            without = sum(number < 0 for number in column.to_pylist())
            if without:
                raise InputError("group-by-no-class", by=by, without=without)
            return [names[number] for number in column.to_pylist()]
        return groups_of(by, column)

    def _fitted(
        self,
        row: Row,
        file: tuple[bytes, int, int, bytes | None],
        boxes: Values,
        stated: tuple[int, int] | tuple[None, None],
    ) -> Sequence[float] | Rejected:
        """Return the boxes of an image that was accepted, or why they do not fit it."""
        path, size, stamp, _ = file
        full = os.path.join(os.fsencode(self.root), path)
        data = cast("bytes", read_as_listed(full, size, stamp, size).data)
        found = oriented_size(data, self.images, os.path.splitext(path)[1].lower())
        known = (stated[0], stated[1]) if stated[0] is not None and stated[1] is not None else None
        is_turned = self.images.orientation == "apply"
        return fitted_boxes(cast("Sequence[float]", boxes), known, found, is_turned=is_turned)

    def _columns_of(self, name: str, rows: pa.Table) -> list[pa.ChunkedArray]:
        """Return the columns of an image: paths, sizes, stamps, and encoded images or nothing instead."""
        columns = [rows[prefix + name] for prefix in (PATH, SIZE, STAMP)]
        encoded = rows[IMAGE + name] if name in self.columns.embedded else pa.nulls(rows.num_rows, TEXT)
        return [*columns, encoded]

    @staticmethod
    def _names(rows: pa.Table, prefix: str) -> list[str]:
        return [name.removeprefix(prefix) for name in rows.column_names if name.startswith(prefix)]

    def _read_images(
        self, files: Mapping[str, _File], remote: Contents
    ) -> tuple[dict[str, Values], tuple[str, ...]] | Rejected:
        """Return the images of a row by feature and their conversions, or why one is rejected."""
        encoded: dict[str, Values] = {}
        conversions: list[str] = []
        views: list[Geometry] = []
        # a mask must fit its image
        for name in sorted(files, key=lambda name: name in self.columns.masks):
            path, size, stamp, encoded_image = files[name]
            content = remote.get(name)
            found: Normalized | Rejected
            if content is not None:
                options = mask_options(self.images) if name in self.columns.masks else self.images
                found = checked_content(path, content, options, views)
            else:
                found = self._read_image(name, path, Row("", -1, size, stamp), encoded_image, views)
            if isinstance(found, Rejected):
                detail = found.detail if len(files) == 1 else f"{name}: {found.detail}"
                return Rejected(found.reason, detail)
            encoded[name] = found.data
            conversions += found.conversions
            if found.view and name not in self.columns.masks:
                views.append(found.view)
        return encoded, tuple(conversions)

    def _read_image(
        self, name: str, path: bytes, row: Row, encoded: bytes | None, images: Sequence[Geometry]
    ) -> Normalized | Rejected:
        if row.size < 0:
            is_embedded = name in self.columns.embedded
            if not path:
                return Rejected(
                    Reason.MISSING, "the row holds no image" if is_embedded else "the row names no file"
                )
            both = "the row holds no image, and " if is_embedded else ""
            return Rejected(Reason.MISSING, f"{both}there is no file {to_text(path)!r}")
        options = mask_options(self.images) if name in self.columns.masks else self.images
        full = os.path.join(os.fsencode(self.root), path)
        if encoded is None:
            return read_image(full, row, options, images)
        return checked_image(encoded, path, options, images)


def rows_path(folder: str | os.PathLike[str]) -> Path:
    """Return the path of the staged rows in ``folder``."""
    return Path(folder) / _ROWS
