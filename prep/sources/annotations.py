"""Images with annotated objects: what the kinds of source that read annotation files have in common."""

from __future__ import annotations

import os
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, get_args

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
# Types of the values of an object.
_TYPES = {
    "bbox": pa.large_list(pa.float32()),
    "category": pa.int64(),
    "area": pa.float32(),
    "iscrowd": pa.bool_(),
    "keypoints": pa.large_list(pa.float32()),
}


@dataclass
class AnnotatedImage:
    """One image and what is annotated in it.

    Attributes:
        path: path of the image, relative to the root.
        split: name of the split, or empty.
        values: integers of the image, by column.
        objects: values of each object, by the column ``objects/NAME``; and its ``polygons``, each as the
            numbers x, y of its points.
        fault: why the image is rejected: what is wrong with its first annotation that is wrong; or None.
    """

    path: bytes
    split: str = ""
    values: Mapping[str, int | None] = field(default_factory=dict)
    objects: list[dict[str, Any]] = field(default_factory=list)
    fault: str | None = None

    def reject(self, fault: str) -> None:
        """Reject the image, unless it is rejected already."""
        self.fault = self.fault or fault


def annotation_table(
    images: Sequence[AnnotatedImage], names: Sequence[str], formats: Mapping[str, str]
) -> tuple[pa.Table, dict[str, str]]:
    """Return a row for each image, and the roles of the columns.

    ``polygons/points`` has the points of all polygons of an image, ``polygons/lengths`` the number of points
    of each, and ``polygons/object`` the number of its object, which ``objects/index`` has, too.

    Args:
        images: the images.
        names: names of the values of objects.
        formats: formats of boxes, keypoints and points of polygons, by column; these decide whether there
            are polygons.
    """
    paths = pa.array([image.path for image in images], pa.large_binary())
    # as text, since bytes may begin like an image
    with suppress(pa.ArrowInvalid):
        paths = paths.cast(pa.large_string())
    columns = {
        "file_name": paths,
        FAULT: pa.array([image.fault for image in images], pa.large_string()),
    }
    if any(image.split for image in images):
        columns["split"] = pa.array([image.split for image in images], pa.large_string())
    for name in images[0].values:
        columns[name] = pa.array([image.values[name] for image in images], pa.int64())
    lists: dict[str, tuple[Any, pa.DataType]] = {
        f"objects/{name}": ([[each.get(name) for each in image.objects] for image in images], _TYPES[name])
        for name in names
    }
    if "polygons/points" in formats:
        numbered = [
            [(number, polygon) for number, each in enumerate(image.objects) for polygon in each["polygons"]]
            for image in images
        ]
        points = [
            [pair for _, each in some for pair in zip(each[::2], each[1::2], strict=True)]
            for some in numbered
        ]
        lists["objects/index"] = [range(len(image.objects)) for image in images], pa.int64()
        lists["polygons/points"] = points, pa.large_list(pa.float32())
        lists["polygons/lengths"] = [[len(each) // 2 for _, each in some] for some in numbered], pa.int64()
        lists["polygons/object"] = [[number for number, _ in some] for some in numbered], pa.int64()
    columns |= {name: pa.array(values, pa.large_list(kind)) for name, (values, kind) in lists.items()}
    return pa.table(columns), {**dict.fromkeys(lists, "list"), "objects/category": "label", **formats}


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
    if not isinstance(value, str) or not value or "\0" in value:
        return False
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def read_annotation(path: Path, limit: Limit = ANNOTATIONS) -> bytes:
    """Return the content of an annotation file."""
    try:
        return read_whole(path, limit)
    except OSError as error:
        raise InputError("unreadable", path=path, why=error.strerror) from None


def lines_of(content: bytes) -> list[str]:
    """Return the lines of a text file, or raise ValueError if it is not UTF-8."""
    try:
        return content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        encoding = "is UTF-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "is not UTF-8"
        raise ValueError(f"the file {encoding}; save it as UTF-8") from None


def existing_path(folder: Path, name: str) -> str | None:
    r"""Return the path of a file in a folder, or None if it does not exist.

    ``images\1.png``, as Windows writes paths, is ``images/1.png`` if only this exists. Whether a letter and
    its accent are one character makes no difference.
    """
    # not Path.is_file, which raises an error for a name that is too long
    for path in dict.fromkeys((name, name.replace("\\", "/"))):
        forms = {path, *(unicodedata.normalize(form, path) for form in ("NFC", "NFD"))}
        if any(os.path.isfile(folder / form) for form in forms):
            return path
    return None


def with_slashes(folder: Path, name: str) -> str:
    """Return a path in a folder, in which backslashes are slashes if only this file exists."""
    return (existing_path(folder, name) if "\\" in name else None) or name
