"""A table whose rows are examples, with columns of image paths, labels, and other values to store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import pyarrow as pa

from tfshards.prep.imaging.formats import METADATA_NAMES
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.sources.classes import check_class_names, twins
from tfshards.prep.sources.image_file import depth_warning, image_feature, mask_feature
from tfshards.prep.sources.keys import KEY_FEATURE, to_bytes
from tfshards.prep.sources.remote_tree import tree_of
from tfshards.prep.sources.tables.annotations import CATEGORY
from tfshards.prep.sources.tables.coco import read_coco
from tfshards.prep.sources.tables.column_roles import (
    AssignedColumns,
    ColumnRoles,
    assign_columns,
    check_found,
    check_header,
    embedded_images,
    image_structs,
    with_found_images,
)
from tfshards.prep.sources.tables.features import StoredColumn, is_along_rows, is_list_type, stored_column
from tfshards.prep.sources.tables.files import TableFile, check_unicode
from tfshards.prep.sources.tables.images import is_url, same_images, stat_images, unmentioned
from tfshards.prep.sources.tables.labels import label_column, label_fault, unused_label
from tfshards.prep.sources.tables.parts import read_tables, table_paths
from tfshards.prep.sources.tables.reader import TableReader, rows_path
from tfshards.prep.sources.tables.rows import (
    in_order_of_keys,
    rows_to_stage,
    split_warnings,
    with_split_folders,
)
from tfshards.prep.sources.tables.staging import HEIGHT, PATH, WIDTH, stage_table
from tfshards.schemas import Feature, InputError, OptionsError, Schema
from tfshards.schemas.option import check_choices, check_instance, check_path, option
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
        root: folder to which image paths are relative; by default the folder of the table.
        class_names: class names in label order; other labels are an error.
        follow_links: read images outside ``root``.
        form: "table"; "coco" for ``instances_*.json`` of COCO, or a folder that has them; "yolo" for a
            folder of images with a text file each, or a ``data.yaml`` of Ultralytics. These have the features
            ``image``, ``objects/bbox`` and ``objects/category``: boxes in pixels, ``[left, top, width,
            height]``, for COCO, and as fractions, ``[center x, center y, width, height]``, for YOLO.

    Raises:
        OptionsError: the path is empty, a path is a URL that is not of an object store, the class names are
            empty or repeated, or ``images`` resizes images whose boxes are in pixels.
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

    def __post_init__(self) -> None:
        check_choices(self)
        check_path("path", self.path)
        check_instance("images", self.images, ImageOptions)
        check_instance("columns", self.columns, ColumnRoles)
        if self.form == "coco" and self.images.resize is not None:
            raise OptionsError("resize-of-boxes", resize=self.images.resize)
        if not os.fspath(self.path):
            raise OptionsError("table-path-empty")
        given = [self.path, *([] if self.root is None else [self.root])]
        urls = [path for path in map(any_path, given) if isinstance(path, RemotePath)]
        if urls and self.form != "table":
            raise OptionsError("form-remote", form=self.form, urls=urls[0])
        check_class_names(self.class_names)

    def location(self) -> None:
        """Return None, because the dataset may be in the folder of the table."""
        return

    def with_class_names(self, names: Sequence[str]) -> Table:
        """Return the source with these class names, unless it has its own."""
        return self if self.class_names is not None else replace(self, class_names=names)

    def _root_remedy(self) -> str:
        """Return what to do if the images are in another folder, for the message of an error."""
        return "name the folder of the images with root="

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
        if self.form == "table":
            check_header(found.table.column_names, root)
        assigned, lines = self._assigned(found, root, str(path))
        if self.form == "table":
            values = {assigned.label, assigned.split, *assigned.others} - {None, *assigned.images}
            check_unicode(path, found.table, [name for name in found.table.column_names if name in values])
        images = list(assigned.images.values())
        if not images:
            self._check_no_image_options(path, lines)
        stored, names = self._stored(found, assigned)
        staged = rows_to_stage(found.table, assigned, stored)
        if self.form == "coco":
            for side, column in enumerate((WIDTH, HEIGHT)):
                sides = [size and size[side] for size in found.sizes]
                staged = staged.append_column(column, pa.array(sides, pa.int64()))
        if self.form == "table" and assigned.split is None and self.columns.split is None:
            assigned, staged, more = with_split_folders(assigned, staged)
            lines += more
        rows, warnings = in_order_of_keys(staged, images)
        has_urls = any(is_url(path) for name in images for path in rows[PATH + name].to_pylist())
        rows = stat_images(root, rows, images, follow_links=self.follow_links)
        check_found(rows, assigned.images, root, self._root_remedy())
        rows = same_images(root, rows, images)
        warnings += split_warnings(rows, images)
        stage_table(rows, rows_path(folder))
        if images and self.root is None and path.name in METADATA_NAMES:
            # by convention the folder belongs to the table
            warnings += unmentioned(root, rows, images, follow_links=self.follow_links)
        for name in [name for name in images if name not in assigned.masks][:1]:
            local = [path for path in rows[PATH + name].to_pylist() if path and not is_url(path)]
            warnings += depth_warning(tree_of(root, follow_links=True), local, self.images)
        features = [*self._image_features(assigned), *(column.feature for column in stored), KEY_FEATURE]
        inexact = [column.warning for column in stored if column.warning]
        return TableReader(
            str(folder),
            os.fsdecode(root),
            Schema(tuple(features), names),
            assigned,
            self.images,
            found.digest,
            self.form,
            (*found.warnings, *lines, *inexact, *warnings, *twins(names)),
            has_remote_images=has_urls or is_url(root),
        )

    def _read(self) -> tuple[TableFile, AnyPath, bytes]:
        """Return the rows, the path that messages name, and the folder to which image paths are relative."""
        if self.form == "table":
            paths = table_paths(self.path, follow_links=self.follow_links)
            found = read_tables(paths, {*self.columns.images, *self.columns.masks})
            path = paths[0] if len(paths) == 1 else any_path(self.path)
            return found, path, self._root(path if path.is_dir() else paths[0].parent)
        if self.form == "coco":
            annotations = read_coco(self.path, self.root, follow_links=self.follow_links)
        else:
            # needs PyYAML, which other tables do not
            from tfshards.prep.sources.tables.yolo import read_yolo

            annotations = read_yolo(self.path, self.root, follow_links=self.follow_links)
        return annotations.file, Path(self.path), os.path.realpath(os.fsencode(annotations.folder))

    def _root(self, folder: AnyPath) -> bytes:
        given = folder if self.root is None else any_path(self.root)
        if isinstance(given, RemotePath):
            return to_bytes(str(given))
        root = os.path.realpath(os.fsencode(given))
        if not os.path.isdir(root):
            raise InputError("root-not-a-folder", root=os.fsdecode(root))
        return root

    def _check_no_image_options(self, path: AnyPath, lines: Sequence[str]) -> None:
        """Raise OptionsError if an option is given that only images have; links are not among them.

        ``lines`` are warnings about columns that seem to name images.
        """
        defaults = ImageOptions().to_json()
        given = [
            (name, value) for name, value in self.images.to_json().items() if value != defaults.get(name)
        ]
        if self.root is not None:
            given.append(("root", os.fsdecode(self.root)))
        if given:
            name, value = given[0]
            raise OptionsError(
                "image-option-useless",
                name=name,
                found=value,
                path=path,
                join="".join(f" ({line})" for line in lines),
            )

    def _assigned(self, found: TableFile, root: bytes, path: str) -> tuple[AssignedColumns, list[str]]:
        """Return what each column is used for, and lines on it; ``label`` need not hold classes."""
        table, roles = found.table, self.columns
        if not roles.no_images:
            named = {*roles.images, *roles.masks, *roles.drop}
            roles = replace(
                roles, images=(*roles.images, *(name for name in image_structs(table) if name not in named))
            )
        assigned = assign_columns(table.column_names, roles, path)
        lines: list[str] = []
        if assigned.label is None:
            # by the metadata of the table
            known = {*found.class_names, *([] if self.form == "table" else [CATEGORY])}
            classes = [name for name in assigned.others if name in known]
            if len(classes) == 1:
                assigned = replace(
                    assigned,
                    label=classes[0],
                    others=tuple(name for name in assigned.others if name != classes[0]),
                )
        if assigned.label is not None:
            # a label with names in the metadata is not stored as a number without them
            has_names = self.class_names is not None or assigned.label in found.class_names
            if not (assigned.is_label_named or has_names) and not _may_be_label(table, assigned.label):
                lines += unused_label(assigned.label, table[assigned.label])
                assigned = assigned.without_label()
        elif self.class_names is not None:
            raise InputError("table-no-label", path=path)
        if not roles.no_images:
            assigned, of_images = with_found_images(table, assigned, root)
            lines += of_images
        return replace(assigned, embedded=embedded_images(table, assigned.images)), lines

    def _stored(
        self, found: TableFile, assigned: AssignedColumns
    ) -> tuple[list[StoredColumn], tuple[str, ...]]:
        """Return the columns that are stored, and the class names."""
        table = found.table
        others = [
            stored_column(name, table[name], varies=is_along_rows(name, table)) for name in assigned.others
        ]
        if assigned.label is None:
            return others, ()
        own = found.class_names.get(assigned.label, ())
        label = label_column(assigned.label, table[assigned.label], self.class_names, own)
        return [label.stored, *others], label.names

    def _image_features(self, assigned: AssignedColumns) -> list[Feature]:
        return [
            mask_feature(name, self.images) if name in assigned.masks else image_feature(name, self.images)
            for name in assigned.images.values()
        ]


def _may_be_label(table: pa.Table, name: str) -> bool:
    """Return whether a column that has only the name of labels holds classes."""
    kind = table[name].type
    has_rows = is_list_type(kind) and is_list_type(kind.value_type)
    return not has_rows and label_fault(name, table[name]) is None


class RestoredTable(Table):
    """A table by its path and perhaps that of the folder of its images, with the options of a manifest."""

    def _root_remedy(self) -> str:
        """Return what to do if the images are in another folder; there is no parameter for it."""
        paths = [os.fspath(self.path), "FOLDER"]
        return f"give the table, and after it the folder of its images: source={paths!r}"
