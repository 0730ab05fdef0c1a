"""Boxes, keypoints and polygons with their classes, as annotation files have them, as a table."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from tfshards.prep.sources.classes import usual_order
from tfshards.prep.sources.tables.files import TableFile
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import counted
from tfshards.schemas.storage.untrusted import ANNOTATIONS, Limit, read_whole

CATEGORY = "objects/category"
BOXES = "objects/bbox"
KEYPOINTS = "objects/keypoints"
# number of each object in its image, by which polygons name the one to which they belong
INDEX = "objects/index"
POLYGONS, LENGTHS, OBJECTS = "polygons/points", "polygons/lengths", "polygons/object"
# segmentations of COCO as JSON
TEXTS = "objects/segmentation"

Segmentations: TypeAlias = Literal["polygons", "text"]


def check_segmentations(segmentations: Segmentations | None, form: str) -> None:
    """Raise OptionsError unless a form of tables has segmentations that can be stored so."""
    allowed = {"coco": get_args(Segmentations), "yolo": ("polygons",)}
    if segmentations is not None and segmentations not in allowed.get(form, ()):
        raise OptionsError("segmentations-form", segmentations=segmentations, form=form)


@dataclass
class AnnotatedImage:
    """One image and what is annotated in it.

    Attributes:
        path: path of the image, relative to the root.
        split: name of the split, or empty.
        boxes: four numbers of each object.
        categories: class number of each object.
        keypoints: numbers of the keypoints of each object; none if it has none.
        polygons: polygons of each object, each the numbers x, y of its points; none if it has none.
        others: further values by column, of the image or one for each object.
        size: width and height to which boxes in pixels refer; None where the annotations do not state them.
    """

    path: bytes
    split: str = ""
    boxes: list[Sequence[float]] = field(default_factory=list)
    categories: list[int] = field(default_factory=list)
    keypoints: list[Sequence[float]] = field(default_factory=list)
    polygons: list[Sequence[Sequence[float]]] = field(default_factory=list)
    others: dict[str, Any] = field(default_factory=dict)
    size: tuple[int | None, ...] = ()


def annotation_table(
    images: Sequence[AnnotatedImage],
    others: Mapping[str, pa.DataType],
    names: tuple[str, ...],
    parts: Sequence[tuple[bytes, bytes]],
    warnings: Sequence[str] = (),
    formats: Mapping[str, str] = MappingProxyType({}),
) -> TableFile:
    """Return the images as a table.

    Objects without keypoints next to others that have them get zeros, which mean that none is labeled.
    ``others`` are the types of ``AnnotatedImage.others``, ``parts`` the names and contents of the annotation
    files, and ``formats`` the formats of ``KEYPOINTS`` and ``POLYGONS``, if the annotations may have them.
    """
    images = sorted(images, key=lambda image: (usual_order(image.split), image.path))
    columns = {"file_name": pa.array([image.path for image in images], pa.large_binary())}
    if any(image.split for image in images):
        columns["split"] = pa.array([image.split for image in images], pa.string())
    columns[BOXES] = _rows([image.boxes for image in images], 4)
    columns[CATEGORY] = _integers([image.categories for image in images])
    notes = [*warnings]
    width = max((len(each) for image in images for each in image.keypoints), default=0)
    if KEYPOINTS in formats and width:
        columns[KEYPOINTS] = _rows(
            [[each or [0.0] * width for each in image.keypoints] for image in images], width
        )
        notes += _left(
            images, [image.keypoints for image in images], "keypoints: all of them are stored as not labeled"
        )
    if POLYGONS in formats:
        numbered = [[(n, each) for n, some in enumerate(image.polygons) for each in some] for image in images]
        flat = [[one[at : at + 2] for _, one in some for at in range(0, len(one), 2)] for some in numbered]
        columns[POLYGONS] = _rows(flat, 2)
        columns[LENGTHS] = _integers([[len(each) // 2 for _, each in some] for some in numbered])
        columns[OBJECTS] = _integers([[number for number, _ in some] for some in numbered])
        columns[INDEX] = _integers([[*range(len(image.boxes))] for image in images])
        notes += _left(images, [image.polygons for image in images], "polygons")
    for name, kind in others.items():
        columns[name] = pa.array([image.others[name] for image in images], kind)
    digest = hashlib.sha256()
    for part, content in sorted(parts):
        digest.update(b"%d %s %d " % (len(part), part, len(content)) + content)
    class_names = {CATEGORY: names} if names else {}
    sides = tuple(zip(*(image.size for image in images), strict=True))
    table, known = pa.table(columns), {name: text for name, text in formats.items() if name in columns}
    return TableFile(table, f"sha256:{digest.hexdigest()}", tuple(notes), class_names, sides, known)


def _rows(lists: Sequence[Sequence[Sequence[float]]], width: int) -> pa.Array:
    """Return lists of rows of ``width`` numbers as a column of lists of lists of float32."""
    flat = np.array([row for rows in lists for row in rows], np.float32)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel(), pa.float32()), width)
    ends = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), rows)


def _integers(lists: Sequence[Sequence[int]]) -> pa.Array:
    return pa.array(lists, pa.large_list(pa.int64()))


def _left(images: Sequence[AnnotatedImage], values: Sequence[Sequence[Any]], what: str) -> list[str]:
    """Return a warning that counts the objects without a value and names their first image."""
    without = [image.path for image, own in zip(images, values, strict=True) for each in own if not each]
    named = f"such as one in {os.fsdecode(without[0])!r}" if without else ""
    return [f"{counted(len(without), 'object')}, {named}, without {what}"] if without else []


def is_class_name(name: object) -> bool:
    """Return whether a value in an annotation file is a class name: text that is not empty, in Unicode."""
    return isinstance(name, str) and name != "" and not any("\ud800" <= letter <= "\udfff" for letter in name)


def read_annotation(path: Path, limit: Limit = ANNOTATIONS) -> bytes:
    """Return the content of an annotation file."""
    try:
        return read_whole(path, limit)
    except OSError as error:
        raise InputError("unreadable", path=path, why=error.strerror) from None


def relative(path: str | os.PathLike[str], folder: Path) -> bytes:
    """Return a path relative to a folder, as the bytes of the file system."""
    return os.fsencode(os.path.relpath(path, folder))
