"""Read the staged rows of a table, and their images."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from tfshards.prep.imaging.masks import Geometry
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.whitelist import ImageError
from tfshards.prep.records.example import Values
from tfshards.prep.sources.base import Accepted, Listing, Outcome, Rejected, Row, pieces_of
from tfshards.prep.sources.fetching import FetchedContent, fetched_ahead, read_as_listed
from tfshards.prep.sources.keys import RowKeys, to_bytes, to_text
from tfshards.prep.sources.pictures import EncodedImage, decoders_of, mask_options, normalized_image
from tfshards.prep.sources.tables import staging
from tfshards.prep.sources.tables.assigned_columns import AssignedColumns, listed_columns
from tfshards.prep.sources.tables.features import values_of
from tfshards.prep.sources.tables.images import combined, location_of
from tfshards.prep.sources.tables.labels import groups_of, splits_of
from tfshards.prep.sources.tables.placement import Placement, Stated
from tfshards.prep.sources.tables.staging import ArrowKeys, mapped_table
from tfshards.schemas import InputError, Schema
from tfshards.schemas.json_reader import Json

_ROWS = "rows.arrow"


class _File(NamedTuple):
    """An image of a row; its bytes are ``encoded`` if they are in the table."""

    path: bytes
    size: int
    stamp: int
    encoded: bytes | None = None


class _Staged(NamedTuple):
    """A row as it is staged."""

    key: str
    values: dict[str, Values]
    files: dict[str, _File]
    stated: Stated

    @property
    def num_bytes(self) -> int:
        return sum(file.size for file in self.files.values() if file.encoded is None)


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
        placement: boxes and keypoints, and how they are placed in the stored image.
        recorded: what manifests record of boxes and keypoints, and of lists of splits.
        skipped: number of rows that are left out, by reason.
        has_remote_images: whether images may be in object stores.
        group_by: column by which examples are grouped, see ``Source.stage``.
    """

    folder: str
    root: str
    schema: Schema
    columns: AssignedColumns
    images: ImageOptions
    identity: str
    form: str
    warnings: tuple[str, ...]
    placement: Placement
    recorded: Mapping[str, Json]
    skipped: Mapping[str, int]
    has_remote_images: bool = False
    group_by: str | None = None

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        columns: dict[str, Json] = {"source": "table", "split_column": self.columns.split}
        if self.form != "table":
            columns["form"] = self.form
        columns |= self.recorded
        if not self.columns.images:
            return columns
        names: dict[str, Json] = {feature: column for column, feature in self.columns.images.items()}
        decoders = decoders_of(self.images, has_masks=bool(self.columns.masks))
        masks: list[Json] = [*sorted(self.columns.masks)]
        return {**columns, **self.images.to_json(), "image_columns": names, "masks": masks, **decoders}

    def listing(self) -> Listing:
        """Return the listing, with the sizes and modification times of the images."""
        rows = mapped_table(rows_path(self.folder))
        sizes, stamps = combined(rows, [*self.columns.images.values()])
        label = self.schema.label
        return Listing(
            schema=self.schema,
            keys=ArrowKeys(rows[staging.KEY]) if staging.KEY in rows.column_names else RowKeys(rows.num_rows),
            sizes=sizes + rows[staging.BYTES].to_numpy(),
            stamps=stamps,
            labels=None if label is None else rows[staging.VALUE + label.name].to_numpy(),
            splits=splits_of(rows[staging.SPLIT]) if staging.SPLIT in rows.column_names else None,
            identity=self.identity,
            skipped={name: count for name, count in self.skipped.items() if count},
            warnings=self.warnings,
            groups=None if self.group_by is None else self._groups(self.group_by),
            shared=self._shared(rows),
        )

    def _shared(self, rows: pa.Table) -> str | None:
        """Return the first column of images if several rows name the same file, else None."""
        if staging.SAME not in rows.column_names or self.columns.embedded:
            return None
        is_shared = len(rows[staging.SAME].unique()) < rows.num_rows
        return next(iter(self.columns.images)) if is_shared else None

    def read(self, rows: Sequence[Row], schema: Schema) -> Iterator[Outcome]:
        """Yield the values of each row, or why one of its images is rejected."""
        found = (each for piece in pieces_of(rows) for each in self._staged(piece, schema))
        if self.has_remote_images:
            fetched = fetched_ahead(self._fetched, found, lambda staged: staged.num_bytes)
        else:
            fetched = map(self._fetched, found)
        names = [name for name in schema.names if name != "key"]
        for staged, contents in fetched:
            values = dict(staged.values)
            conversions = self._add_images(values, staged.files, contents, staged.stated)
            if isinstance(conversions, Rejected):
                yield conversions
            else:
                yield Accepted([*(values[name] for name in names), to_bytes(staged.key)], conversions)

    def _staged(self, rows: Sequence[Row], schema: Schema) -> Iterator[_Staged]:
        staged = mapped_table(rows_path(self.folder))
        keys = ArrowKeys(staged[staging.KEY]) if staging.KEY in staged.column_names else None
        numbers = [keys.find(to_bytes(row.key)) if keys else int(row.key) for row in rows]
        values = [feature for feature in schema.features if not feature.is_encoded and feature.name != "key"]
        images = {
            name: [each + name for each in (staging.PATH, staging.SIZE, staging.STAMP)]
            for name in self.columns.images.values()
        }
        for name in self.columns.embedded:
            images[name].append(staging.IMAGE + name)
        has_sides = staging.WIDTH in staged.column_names
        sides = [staging.WIDTH, staging.HEIGHT] if has_sides else []
        wanted = [*chain(*images.values()), *sides]
        wanted += [staging.VALUE + feature.name for feature in values]
        taken = staged.select(wanted).take(pa.array(numbers, pa.int64()))
        columns = {
            feature.name: values_of(feature, taken[staging.VALUE + feature.name].combine_chunks())
            for feature in values
        }
        files = {name: [_File(*each) for each in _rows_of(taken, names)] for name, names in images.items()}
        stated = _rows_of(taken, sides)
        for index, row in enumerate(rows):
            yield _Staged(
                row.key,
                {name: column[index] for name, column in columns.items()},
                {name: each[index] for name, each in files.items()},
                stated[index] if has_sides else (),
            )

    def _fetched(self, staged: _Staged) -> tuple[_Staged, Contents]:
        """Return a row with the images that are not on this machine."""
        root, most = os.fsencode(self.root), self.images.max_bytes
        contents: Contents = {}
        for name, file in staged.files.items() if self.has_remote_images else ():
            # what is too large, missing or in the table is not read
            if file.encoded is None and 0 <= file.size <= most and (where := location_of(root, file.path)):
                contents[name] = read_as_listed(where, file.size, file.stamp, most)
        return staged, contents

    def _add_images(
        self,
        values: dict[str, Values],
        files: Mapping[str, _File],
        remote: Contents,
        stated: Stated,
    ) -> tuple[str, ...] | Rejected:
        """Add the images of a row to its values, and return their conversions, or why one is rejected."""
        conversions: list[str] = []
        views: list[Geometry] = []
        # a mask must fit its image
        for name in sorted(files, key=self.columns.masks.__contains__):
            is_mask, file = name in self.columns.masks, files[name]
            options = mask_options(self.images) if is_mask else self.images
            content = remote.get(name) or self._content(file, options.max_bytes)
            encoded = EncodedImage(name, content, file.path, "" if content else self._missing(name, file))
            image = normalized_image(encoded, options, views)
            if isinstance(image, Rejected):
                return image if len(files) == 1 else image._replace(detail=f"{name}: {image.detail}")
            values[name] = image.data
            conversions += image.conversions
            views += [] if is_mask or (view := image.view) is None else [view]
            if name == self.placement.image:
                try:
                    conversions += self.placement.place(values, image, self.images, stated)
                except ImageError as fault:
                    return Rejected(fault.reason, fault.detail)
        if self.placement.image is None:
            try:
                self.placement.check(values)
            except ImageError as fault:
                return Rejected(fault.reason, fault.detail)
        return tuple(conversions)

    def _content(self, file: _File, most_bytes: int) -> FetchedContent | None:
        """Return the image in the table, or in a file of this machine; None if there is none."""
        if file.encoded is not None:
            is_small = len(file.encoded) <= most_bytes
            return FetchedContent(len(file.encoded), 0, file.encoded if is_small else None)
        full = os.path.join(os.fsencode(self.root), file.path)
        return None if file.size < 0 else read_as_listed(full, file.size, file.stamp, most_bytes)

    def _missing(self, name: str, file: _File) -> str:
        lacks = ["the row holds no image"] if name in self.columns.embedded else []
        lacks += [f"there is no file {to_text(file.path)!r}"] if file.path else []
        return ", and ".join(lacks) or "the row names no file"

    def _groups(self, by: str) -> Sequence[bytes]:
        """Return the group of each row: its value in the column ``by``, which need not be stored."""
        rows = mapped_table(rows_path(self.folder))
        staged = {
            name.removeprefix(prefix): name
            for prefix in (staging.DROPPED, staging.VALUE)
            for name in rows.column_names
            if name.startswith(prefix)
        } | {column: staging.PATH + feature for column, feature in self.columns.images.items()}
        if by not in staged:
            columns = listed_columns(sorted(staged))
            raise InputError("group-by-column", by=by, columns=columns)
        column = rows[staged[by]]
        if by == self.columns.label and self.schema.label and self.schema.class_names:
            # by name, because a new class changes the numbers
            names = [to_bytes(name) for name in self.schema.class_names]
            if without := sum(number < 0 for number in column.to_pylist()):
                raise InputError("group-by-no-class", by=by, without=without)
            return [names[number] for number in column.to_pylist()]
        return groups_of(by, column)


def _rows_of(table: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def rows_path(folder: str | os.PathLike[str]) -> Path:
    """Return the path of the staged rows in ``folder``."""
    return Path(folder) / _ROWS
