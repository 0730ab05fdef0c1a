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
from tfshards.prep.sources.image_file import check_mask_depth, depth_warning, image_feature, mask_feature
from tfshards.prep.sources.keys import KEY_FEATURE, to_bytes
from tfshards.prep.sources.remote_tree import tree_of
from tfshards.prep.sources.split_lists import UNLISTED, check_split_list, split_list_option
from tfshards.prep.sources.tables.annotations import CATEGORY, check_segmentations
from tfshards.prep.sources.tables.assigned_columns import AssignedColumns, assign_columns, single_columns
from tfshards.prep.sources.tables.column_roles import ColumnRoles
from tfshards.prep.sources.tables.coordinates import coordinates_column
from tfshards.prep.sources.tables.features import (
    StoredColumn,
    is_along_rows,
    is_image_struct,
    is_text_type,
    item_type,
    stored_column,
)
from tfshards.prep.sources.tables.files import TableFile, check_unicode
from tfshards.prep.sources.tables.image_columns import (
    check_found,
    check_header,
    check_like_masks,
    is_embedded,
    with_found_images,
)
from tfshards.prep.sources.tables.image_lists import with_places
from tfshards.prep.sources.tables.images import is_url, stat_images, unmentioned
from tfshards.prep.sources.tables.joining import joined_and_grouped
from tfshards.prep.sources.tables.labels import label_column, label_fault
from tfshards.prep.sources.tables.missing import NO_CLASS, with_missing
from tfshards.prep.sources.tables.parts import read_tables, table_paths
from tfshards.prep.sources.tables.placement import placement_of, with_formats
from tfshards.prep.sources.tables.reader import TableReader, rows_path
from tfshards.prep.sources.tables.row_options import RowOptions
from tfshards.prep.sources.tables.rows import (
    in_order_of_keys,
    rows_to_stage,
    split_warnings,
    with_listed_splits,
    with_split_folders,
)
from tfshards.prep.sources.tables.several_labels import with_label_lists
from tfshards.prep.sources.tables.staging import HEIGHT, LACKS, LENGTH, PATH, WIDTH, stage_table
from tfshards.prep.sources.tables.templates import with_paths
from tfshards.schemas import InputError, OptionsError, Schema
from tfshards.schemas.option import check_choices, check_instance, option, to_json
from tfshards.schemas.storage import AnyPath, RemotePath, any_path

Form: TypeAlias = Literal["table", "coco", "yolo"]


@dataclass(frozen=True)
class Table:
    """The rows of a CSV, TSV, JSON Lines or Parquet file, or of several Parquet files.

    By the convention of Hugging Face's datasets, a column ``file_name`` holds paths of images relative to the
    table's folder, and a column ``NAME_file_name`` holds the paths of another image ``NAME``. A column of
    structs of ``bytes`` and ``path`` holds encoded images. In a table without any of these, a single column
    of paths of files that exist, or of encoded images, holds the images; a warning reports it. The key of an
    example is the path of its first image, or the row number if there are no images or a path is repeated or
    missing.

    Attributes:
        path: the file; or a folder that contains ``metadata.csv``, ``metadata.jsonl`` or
            ``metadata.parquet``; or a folder or a pattern of Parquet files, whose names may give the splits.
        images: how images are checked, converted and stored.
        columns: roles of columns whose names do not determine them.
        rows: how rows are read, joined with other tables, and grouped.
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
        OptionsError: the path is empty, a path is a URL that is not of an object store, the class names are
            empty or repeated, or ``rows`` are given for another form than a table.
    """

    path: str | os.PathLike[str]
    images: ImageOptions = field(default_factory=ImageOptions)
    columns: ColumnRoles = field(default_factory=ColumnRoles)
    rows: RowOptions = field(default_factory=RowOptions, kw_only=True)
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
        check_instance("rows", self.rows, RowOptions)
        check_segmentations(self.columns.segmentations, self.form)
        if self.form != "table" and self.rows != RowOptions():
            raise OptionsError("rows-of-form", form=self.form, names=[*to_json(self.rows)])
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

    def stage(self, folder: Path, *, preview: bool = False) -> TableReader:
        """Return a reader of the rows; the table is copied into ``folder``, but not the images.

        Raises:
            OptionsError: the suffix of the file is not supported, or an option has no effect since the table
                has no images.
            InputError: the table cannot be read, a column is missing or cannot be stored, or an image is
                outside ``root``.
        """
        found, path, root = self._read()
        may_guess = self.form == "table"
        if may_guess:
            check_header(found.table.column_names, root)
        found, lacking = with_missing(found, self.columns, str(path))
        found = replace(found, table=with_paths(found.table, self.columns, str(path)))
        found, roles = with_formats(found, self.columns, self.form)
        found, roles, of_labels = with_label_lists(found, roles)
        assigned, lines = self._assigned(found, roles, root, str(path))
        features = [*assigned.images.values()]
        if may_guess:
            values = {*assigned.stored, assigned.split} - {None, *assigned.images}
            check_unicode(path, found.table, [name for name in found.table.column_names if name in values])
        if not features:
            self._check_no_image_options(path, lines)
        check_mask_depth(self.images, has_masks=bool(assigned.masks))
        stored = [self._stored(found, name, role) for name, role in assigned.stored.items()]
        whole, (table, assigned, lists) = assigned, with_places(found.table, assigned)
        embedded = {feature for name, feature in assigned.images.items() if is_embedded(table[name])}
        assigned, images = replace(assigned, embedded=frozenset(embedded)), [*assigned.images.values()]
        staged, of_paths = rows_to_stage(table, assigned, stored, root)
        lines += of_paths
        for name, lengths in lists.lengths.items():
            staged = staged.append_column(LENGTH + name, pa.array(lengths))
        for column, sides in zip((WIDTH, HEIGHT), found.sides, strict=False):
            staged = staged.append_column(column, pa.array(sides, pa.int64()))
        if lacking is not None:
            staged = staged.append_column(LACKS, pa.array(lacking, pa.string()))
        skipped: dict[str, int] = {}
        if self.split_list:
            folder_of_lists = path if path.is_dir() else path.parent
            staged, digest, more = with_listed_splits(staged, self.split_list, folder_of_lists, images)
            found = replace(found, digest=f"{found.digest} {digest}")
            skipped, lines = {UNLISTED: found.table.num_rows - staged.num_rows}, [*lines, *more]
        elif may_guess and assigned.split is None and self.columns.split is None and not lists.places:
            assigned, staged, more = with_split_folders(assigned, staged)
            lines += more
        rows, warnings = in_order_of_keys(staged, images)
        has_urls = any(is_url(path) for name in images for path in rows[PATH + name].to_pylist())
        rows = stat_images(root, rows, images, follow_links=self.follow_links)
        check_found(rows, whole.images, lists.places, root)
        warnings += split_warnings(rows, images)
        stage_table(rows, rows_path(folder))
        if images and self.root is None and path.name in METADATA_NAMES:
            # by convention the folder belongs to the table
            warnings += unmentioned(root, rows, images, follow_links=self.follow_links)
        for name in [name for name in images if name not in assigned.masks][:1]:
            local = [path for path in rows[PATH + name].to_pylist() if path and not is_url(path)]
            warnings += depth_warning(tree_of(root, follow_links=True), local, self.images)
        placement, of_boxes = placement_of(stored, whole, self.columns, self.form, found.formats)
        if placement.image in lists.places and (placement.coordinates or placement.undeclared):
            name = [*placement.coordinates, *placement.undeclared][0]
            raise InputError("boxes-of-image-list", name=name, image=placement.image)
        placement.check_resize(self.images.resize)
        schema = [
            mask_feature(name, self.images) if name in whole.masks else image_feature(name, self.images)
            for name in features
        ]
        schema = [replace(each, shape=(*lists.dimension(each.name), *each.shape)) for each in schema]
        names = next((column.names for column in stored if column.names), ())
        inexact = [column.warning for column in stored if column.warning]
        return TableReader(
            str(folder),
            os.fsdecode(root),
            Schema((*schema, *(column.feature for column in stored), KEY_FEATURE), names),
            replace(whole, split=assigned.split, embedded=assigned.embedded),
            self.images,
            found.digest,
            self.form,
            (*found.warnings, *of_labels, *lines, *inexact, *of_boxes, *warnings, *twins(names)),
            placement,
            {
                **self.columns.recorded(),
                **to_json(self.rows),
                **({"split_list": {**self.split_list}} if self.split_list else {}),
            },
            {name: lists.places.get(name, (name,)) for name in features},
            skipped,
            has_remote_images=has_urls or is_url(root),
        )

    def _read(self) -> tuple[TableFile, AnyPath, bytes]:
        """Return the rows, the path that messages name, and the folder to which image paths are relative."""
        given = None if self.root is None else any_path(self.root)
        if isinstance(given, Path) and not given.is_dir():
            raise InputError("root-not-a-folder", root=os.fspath(given))
        if self.form == "table":
            is_text, named = self.rows.delimiter is not None, {*self.columns.images, *self.columns.masks}
            paths = table_paths(self.path, follow_links=self.follow_links, is_text=is_text)
            found = read_tables(paths, named, self.rows.form)
            path = paths[0] if len(paths) == 1 else any_path(self.path)
            beside = path if path.is_dir() else paths[0].parent
            single = single_columns(found.table.column_names, self.columns)
            of_images = single - {"split" if self.columns.split is None else self.columns.split}
            found = joined_and_grouped(found, beside, self.rows, single, of_images)
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
            own, may_lack = found.class_names.get(name, ()), self.columns.missing.get(name) == NO_CLASS
            return label_column(name, column, self.class_names, own, may_lack=may_lack)
        if role == "coordinates":
            return coordinates_column(name, column, found.formats[name])
        varies = name in found.lists or is_along_rows(name, found.table)
        return stored_column(name, column, varies=varies)

    def _check_no_image_options(self, path: AnyPath, lines: Sequence[str]) -> None:
        """Raise OptionsError if an option is given that only images have; links are not among them.

        ``lines`` are warnings about columns that seem to name images.
        """
        root = {} if self.root is None else {"root": os.fsdecode(self.root)}
        join = "".join(f" ({line})" for line in lines)
        for name, value in {**changed_images(self.images.to_json()), **root}.items():
            raise OptionsError("image-option-useless", name=name, found=value, path=path, join=join)

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
        may_lack = roles.missing.get(label or "") == NO_CLASS
        if label is not None and not is_given and label_fault(label, table[label], may_lack=may_lack):
            if is_text_type(table[label].type):
                raise InputError("label-column-many", name=label, max_classes=MAX_CLASSES)
            is_number = pa.types.is_integer(table[label].type) or pa.types.is_floating(table[label].type)
            declared = f"missing={{{label!r}: '-1'}}"
            lines = (
                unused_numbers("column", label, table[label].drop_null().to_numpy(), declared)
                if is_number
                else []
            )
            assigned = assigned.with_label(None)
        if not roles.no_images:
            assigned, of_images = with_found_images(table, assigned, root)
            lines += of_images
        check_like_masks(table, assigned, self.columns, root)
        return assigned, lines
