"""Sources of rows: a format reads them, and one base class gives roles to the columns and stages them."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from tfshards.prep.imaging.coordinates import Outside, Reference
from tfshards.prep.imaging.options import ImageOptions, changed_images, recorded_images
from tfshards.prep.option import changed_options, check_choices, recorded_options
from tfshards.prep.sources.base import Source
from tfshards.prep.sources.classes import ClassNames, given_class_names, repeated
from tfshards.prep.sources.features import (
    StoredColumn,
    is_list_type,
    numbers_of,
    shown,
    stored_column,
)
from tfshards.prep.sources.image_paths import (
    ImageFiles,
    check_found,
    is_relative,
    stat_images,
    unmentioned,
)
from tfshards.prep.sources.kinds import check_num_inputs
from tfshards.prep.sources.labels import (
    NUMBERS_IN_TEXT,
    check_no_lists_in_text,
    key_column,
    label_column,
    split_names,
)
from tfshards.prep.sources.pictures import ImageRules, check_mask_depth, image_feature
from tfshards.prep.sources.roles import (
    IMAGE_ROLES,
    Role,
    check_effect,
    check_roles,
    check_undeclared_boxes,
    features_of,
    is_template,
    resolve_roles,
)
from tfshards.prep.sources.row_columns import (
    STRING,
    SourceColumn,
    TableRows,
    fields_in,
    folder_splits,
    plain_rows,
    read_columns,
    row_groups,
)
from tfshards.prep.sources.staged import SIZE, Rows, stage
from tfshards.prep.sources.staged_reader import StagedReader
from tfshards.schemas import InputError, OptionsError, Schema
from tfshards.schemas.errors import check_instance
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import AnyPath, any_path

# Roles of columns that are no features.
_NOT_STORED = ("split", "key", "drop")


@dataclass(frozen=True)
class RowSource(Source):
    """A source of rows, whose columns have roles.

    The columns ``file_name``, ``image``, ``label``, ``split`` and ``key`` have these roles by their names;
    ``roles`` declares those of others. A column ``file_name`` holds paths of images, and becomes the feature
    ``image``. Columns without a role are stored as they are. The key of an example is its value in the column
    ``key``, or the path of its first image, or the row number if there are no images or a path is repeated or
    missing. Paths of images whose first folders are all train, val, test and the like give the splits.

    Attributes:
        source: what is read; see the format.
        roles: role of each column: "image" or "mask", which holds paths or encoded images; "label", "split",
            "key"; "list", stored as a list of any length; "value", stored as it is; "drop", not stored; or
            the format of boxes or keypoints: "xywh" (left, top, width, height), "xyxy", "cxcywh", "yxyx",
            "xy", "xyv" (with the visibility), in pixels, or with "-normalized" as fractions of the image. The
            name of a struct stands for all of its fields. A template such as "train/{id:06d}.jpg", in which
            braces name columns, is a column of paths.
        images: how images are checked, converted and stored.
        root: folder to which image paths are relative; by default the folder of the table, or found next to
            the annotations.
        class_names: file of the class names in label order, one per line, or a dataset that has them, or, in
            Python, the names; other labels are an error. By default the names in the data, sorted.
        follow_links: follow links out of the folder of the images.
        outside_boxes: what to do about boxes and keypoints that reach out of their image by more than 1 % of
            its side, or 1 pixel: reject the image, clip them to it, or keep them.
        boxes_in: whether boxes and keypoints refer to the pixels in the file, or to the image that is turned
            upright by its EXIF tag. Without it, and unless the format shows it, a turned image with boxes is
            rejected.

    Raises:
        OptionsError: the source is empty or of another type, a role does not exist, or the class names are
            empty or repeated.
    """

    source: Any
    roles: Mapping[str, Role] = field(default_factory=dict)
    images: ImageOptions = field(default_factory=ImageOptions)
    root: str | os.PathLike[str] | None = None
    class_names: ClassNames = None
    follow_links: bool = False
    outside_boxes: Outside = "reject"
    boxes_in: Reference | None = None
    _is_appended: bool = field(default=False, repr=False)

    # Name of the kind of source, and its options that manifests record.
    kind: ClassVar[str]
    RECORDED: ClassVar[tuple[str, ...]] = ("follow_links", "outside_boxes", "boxes_in")

    def __post_init__(self) -> None:
        check_choices(self)
        check_roles(self.roles)
        check_instance("images", self.images, ImageOptions)
        if isinstance(self.source, (str, os.PathLike)):
            if not os.fspath(self.source):
                raise OptionsError("the path of the source is empty; name a file or a folder")
            any_path(self.source)
        if self.root is not None:
            any_path(self.root)
        given_class_names(self.class_names)

    @classmethod
    def from_recorded(cls, options: Mapping[str, Any], inputs: Sequence[str], _: Schema) -> RowSource:
        """Return a source with the options of a build from the paths of its inputs."""
        check_num_inputs(inputs, 2, "one table or annotation file, and at most one folder of images")
        return cls(
            inputs[0],
            dict(options.get("columns", {})),
            recorded_images(options),
            root=inputs[1] if len(inputs) == 2 else None,
            **recorded_options((*cls.RECORDED, "follow_links"), options),
            _is_appended=True,
        )

    @abstractmethod
    def rows(self, root: AnyPath | None, needed: Collection[str | None]) -> TableRows:
        """Return the rows; ``needed`` names columns that are used, even if they are not stored."""

    def stage(self, folder: Path | None, *, group_by: str | None = None) -> StagedReader:
        """Return a reader of the rows; they are copied into ``folder``, but not files of images.

        Raises:
            OptionsError: the suffix of a file is not supported, or an option has no effect since there are no
                images.
            InputError: the source cannot be read, a column is missing or cannot be stored, or an image is
                outside ``root``.
        """
        templates = [name for name, role in self.roles.items() if role in IMAGE_ROLES and is_template(name)]
        in_templates = {name for each in templates for name in fields_in(each)}
        read = self.rows(self._folder_of_images(), {group_by, *in_templates})
        read = plain_rows(read, templates)
        columns = self._columns(read)
        used = [each for each in columns if each.role != "drop" or each.name == group_by]
        num_rows, spilled = read_columns(read, used, in_templates, folder)
        files = {each.name: self._files_of(each, read, spilled) for each in columns if each.is_image}
        values = self._values(read, used)
        groups = None if group_by is None else row_groups(group_by, used, files)
        photo, key, split, fault = (_of_role(columns, role) for role in ("image", "key", "split", "fault"))
        images = [column for column in columns if column.is_image]
        features = [image_feature(each.feature, self.images, each.role or "") for each in images]
        features += [column.feature for column in values.values()]
        roles: dict[str, Json] = {
            each.name: each.role for each in columns if each.role not in (None, "fault")
        }
        rows = Rows(
            num_rows=num_rows,
            features=features,
            rules=ImageRules.of(features, self.images, self.outside_boxes, self.boxes_in or read.boxes_in),
            recorded={"source": self.kind, "columns": roles, **changed_options(self, self.RECORDED)},
            values={name: column.values for name, column in values.items()},
            images={column.feature: files[column.name] for column in images},
            spilled=spilled,
            spilled_names=[column.feature for column in images if column.is_embedded],
            keys=key and key_column(key.name, key.values),
            splits=split_names(split.name, split.values) if split else folder_splits(photo),
            faults=fault and fault.values,
            groups=groups,
            image_column=images[0].name if images else "",
            class_names=next((each.class_names for each in values.values() if each.class_names), ()),
            root=read.root,
            warnings=[*read.warnings, *self._warnings(read, columns, values)],
        )
        return stage(rows, folder)

    def _folder_of_images(self) -> AnyPath | None:
        root = None if self.root is None else any_path(self.root)
        # what is missing in a store is reported with the first image
        if root is not None and not root.is_far and not root.is_dir():
            raise InputError(f"root={str(root)!r} is not a folder; name the folder of the images")
        return root

    def _columns(self, read: TableRows) -> list[SourceColumn]:
        """Return the columns of features, in their order, and then others that have a role."""
        kinds = {each.name: each.type for each in read.batches.schema if each.name != read.faults}
        for name, of_column in read.class_names.items():
            # two numbers of one name would be two classes or one, depending on the reader
            for class_name in repeated(of_column):
                raise InputError(f"{read.where}: column {name!r} has two classes {class_name!r}; rename one")
        declared = self.roles
        if self._is_appended:
            # what the dataset dropped, or what named its splits or keys, need not be in rows for it
            declared = {
                name: role for name, role in declared.items() if name in kinds or role not in _NOT_STORED
            }
        roles = resolve_roles([*kinds, *read.unread], declared, read.where, read.roles)
        features = features_of([*kinds], roles, read.where)
        columns = [
            SourceColumn(name, roles.get(name), features.get(name, ""), kinds.get(name, STRING))
            for name in dict.fromkeys([*features, *roles])
        ]
        self._check(read, columns)
        return columns + ([SourceColumn(read.faults, "fault", "", STRING)] if read.faults else [])

    def _check(self, read: TableRows, columns: Sequence[SourceColumn]) -> None:
        """Raise an error if an option has no effect on these columns, or one cannot hold images."""
        images = [column for column in columns if column.is_image]
        of_images = [*changed_images(self.images.to_json()), *["root"] * (self.root is not None)]
        of_labels = ["class_names"] * bool(self.class_names) + ["label_separator"] * bool(read.separator)
        check_effect(read.where, [column.role for column in columns], of_images, of_labels)
        check_mask_depth(self.images, has_masks=any(column.role == "mask" for column in images))
        for column in images:
            if column.kind != STRING and not column.is_embedded:
                raise InputError(
                    f"column {column.name!r}: image paths must be text, not {shown(column.kind)}; "
                    f"roles={{{column.name!r}: 'value'}} stores the column as it is, and a template such as "
                    "'train/{id}.jpg' makes paths of numbers; lists of images become a column for each view"
                )

    def _files_of(self, column: SourceColumn, read: TableRows, spilled: pa.Table | None) -> ImageFiles:
        """Return the files of a column of images."""
        root = read.root
        if column.is_embedded and spilled is not None:
            sizes = numbers_of(spilled[SIZE + column.feature].combine_chunks())
            return stat_images(root, column.paths, sizes, follow_links=self.follow_links)
        if read.is_scattered and not column.is_embedded and any(map(is_relative, column.paths)):
            raise InputError(
                f"{read.where}: the tables are in several folders, so it is not known to which one the paths "
                f"of column {column.name!r} belong; save one table with paths from one folder, or give "
                "root=DIR if they are from there"
            )
        files = stat_images(root, column.paths, None, follow_links=self.follow_links)
        check_found(column.name, files, root)
        return files

    def _values(self, read: TableRows, columns: Sequence[SourceColumn]) -> dict[str, StoredColumn]:
        """Return the columns that are stored, except images, by feature.

        Lists in a struct with lists of lists, such as numbers next to boxes, are lists of any length: a crop
        that removes a box removes its number.
        """
        stored = dict[str, StoredColumn]()
        lists = [column for column in columns if is_list_type(column.kind)]
        structs = {column.struct for column in lists if is_list_type(column.kind.value_type)} - {""}
        for column in columns:
            if column.is_image or not column.feature:
                continue
            name, is_along = column.name, column in lists and column.struct in structs
            if column.role == "label":
                own, given = read.class_names.get(name, ()), self.class_names
                stored[column.feature] = label_column(name, column.values, given, own, read.separator)
            else:
                role = column.role or ("list" if is_along else "value")
                stored[column.feature] = stored_column(name, column.values, role)
        if any(column.is_image for column in columns):
            undeclared = [column for column in columns if column.role is None]
            check_undeclared_boxes((stored[each.feature].feature for each in undeclared), read.where)
            for column in undeclared:
                if column.kind == STRING:
                    check_no_lists_in_text(column.name, column.values, NUMBERS_IN_TEXT, "")
        return stored

    def _warnings(
        self, read: TableRows, columns: Sequence[SourceColumn], values: Mapping[str, StoredColumn]
    ) -> Iterator[str]:
        """Yield warnings about columns, and about images that are in no row."""
        yield from filter(None, (column.warning for column in values.values()))
        paths = {path for column in columns if column.is_image for path in column.paths}
        if read.owns_root and paths:
            yield from unmentioned(read.root, paths, follow_links=self.follow_links)


def _of_role(columns: Sequence[SourceColumn], role: str) -> SourceColumn | None:
    """Return the first column that has a role, or None."""
    return next((column for column in columns if column.role == role), None)
