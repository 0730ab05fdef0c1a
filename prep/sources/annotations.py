"""Images with annotated objects: what the kinds of source that read annotation files have in common."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, get_args

import pyarrow as pa

from tfshards.prep.imaging.coordinates import Outside, Reference
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.sources.classes import check_class_names
from tfshards.prep.sources.kinds import Recorded, check_num_inputs
from tfshards.prep.sources.roles import check_roles, roles_option
from tfshards.prep.sources.staged_reader import StagedReader
from tfshards.prep.sources.table_rows import RowOptions, TableRows, stage_table
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.option import check_choices, check_instance, check_path, option
from tfshards.schemas.storage import RemotePath, any_path
from tfshards.schemas.storage.untrusted import ANNOTATIONS, Limit, read_whole

# The column that is not stored: why an image is rejected, or null.
FAULT = "fault"
_NUMBERS, _INTEGERS = pa.large_list(pa.float32()), pa.large_list(pa.int64())
_COLUMNS = {
    "file_name": pa.large_binary(),
    FAULT: pa.large_string(),
    "split": pa.large_string(),
    "image_id": pa.int64(),
    "width": pa.int64(),
    "height": pa.int64(),
}
_VALUES = {
    "bbox": _NUMBERS,
    "category": pa.int64(),
    "area": pa.float32(),
    "iscrowd": pa.bool_(),
    "keypoints": _NUMBERS,
}
_POLYGONS = pa.struct({"points": pa.large_list(_NUMBERS), "lengths": _INTEGERS, "object": _INTEGERS})
# a lone surrogate is not Unicode
_TEXT = re.compile(r"[^\0\ud800-\udfff]+")

# Values of an image, or of an object, by their names.
Row: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True)
class AnnotatedImages:
    """The images of annotation files, and the rows that they become.

    Attributes:
        root: folder to which their paths are relative.
        rows: values of each image by its path: columns, ``FAULT``, and ``objects``, each with its values by
            name. The ``polygons`` of an object are the numbers x, y of their points.
    """

    root: Path
    rows: dict[bytes, Row] = field(default_factory=dict)

    def add(self, path: str | Path, split: str, **values: int | None) -> Row:
        """Return the row of a new image, which has no objects yet; ``split`` may be empty."""
        name = os.fsencode(os.path.relpath(path, self.root))
        # a folder of one split would serve others if their images have the same names
        if name in self.rows:
            raise InputError(
                f"{path} is annotated twice, perhaps in two splits || leave out one of them, or name the "
                "folder that holds the images of all splits with root="
            )
        self.rows[name] = {"file_name": name, "split": split or None, "objects": [], **values}
        return self.rows[name]

    def table_rows(
        self, where: Path, roles: Mapping[str, str], class_names: tuple[str, ...], warnings: Iterable[str]
    ) -> TableRows:
        """Return the rows of all images.

        ``polygons/points`` has the points of all polygons of an image, ``polygons/lengths`` the number of
        points of each, and ``polygons/object`` the number of its object, which ``objects/index`` has, too.

        Args:
            where: path of the annotations, for messages.
            roles: roles of the values of objects, whose columns are ``objects/NAME``; of ``polygons`` the
                format of their points.
            class_names: names of the numbers in ``category``, or empty.
            warnings: warnings for the user.
        """
        rows = [*self.rows.values()]
        values = {name: kind for name, kind in _VALUES.items() if name in roles}
        of_columns = {f"objects/{name}": roles[name] for name in values}
        if "polygons" in roles:
            for row in rows:
                row["polygons"] = _numbered_polygons(row["objects"])
            values["index"] = pa.int64()
            of_columns |= dict.fromkeys(("objects/index", "polygons/lengths", "polygons/object"), "list")
            of_columns["polygons/points"] = roles["polygons"]
        types = {**_COLUMNS, "objects": pa.large_list(pa.struct(values)), "polygons": _POLYGONS}
        has = {FAULT, *rows[0]} - (set() if rows[0]["split"] else {"split"})
        table = pa.Table.from_pylist(rows, pa.schema([(n, kind) for n, kind in types.items() if n in has]))
        # as text, also names that are not UTF-8, because columns of bytes are encoded images
        paths = table["file_name"].chunk(0).view(pa.large_string())
        return TableRows(
            table.set_column(0, "file_name", paths),
            of_columns,
            os.path.realpath(os.fsencode(self.root)),
            str(where),
            {"objects/category": class_names} if class_names else {},
            sizes=("width", "height") if "width" in has else None,
            faults=FAULT,
            warnings=tuple(warnings),
        )


def _numbered_polygons(objects: Sequence[Row]) -> Row:
    """Number the objects of an image, and return their polygons."""
    for number, each in enumerate(objects):
        each["index"] = number
    polygons = [(each["index"], polygon) for each in objects for polygon in each["polygons"]]
    return {
        "points": [pair for _, each in polygons for pair in zip(each[::2], each[1::2], strict=True)],
        "lengths": [len(each) // 2 for _, each in polygons],
        "object": [number for number, _ in polygons],
    }


@dataclass(frozen=True)
class Annotations(ABC):
    """The images of annotation files, and their objects; ``Coco`` and ``Yolo`` are formats of these files.

    The features are ``image``, ``objects/bbox``, ``objects/category`` with the classes, and what else the
    format has. The key of an example is the path of its image. An annotation that is not valid rejects its
    image.

    Attributes:
        path: the file or folder, see the format.
        roles: roles of columns that differ from those of the format, such as ``{"objects/area": "drop"}``.
        images: how images are checked, converted and stored.
        root: folder to which image paths are relative.
        class_names: class names in label order; other labels are an error.
        follow_links: read files outside the folder of the source, or ``root``.
        segmentations: keep polygons: their points in ``polygons/points``, the number of points of each in
            ``polygons/lengths``, and its object, as numbered by ``objects/index``, in ``polygons/object``.
        outside_boxes: what to do about boxes and keypoints that reach out of their image by more than 1 % of
            its side, or 1 pixel: "reject" the image, "clip" them to it, or "keep" them.
        boxes_in: whether boxes and keypoints refer to the pixels in the "file" or to the "upright" image; by
            default, see the format.

    Raises:
        OptionsError: the path is empty, a path is a URL, a role does not exist, or the class names are empty
            or repeated.
    """

    path: str | os.PathLike[str]
    roles: Mapping[str, str] = roles_option()
    images: ImageOptions = field(default_factory=ImageOptions)
    root: str | os.PathLike[str] | None = option(
        None,
        "folder to which image paths are relative",
        metavar="DIR",
        default_text="found next to the annotations",
    )
    class_names: Sequence[str] | None = None
    follow_links: bool = option(False, "follow links out of the folder of the images")
    segmentations: bool = option(False, "keep the polygons of objects")
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
        default_text="what the annotations show",
    )
    _only: frozenset[str] | None = field(default=None, repr=False)

    # Name of the kind of source.
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        check_choices(self)
        check_roles(self.roles)
        check_instance("images", self.images, ImageOptions)
        for name, path in (("path", self.path), ("root", self.root)):
            if isinstance(path, (str, os.PathLike)) and isinstance(any_path(path), RemotePath):
                raise OptionsError(f"{self.kind} reads files on disks only || copy {str(path)!r} to a disk")
            if path is not None or name == "path":
                check_path(name, path)
        if not os.fspath(self.path):
            raise OptionsError("table-path-empty")
        check_class_names(self.class_names)

    def location(self) -> None:
        """Return None, because the dataset may be in the folder of the annotations."""
        return

    def with_class_names(self, names: Sequence[str]) -> Annotations:
        """Return the source with these class names, unless it has its own."""
        return self if self.class_names is not None else replace(self, class_names=names)

    @abstractmethod
    def read(self, path: Path, root: Path | None) -> TableRows:
        """Return the rows of the annotation files."""

    def stage(self, folder: Path, *, group_by: str | None = None, preview: bool = False) -> StagedReader:
        """Return a reader of the rows; the annotations are copied into ``folder``, but not the images.

        Raises:
            InputError: the annotations cannot be read, a column is missing, or an image is outside of the
                folder.
        """
        root = None if self.root is None else Path(self.root)
        if root is not None and not root.is_dir():
            raise InputError("root-not-a-folder", root=os.fspath(root))
        options = RowOptions(
            self.kind,
            self.roles,
            self.images,
            self.root,
            self.class_names,
            self.follow_links,
            outside_boxes=self.outside_boxes,
            boxes_in=self.boxes_in,
            only=self._only,
            recorded={"segmentations": True} if self.segmentations else {},
        )
        return stage_table(
            self.read(Path(self.path), root), options, folder, group_by=group_by, preview=preview
        )

    @classmethod
    def from_recorded(cls, recorded: Recorded, inputs: Sequence[str]) -> Annotations:
        """Return the source of a build from its record, and the paths of its inputs."""
        check_num_inputs(inputs, 2, "the annotations, and at most one folder of images")
        return cls(
            inputs[0],
            dict(recorded.options.get("columns", {})),
            recorded.images,
            root=inputs[1] if len(inputs) == 2 else None,
            class_names=recorded.class_names,
            follow_links=recorded.follow_links,
            **recorded.given("segmentations", "outside_boxes", "boxes_in"),
            _only=frozenset(recorded.schema.names),
        )


def is_text(value: object) -> bool:
    """Return whether a value in an annotation file is a name: text that is not empty, in Unicode."""
    return isinstance(value, str) and _TEXT.fullmatch(value) is not None


def read_annotation(path: Path, limit: Limit = ANNOTATIONS) -> bytes:
    """Return the content of an annotation file."""
    try:
        return read_whole(path, limit)
    except OSError as error:
        raise InputError("unreadable", path=path, why=error.strerror) from None
