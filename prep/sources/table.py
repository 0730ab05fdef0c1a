"""Tables as sources: files of rows, or any Arrow stream."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa

from tfshards.prep.imaging.coordinates import Outside, Reference
from tfshards.prep.imaging.formats import METADATA_NAMES
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.sources.classes import check_class_names
from tfshards.prep.sources.features import (
    classes_in,
)
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.sources.kinds import Recorded, check_num_inputs
from tfshards.prep.sources.roles import (
    USUAL,
    check_roles,
    roles_option,
)
from tfshards.prep.sources.split_lists import (
    check_split_list,
    split_list_option,
)
from tfshards.prep.sources.staged_reader import StagedReader
from tfshards.prep.sources.table_files import find_files, read_files
from tfshards.prep.sources.table_rows import (
    Batches,
    RowOptions,
    TableRows,
    is_image_role,
    stage_table,
    template_columns,
)
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.option import check_choices, check_instance, option
from tfshards.schemas.storage import AnyPath, RemotePath, any_path


@dataclass(frozen=True)
class Table:
    """The rows of CSV, TSV, JSON Lines or Parquet files, or of any Arrow stream in memory.

    The columns ``file_name``, ``image``, ``label``, ``split`` and ``key`` have these roles by their names;
    ``roles`` declares those of others. A column ``file_name`` holds paths of images, and becomes the feature
    ``image``. Columns without a role are stored as they are. The key of an example is its value in the column
    ``key``, or the path of its first image, or the row number if there are no images or a path is repeated or
    missing. Paths of images whose first folders are all train, val, test and the like give the splits.

    Attributes:
        source: a file; a folder that contains ``metadata.csv``, ``metadata.jsonl`` or ``metadata.parquet``; a
            folder or a pattern of files of one suffix, whose names, or folders such as ``year=2024``, may
            give splits and columns; or a pandas or polars DataFrame, a relation of DuckDB, or anything else
            with ``__arrow_c_stream__``.
        roles: role of each column: "image" or "mask", which holds paths or encoded images; "label", "split",
            "key"; "list", stored as a list of any length; "value", stored as it is; "drop", not stored; or
            the format of boxes or keypoints: "xywh" (left, top, width, height), "xyxy", "cxcywh", "yxyx",
            "xy", "xyv" (with the visibility), in pixels, or with "-normalized" as fractions of the image. The
            name of a struct stands for all of its fields. A template such as ``train/{id:06d}.jpg``, in which
            braces name columns, is a column of paths.
        images: how images are checked, converted and stored.
        root: folder to which image paths are relative; by default the folder of the table.
        class_names: class names in label order; other labels are an error.
        follow_links: read images outside ``root``.
        label_separator: what separates the classes in a text of the label column, such as "|". An empty text
            is no class. An empty string states that each text is one class.
        outside_boxes: what to do about boxes and keypoints that reach out of their image by more than 1 % of
            its side, or 1 pixel: "reject" the image, "clip" them to it, or "keep" them.
        boxes_in: whether boxes and keypoints refer to the pixels in the "file" or to the "upright" image;
            without it, an image that is turned upright by its EXIF tag and has boxes is rejected.
        split_list: the list of the images of each split, as in ``ImageFolder``, without labels; its path is
            relative to the folder of the table. Rows whose first image is in no list are left out.

    Raises:
        OptionsError: the source is empty or of another type, a role does not exist, or the class names are
            empty or repeated.
    """

    source: Any
    roles: Mapping[str, str] = roles_option()
    images: ImageOptions = field(default_factory=ImageOptions)
    root: str | os.PathLike[str] | None = option(
        None,
        "folder to which image paths are relative",
        metavar="DIR",
        default_text="the folder of the table",
    )
    class_names: Sequence[str] | None = None
    follow_links: bool = option(False, "follow links out of the folder of the images")
    label_separator: str | None = option(
        None,
        "text between the classes in a text of the label column, such as '|'; '' if each text is one class",
        metavar="TEXT",
    )
    outside_boxes: Outside = option(
        "reject",
        "reject images with boxes or keypoints outside of them, clip these to the image, or keep them",
        choices=get_args(Outside),
    )
    boxes_in: Reference | None = option(
        None,
        "whether boxes and keypoints refer to the pixels in the file, or to the image that is turned upright "
        "by its EXIF tag",
        choices=get_args(Reference),
        default_text="images that are turned are rejected if they have boxes",
    )
    split_list: Mapping[str, str] = split_list_option()
    _only: frozenset[str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_choices(self)
        check_roles(self.roles)
        check_instance("images", self.images, ImageOptions)
        if isinstance(self.source, (str, os.PathLike)):
            if not os.fspath(self.source):
                raise OptionsError("table-path-empty")
            any_path(self.source)
        elif not hasattr(self.source, "__arrow_c_stream__"):
            kind = type(self.source).__name__
            raise OptionsError(f"the source of a table is a path, or has __arrow_c_stream__, not {kind}")
        if self.root is not None:
            any_path(self.root)
        check_class_names(self.class_names)
        check_split_list(self.split_list)

    def location(self) -> None:
        """Return None, because the dataset may be in the folder of the table."""
        return

    def with_class_names(self, names: Sequence[str]) -> Table:
        """Return the source with these class names, unless it has its own."""
        return self if self.class_names is not None else replace(self, class_names=names)

    def stage(self, folder: Path, *, group_by: str | None = None, preview: bool = False) -> StagedReader:
        """Return a reader of the rows; the table is copied into ``folder``, but not files of images.

        Raises:
            OptionsError: the suffix of the file is not supported, or an option has no effect since the table
                has no images.
            InputError: the table cannot be read, a column is missing or cannot be stored, or an image is
                outside ``root``.
        """
        read, lists = self._read(group_by)
        options = RowOptions(
            "table",
            self.roles,
            self.images,
            self.root,
            self.class_names,
            self.follow_links,
            self.label_separator,
            self.outside_boxes,
            self.boxes_in,
            self.split_list,
            lists,
            self._only,
        )
        return stage_table(read, options, folder, group_by=group_by, preview=preview)

    @classmethod
    def from_recorded(cls, recorded: Recorded, inputs: Sequence[str]) -> Table:
        """Return the source of a build from its record, and the paths of its inputs."""
        roles = dict(recorded.options.get("columns", {}))
        has_images = "image" in roles.values() or "mask" in roles.values()
        allowed = "and at most one folder of images" if has_images else "since the dataset has no images"
        check_num_inputs(inputs, 2 if has_images else 1, f"one table, {allowed}")
        return cls(
            inputs[0],
            roles,
            recorded.images,
            root=inputs[1] if len(inputs) == 2 else None,
            class_names=recorded.class_names,
            follow_links=recorded.follow_links,
            **recorded.given("label_separator", "outside_boxes", "boxes_in", "split_list"),
            _only=frozenset(recorded.schema.names),
        )

    def _read(self, group_by: str | None) -> tuple[TableRows, AnyPath]:
        """Return the rows, and the folder of the table."""
        given = None if self.root is None else any_path(self.root)
        if isinstance(given, Path) and not given.is_dir():
            raise InputError("root-not-a-folder", root=os.fspath(given))
        if isinstance(self.source, (str, os.PathLike)):
            files = find_files(self.source, follow_links=self.follow_links)
            kept = {group_by, *template_columns(self.roles)}
            dropped = {name for name, role in self.roles.items() if role == "drop"} - kept
            read = read_files(files, dropped, self._is_path)
            near = files.where if files.where.is_dir() else files.paths[0].parent
            is_own = self.root is None and files.where.name in METADATA_NAMES
        else:
            stream = pa.RecordBatchReader.from_stream(self.source)
            tables = (pa.Table.from_batches([batch]) for batch in stream)
            read = TableRows(
                Batches(stream.schema, tables),
                where=f"this {type(self.source).__name__}",
                class_names=classes_in(stream.schema.metadata),
            )
            near, is_own = any_path("."), False
        root = given or near
        text = to_bytes(str(root)) if isinstance(root, RemotePath) else os.path.realpath(os.fsencode(root))
        return replace(read, root=text, owns_root=is_own), near

    def _is_path(self, name: str) -> bool:
        return is_image_role(self.roles.get(name, USUAL.get(name)))
