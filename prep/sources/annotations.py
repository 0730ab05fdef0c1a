"""Images with annotated objects: what the kinds of source that read annotation files have in common."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa

from tfshards.prep.sources.row_columns import Batches, TableRows
from tfshards.prep.sources.table_rows import RowSource
from tfshards.schemas import InputError
from tfshards.schemas.storage.any_path import local_path

# The column that is not stored: why an image is rejected, or null.
_FAULT = "fault"
_NUMBERS, _INTEGERS = pa.large_list(pa.float32()), pa.large_list(pa.int64())
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

# Values of an object by their names.
AnnotatedObject: TypeAlias = "dict[str, Any]"


@dataclass
class AnnotatedImage:
    """An image of an annotation file.

    Attributes:
        path: its path relative to the root.
        split: name of its split, or empty.
        values: its other columns.
        objects: its objects. The ``polygons`` of an object are the numbers x, y of their points.
        fault: why it is rejected, or None.
    """

    path: bytes
    split: str
    values: Mapping[str, int | None]
    objects: list[AnnotatedObject] = field(default_factory=list)
    fault: str | None = None

    def reject(self, fault: str) -> None:
        """Reject the image; the first fault counts."""
        self.fault = self.fault or fault


@dataclass(frozen=True)
class AnnotatedImages:
    """The images of annotation files, and the rows that they become.

    Attributes:
        root: folder to which their paths are relative.
        by_path: the images by their paths.
    """

    root: Path
    by_path: dict[bytes, AnnotatedImage] = field(default_factory=dict)

    def add(self, path: str | Path, split: str, **values: int | None) -> AnnotatedImage:
        """Return a new image, which has no objects yet; ``split`` may be empty."""
        name = os.fsencode(os.path.relpath(path, self.root))
        # a folder of one split would serve others if their images have the same names
        if name in self.by_path:
            raise InputError(
                f"{path} is annotated twice, perhaps in two splits || leave out one of them, or name the "
                "folder that holds the images of all splits with root="
            )
        self.by_path[name] = AnnotatedImage(name, split, values)
        return self.by_path[name]

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
        images = [*self.by_path.values()]
        values = {name: kind for name, kind in _VALUES.items() if name in roles}
        of_columns = {f"objects/{name}": roles[name] for name in values}
        polygons = [_numbered_polygons(image.objects) for image in images] if "polygons" in roles else []
        if polygons:
            values["index"] = pa.int64()
            of_columns |= dict.fromkeys(("objects/index", "polygons/lengths", "polygons/object"), "list")
            of_columns["polygons/points"] = roles["polygons"]
        first = images[0]
        columns = {
            # text, even if it is not UTF-8, because columns of bytes are encoded images
            "file_name": pa.array([image.path for image in images], pa.large_binary()).view(
                pa.large_string()
            ),
            _FAULT: pa.array([image.fault for image in images], pa.large_string()),
        }
        if first.split:
            columns["split"] = pa.array([image.split for image in images], pa.large_string())
        for name in first.values:
            columns[name] = pa.array([image.values[name] for image in images], pa.int64())
        columns["objects"] = pa.array([image.objects for image in images], pa.large_list(pa.struct(values)))
        if polygons:
            columns["polygons"] = pa.array(polygons, _POLYGONS)
        return TableRows(
            Batches.of(pa.table(columns)),
            of_columns,
            os.path.realpath(os.fsencode(self.root)),
            str(where),
            {"objects/category": class_names} if class_names else {},
            sizes=("width", "height") if "width" in first.values else None,
            faults=_FAULT,
            warnings=tuple(warnings),
        )


def _numbered_polygons(objects: Sequence[AnnotatedObject]) -> dict[str, Any]:
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
class Annotations(RowSource):
    """The images of annotation files, and their objects; ``Coco`` and ``Yolo`` are formats of these files.

    The features are ``image``, ``objects/bbox``, ``objects/category`` with the classes, and what else the
    format has. The key of an example is the path of its image. An annotation that is not valid rejects its
    image. ``roles`` are those that differ from the ones of the format, such as ``{"objects/area": "drop"}``.
    Attributes are also those of ``RowSource``.

    Attributes:
        segmentations: keep the polygons of objects: their points in "polygons/points", the number of points
            of each in "polygons/lengths", and its object, by "objects/index", in "polygons/object".

    Raises:
        OptionsError: the path is empty, a path is a URL, a role does not exist, or the class names are empty
            or repeated.
    """

    segmentations: bool = False

    RECORDED: ClassVar[tuple[str, ...]] = (*RowSource.RECORDED, "segmentations")

    def __post_init__(self) -> None:
        super().__post_init__()
        for path in (self.source, self.root):
            if path is not None:
                local_path(path)


def is_text(value: object) -> bool:
    """Return whether a value in an annotation file is a name: text that is not empty, in Unicode."""
    return isinstance(value, str) and _TEXT.fullmatch(value) is not None
