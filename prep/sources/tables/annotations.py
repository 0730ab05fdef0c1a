"""Boxes and their classes as a table, and boxes that fit their image as it is stored."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tfshards.prep.imaging.masks import Geometry
from tfshards.prep.sources.base import Rejected
from tfshards.prep.sources.classes import usual_order
from tfshards.prep.sources.tables.files import TableFile
from tfshards.schemas import InputError
from tfshards.schemas.reasons import Reason
from tfshards.schemas.storage.untrusted import ANNOTATIONS, Limit, read_whole

CATEGORY = "objects/category"
BOXES = "objects/bbox"


@dataclass
class AnnotatedImage:
    """One image and what is annotated in it.

    Attributes:
        path: path of the image, relative to the root.
        split: name of the split, or empty.
        boxes: four numbers of each object.
        categories: class number of each object.
        others: further values by column, of the image or one for each object.
        size: width and height to which boxes in pixels refer; None where the annotations do not state them.
    """

    path: bytes
    split: str = ""
    boxes: list[Sequence[float]] = field(default_factory=list)
    categories: list[int] = field(default_factory=list)
    others: dict[str, Any] = field(default_factory=dict)
    size: tuple[int | None, ...] = ()


def annotation_table(
    images: Sequence[AnnotatedImage],
    others: Mapping[str, pa.DataType],
    names: tuple[str, ...],
    parts: Sequence[tuple[bytes, bytes]],
    warnings: Sequence[str] = (),
) -> TableFile:
    """Return the images as a table.

    Args:
        images: the images, in any order.
        others: types of the columns in ``AnnotatedImage.others``.
        names: class names in label order; empty if they have no names.
        parts: name and content of the annotation files, which identify the table.
        warnings: warnings for the user.
    """
    images = sorted(images, key=lambda image: (usual_order(image.split), image.path))
    columns = {"file_name": pa.array([image.path for image in images], pa.large_binary())}
    if any(image.split for image in images):
        columns["split"] = pa.array([image.split for image in images], pa.string())
    flat = np.array([box for image in images for box in image.boxes], np.float32)
    boxes = pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel(), pa.float32()), 4)
    ends = np.cumsum([0, *(len(image.boxes) for image in images)], dtype=np.int64)
    columns[BOXES] = pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), boxes)
    columns[CATEGORY] = pa.array([image.categories for image in images], pa.large_list(pa.int64()))
    for name, kind in others.items():
        columns[name] = pa.array([image.others[name] for image in images], kind)
    digest = hashlib.sha256()
    for part, content in sorted(parts):
        digest.update(b"%d %s %d " % (len(part), part, len(content)) + content)
    class_names = {CATEGORY: names} if names else {}
    sides = tuple(zip(*(image.size for image in images), strict=True))
    return TableFile(pa.table(columns), f"sha256:{digest.hexdigest()}", tuple(warnings), class_names, sides)


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


def fitted_boxes(
    boxes: Sequence[float], stated: tuple[int, int] | None, size: Geometry, *, is_turned: bool
) -> Sequence[float] | Rejected:
    """Return boxes for an image as it is stored, or why it is not known where they are in it.

    Args:
        boxes: left, top, width and height of each box, one after another.
        stated: width and height of the image to which the boxes refer, according to the annotations.
        size: size and orientation of the image file.
        is_turned: whether the image is stored upright, rather than as it is in the file.
    """
    fault = None
    if stated not in (None, size.raw, size.upright):
        fault = f"the annotations state {stated} pixels, the image has {size.raw}"
    elif not is_turned and stated not in (None, size.raw):
        fault = f"the annotations state {size.upright} pixels; --orientation keep stores {size.raw}"
    elif is_turned and size.orientation != 1 and len(boxes):
        if stated is None or size.raw == size.upright:
            fault = (
                f"the image is turned by its EXIF orientation {size.orientation}, and the annotations do not "
                "show whether their boxes refer to the upright image; --orientation keep stores both as they "
                "are"
            )
        elif stated != size.upright:
            return _turned(boxes, size)
    return boxes if fault is None else Rejected(Reason.BOXES, fault)


def _turned(boxes: Sequence[float], size: Geometry) -> list[float]:
    """Return boxes of the pixels in the file as boxes of the upright image, whose sides are exchanged."""
    turned: list[float] = []
    for start in range(0, len(boxes), 4):
        left, top, width, height = boxes[start : start + 4]
        right, bottom = size.raw[0] - left - width, size.raw[1] - top - height
        # transposed; turned clockwise; transposed along the other diagonal; turned counterclockwise
        corner = {5: (top, left), 6: (bottom, left), 7: (bottom, right), 8: (top, right)}
        turned += [*corner[size.orientation], height, width]
    return turned
