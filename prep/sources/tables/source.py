"""A table whose rows are examples, with columns of image paths, labels, and other values to store."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import pyarrow as pa

from tfshards.prep.imaging.formats import METADATA_NAMES
from tfshards.prep.imaging.options import ImageOptions, changed_images
from tfshards.prep.sources.classes import MAX_CLASSES, check_class_names, twins, unused_numbers
from tfshards.prep.sources.keys import KEY_FEATURE, to_bytes
from tfshards.prep.sources.pictures import check_mask_depth, depth_warnings, image_feature, mask_feature
from tfshards.prep.sources.remote_tree import tree_of
from tfshards.prep.sources.split_lists import UNLISTED, check_split_list, split_list_option
from tfshards.prep.sources.tables.annotations import CATEGORY, check_segmentations
from tfshards.prep.sources.tables.assigned_columns import USUAL_IMAGE, AssignedColumns, assign_columns
from tfshards.prep.sources.tables.column_roles import ColumnRoles
from tfshards.prep.sources.tables.coordinates import coordinates_column
from tfshards.prep.sources.tables.features import (
    StoredColumn,
    is_along_rows,
    is_bytes_type,
    is_embedded,
    is_image_struct,
    is_list_type,
    is_text_type,
    item_type,
    shown,
    stored_column,
)
from tfshards.prep.sources.tables.files import TableFile, check_unicode
from tfshards.prep.sources.tables.image_columns import check_like_masks, check_undeclared
from tfshards.prep.sources.tables.images import check_found, is_url, stat_images, unmentioned
from tfshards.prep.sources.tables.labels import label_column, label_fault
from tfshards.prep.sources.tables.parts import read_tables, table_paths
from tfshards.prep.sources.tables.placement import placement_of, with_formats
from tfshards.prep.sources.tables.reader import TableReader, rows_path
from tfshards.prep.sources.tables.rows import (
    in_order_of_keys,
    rows_to_stage,
    split_warnings,
    with_listed_splits,
    with_split_folders,
)
from tfshards.prep.sources.tables.several_labels import with_label_lists
from tfshards.prep.sources.tables.staging import HEIGHT, PATH, WIDTH, stage_table
from tfshards.prep.sources.tables.templates import with_paths
from tfshards.schemas import InputError, OptionsError, Schema
from tfshards.schemas.option import check_choices, check_instance, option
from tfshards.schemas.storage import AnyPath, RemotePath, any_path

Form: TypeAlias = Literal["table", "coco", "yolo"]


@dataclass(frozen=True)
class Table:
    """The rows of a CSV, TSV, JSON Lines or Parquet file, or of several Parquet files.

    By the convention of Hugging Face's datasets, a column ``file_name`` holds paths of images relative to the
    table's folder, a column ``image`` holds paths or encoded images, and a column ``NAME_file_name`` holds
    the paths of another image ``NAME``. A column of structs of ``bytes`` and ``path`` holds encoded images.
    Other columns of images are declared; if they are not, it is an error. The key of an example is the path
    of its first image, or the row number if there are no images or a path is repeated or missing.

    Attributes:
        path: the file; or a folder that contains ``metadata.csv``, ``metadata.jsonl`` or
            ``metadata.parquet``; or a folder or a pattern of Parquet files, whose names may give the splits.
        images: how images are checked, converted and stored.
        columns: roles of columns whose names do not determine them.
        root: folder to which image paths are relative; by default the folder of the table.
        class_names: class names in label order; other labels are an error.
        follow_links: read images outside ``root``.
        form: "table"; "coco" for ``instances_*.json`` of COCO, or a folder that has them; "yolo" for a
            folder of images with a text file each, or a ``data.yaml`` of Ultralytics. These have the features
            ``image``, ``objects/bbox`` and ``objects/category``: boxes in pixels, ``[left, top, width,
            height]``, for COCO, and as fractions, ``[center x, center y, width, height]``, for YOLO.
        split_list: the list of the images of each split, as in ``ImageFolder``, without labels; its path is
            relative to the folder of the table. Rows whose first image is in no list are left out.

    Raises:
        OptionsError: the path is empty, a path is a URL that is not of an object store, or the class names
            are empty or repeated.
    """

    path: str | os.PathLike[str]
    images: ImageOptions = field(default_factory=ImageOptions)
    columns: ColumnRoles = field(default_factory=ColumnRoles)
    root: str | os.PathLike[str] | None = option(
        None,
        "folder to which image paths are relative",
        metavar="DIR",
        default_text="the folder of the table",
    )
    class_names: Sequence[str] | None = None
    follow_links: bool = option(False, "follow links out of the folder of the images")
    form: Form = option(
        "table",
        "form of SOURCE: a table; COCO's instances_*.json, or a folder that has them in annotations/; a "
        "folder of images with YOLO's text files, or a data.yaml of Ultralytics",
        flag="from",
        choices=get_args(Form),
    )
    split_list: Mapping[str, str] = split_list_option()

    def __post_init__(self) -> None:
        check_choices(self)
        if not isinstance(self.path, (str, os.PathLike)):
            raise OptionsError("table-type", kind=type(self.path).__name__)
        check_instance("images", self.images, ImageOptions)
        check_instance("columns", self.columns, ColumnRoles)
        check_segmentations(self.columns.segmentations, self.form)
        if not os.fspath(self.path):
            raise OptionsError("table-path-empty")
        given = [self.path, *([] if self.root is None else [self.root])]
        urls = [path for path in map(any_path, given) if isinstance(path, RemotePath)]
        if urls and self.form != "table":
            raise OptionsError("form-remote", form=self.form, urls=urls[0])
        check_class_names(self.class_names)
        check_split_list(self.split_list)

    def location(self) -> None:
        """Return None, because the dataset may be in the folder of the table."""
        return

    def with_class_names(self, names: Sequence[str]) -> Table:
        """Return the source with these class names, unless it has its own."""
        return self if self.class_names is not None else replace(self, class_names=names)

    def column_names(self) -> list[str]:
        """Return the names of the columns; a field of a struct is ``NAME/FIELD``.

        Raises:
            InputError: the table cannot be read.
        """
        names: list[str] = self._read()[0].table.column_names
        return names

    def stage(self, folder: Path, *, group_by: str | None = None, preview: bool = False) -> TableReader:
        """Return a reader of the rows; the table is copied into ``folder``, but not the images.

        Raises:
            OptionsError: the suffix of the file is not supported, or an option has no effect since the table
                has no images.
            InputError: the table cannot be read, a column is missing or cannot be stored, or an image is
                outside ``root``.
        """
        found, path, root = self._read()
        is_table = self.form == "table"
        found = replace(found, table=with_paths(found.table, self.columns, str(path)))
        found, roles = with_formats(found, self.columns, self.form)
        found, roles, of_labels = with_label_lists(found, roles)
        assigned, lines = self._assigned(found, roles, root, str(path))
        images = [*assigned.images.values()]
        if is_table:
            values = {*assigned.stored, assigned.split} - {None, *assigned.images}
            check_unicode(path, found.table, [name for name in found.table.column_names if name in values])
        if not images:
            self._check_no_image_options(path)
        check_mask_depth(self.images, has_masks=bool(assigned.masks))
        stored = [self._stored(found, name, role) for name, role in assigned.stored.items()]
        embedded = {feature for name, feature in assigned.images.items() if is_embedded(found.table[name])}
        assigned = replace(assigned, embedded=frozenset(embedded))
        staged = rows_to_stage(found.table, assigned, stored)
        for column, sides in zip((WIDTH, HEIGHT), found.sides, strict=False):
            staged = staged.append_column(column, pa.array(sides, pa.int64()))
        skipped: dict[str, int] = {}
        if self.split_list:
            folder_of_lists = path if path.is_dir() else path.parent
            staged, digest, more = with_listed_splits(staged, self.split_list, folder_of_lists, images)
            found = replace(found, digest=f"{found.digest} {digest}")
            skipped, lines = {UNLISTED: found.table.num_rows - staged.num_rows}, [*lines, *more]
        elif is_table and assigned.split is None and self.columns.split is None:
            assigned, staged, more = with_split_folders(assigned, staged)
            lines += more
        rows, warnings = in_order_of_keys(staged, images)
        has_urls = any(is_url(path) for name in images for path in rows[PATH + name].to_pylist())
        rows = stat_images(root, rows, images, follow_links=self.follow_links)
        check_found(rows, assigned.images, root)
        warnings += split_warnings(rows, images)
        stage_table(rows, rows_path(folder))
        if images and self.root is None and path.name in METADATA_NAMES:
            # by convention the folder belongs to the table
            warnings += unmentioned(root, rows, images, follow_links=self.follow_links)
        for name in [name for name in images if name not in assigned.masks][:1]:
            local = [path for path in rows[PATH + name].to_pylist() if path and not is_url(path)]
            warnings += depth_warnings(tree_of(root, follow_links=True), local, self.images)
        placement, of_boxes = placement_of(stored, assigned, self.columns, self.form, found.formats)
        placement.check_resize(self.images.resize)
        schema = [
            mask_feature(name, self.images) if name in assigned.masks else image_feature(name, self.images)
            for name in images
        ]
        names = next((column.names for column in stored if column.names), ())
        inexact = [column.warning for column in stored if column.warning]
        return TableReader(
            str(folder),
            os.fsdecode(root),
            Schema((*schema, *(column.feature for column in stored), KEY_FEATURE), names),
            assigned,
            self.images,
            found.digest,
            self.form,
            (*found.warnings, *of_labels, *lines, *inexact, *of_boxes, *warnings, *twins(names)),
            placement,
            {
                **self.columns.recorded(),
                **({"split_list": {**self.split_list}} if self.split_list else {}),
            },
            skipped,
            has_remote_images=has_urls or is_url(root),
            group_by=group_by,
        )

    def _read(self) -> tuple[TableFile, AnyPath, bytes]:
        """Return the rows, the path that messages name, and the folder to which image paths are relative."""
        given = None if self.root is None else any_path(self.root)
        if isinstance(given, Path) and not given.is_dir():
            raise InputError("root-not-a-folder", root=os.fspath(given))
        if self.form == "table":
            usual = () if self.columns.no_images else (USUAL_IMAGE,)
            named = {*self.columns.images, *self.columns.masks, *usual}
            paths = table_paths(self.path, follow_links=self.follow_links)
            found = read_tables(paths, named)
            path = paths[0] if len(paths) == 1 else any_path(self.path)
            beside = path if path.is_dir() else paths[0].parent
            folder = given or beside
            if isinstance(folder, RemotePath):
                return found, path, to_bytes(str(folder))
            return found, path, os.path.realpath(os.fsencode(folder))
        if self.form == "coco":
            from tfshards.prep.sources.tables.coco import read_coco as read
        else:
            # needs PyYAML, which other tables do not
            from tfshards.prep.sources.tables.yolo import read_yolo as read
        path, root = Path(self.path), None if self.root is None else Path(self.root)
        found, images = read(path, root, self.columns.segmentations, follow_links=self.follow_links)
        return found, path, os.path.realpath(os.fsencode(images))

    def _stored(self, found: TableFile, name: str, role: str) -> StoredColumn:
        column = found.table[name]
        if role == "label":
            return label_column(name, column, self.class_names, found.class_names.get(name, ()))
        if role == "coordinates":
            return coordinates_column(name, column, found.formats[name])
        return stored_column(name, column, varies=is_along_rows(name, found.table))

    def _check_no_image_options(self, path: AnyPath) -> None:
        """Raise OptionsError if an option is given that only images have; links are not among them."""
        root = {} if self.root is None else {"root": os.fsdecode(self.root)}
        for name, value in {**changed_images(self.images.to_json()), **root}.items():
            raise OptionsError("image-option-useless", name=name, found=value, path=path)

    def _assigned(
        self, found: TableFile, roles: ColumnRoles, root: bytes, path: str
    ) -> tuple[AssignedColumns, list[str]]:
        """Return what each column is used for, and lines on it; ``label`` need not hold classes."""
        table = found.table
        named = {*roles.images, *roles.masks, *roles.drop}
        structs = [field.name for field in table.schema if is_image_struct(item_type(field.type))]
        if not roles.no_images:
            roles = replace(roles, images=(*roles.images, *(name for name in structs if name not in named)))
        assigned = assign_columns(table.column_names, roles, path)
        if assigned.label is None and roles.label is None:
            # by the metadata of the table
            known = {*found.class_names, *([] if self.form == "table" else [CATEGORY])}
            classes = [name for name in assigned.stored if name in known]
            assigned = assigned.with_label(classes[0] if len(classes) == 1 else None)
        label, lines = assigned.label, []
        if label is None and self.class_names is not None:
            raise InputError("table-no-label", path=path)
        # a label with names in the metadata is not stored as a number without them
        is_given = roles.label or self.class_names is not None or label in found.class_names
        if label is not None and not is_given and label_fault(label, table[label]):
            if is_text_type(table[label].type):
                raise InputError("label-column-many", name=label, max_classes=MAX_CLASSES)
            is_number = pa.types.is_integer(table[label].type) or pa.types.is_floating(table[label].type)
            if is_number:
                values = table[label].drop_null().to_numpy()
                lines = unused_numbers("column", label, values, "null in its place")
            assigned = assigned.with_label(None)
        if self.form == "table" and not roles.no_images:
            check_undeclared(table, assigned)
        for name in assigned.images:
            kind = table[name].type
            items = item_type(kind)
            if is_list_type(kind) and (is_bytes_type(items) or is_image_struct(items)):
                raise InputError("image-list", name=name)
            if is_list_type(kind):
                raise InputError("column-paths-type", name=name, kind=shown(kind))
        check_like_masks(table, assigned, self.columns, root)
        return assigned, lines
