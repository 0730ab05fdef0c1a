"""Images with annotated objects: what the kinds of source that read annotation files have in common."""

from __future__ import annotations

import os
import unicodedata
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tfshards.prep.sources.table_rows import RowSource, TableRows
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.option import option
from tfshards.schemas.storage import AnyPath, RemotePath, any_path
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
class Annotations(RowSource):
    """The images of annotation files, and their objects; ``Coco`` and ``Yolo`` are formats of these files.

    The features are ``image``, ``objects/bbox``, ``objects/category`` with the classes, and what else the
    format has. The key of an example is the path of its image. An annotation that is not valid rejects its
    image. ``roles`` are those that differ from the ones of the format, such as ``{"objects/area": "drop"}``.
    Attributes are also those of ``RowSource``.

    Attributes:
        segmentations: keep polygons: their points in ``polygons/points``, the number of points of each in
            ``polygons/lengths``, and its object, as numbered by ``objects/index``, in ``polygons/object``.

    Raises:
        OptionsError: the path is empty, a path is a URL, a role does not exist, or the class names are empty
            or repeated.
    """

    segmentations: bool = option(False, "keep the polygons of objects")

    def __post_init__(self) -> None:
        super().__post_init__()
        for path in (self.source, self.root):
            if path is not None and isinstance(any_path(path), RemotePath):
                raise OptionsError(f"{self.kind} reads files on disks only || copy {str(path)!r} to a disk")

    @abstractmethod
    def read(self, path: Path, root: Path | None) -> TableRows:
        """Return the rows of the annotation files."""

    def rows(self, root: AnyPath | None, needed: Collection[str | None]) -> TableRows:
        """Return the rows of the annotation files."""
        return self.read(Path(self.source), None if root is None else Path(str(root)))


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
