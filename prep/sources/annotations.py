"""Images with annotated objects: what the kinds of source that read annotation files have in common."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa

from tfshards.prep.sources.row_columns import TableRows
from tfshards.prep.sources.table_rows import RowSource
from tfshards.schemas import InputError
from tfshards.schemas.storage.paths import local_path

_NUMBERS, _INTEGERS = pa.large_list(pa.float32()), pa.large_list(pa.int64())
# The values of an object that are stored, by name.
_VALUES = {
    "bbox": _NUMBERS,
    "category": pa.int64(),
    "area": pa.float32(),
    "iscrowd": pa.bool_(),
    "keypoints": _NUMBERS,
    "index": pa.int64(),
}
_POLYGONS = pa.struct({"points": pa.large_list(_NUMBERS), "lengths": _INTEGERS, "object": _INTEGERS})
# a lone surrogate is not Unicode
_TEXT = re.compile(r"[^\0\ud800-\udfff]+")

# Values by name: of a row, or of an object.
Values: TypeAlias = "dict[str, Any]"


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


class ImageRows:
    """The rows of annotated images.

    A row has ``file_name``, ``split``, which may be empty, ``objects``, and perhaps ``image_id``; and a
    ``fault`` if it is rejected. An object has the values of ``_VALUES``; its ``polygons`` are lists of the
    numbers x, y of their points.

    Attributes:
        root: folder to which the paths of images are relative.
        by_path: the rows by these paths.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.by_path: dict[bytes, Values] = {}

    def add(self, path: str | Path, split: str, **values: int) -> Values:
        """Return a new row, which has no objects yet."""
        name = os.fsencode(os.path.relpath(path, self.root))
        # a folder of one split would serve others if their images have the same names
        if name in self.by_path:
            raise InputError(
                f"{path} is annotated twice, perhaps in two splits; leave out one of them, or name the "
                "folder that holds the images of all splits with root="
            )
        self.by_path[name] = {"file_name": name, "split": split, "objects": [], **values}
        return self.by_path[name]

    def table_rows(
        self, where: Path, roles: Mapping[str, str], class_names: tuple[str, ...], warnings: Iterable[str]
    ) -> TableRows:
        """Return the rows as a table.

        Args:
            where: path of the annotations, for messages.
            roles: roles of the values of objects, and of their ``polygons``.
            class_names: names of the numbers in ``category``, or empty.
            warnings: warnings for the user.
        """
        rows = [*self.by_path.values()]
        columns = {f"objects/{name}": role for name, role in roles.items() if name in _VALUES}
        kinds = {"file_name": pa.large_binary(), "fault": pa.large_string()}
        kinds |= {"split": pa.large_string()} if rows[0]["split"] else {}
        kinds |= {"image_id": pa.int64()} if "image_id" in rows[0] else {}
        if "polygons" in roles:
            columns |= dict.fromkeys(("objects/index", "polygons/lengths", "polygons/object"), "list")
            columns["polygons/points"] = roles["polygons"]
            for row in rows:
                row["polygons"] = _numbered_polygons(row["objects"])
        stored = {name: kind for name, kind in _VALUES.items() if f"objects/{name}" in columns}
        kinds["objects"] = pa.large_list(pa.struct(stored))
        kinds |= {"polygons": _POLYGONS} if "polygons" in roles else {}
        table = pa.Table.from_pylist(rows, pa.schema([*kinds.items()]))
        # text, even if it is not UTF-8, because columns of bytes are encoded images
        names = table["file_name"].combine_chunks().view(pa.large_string())
        return TableRows(
            table.set_column(0, "file_name", names).to_reader(),
            columns,
            os.path.realpath(os.fsencode(self.root)),
            str(where),
            {"objects/category": class_names} if class_names else {},
            faults="fault",
            warnings=tuple(warnings),
        )


def _numbered_polygons(objects: Sequence[Values]) -> Values:
    """Number the objects of an image, and return their polygons."""
    for number, each in enumerate(objects):
        each["index"] = number
    polygons = [(each["index"], polygon) for each in objects for polygon in each["polygons"]]
    return {
        "points": [pair for _, each in polygons for pair in zip(each[::2], each[1::2], strict=True)],
        "lengths": [len(each) // 2 for _, each in polygons],
        "object": [number for number, _ in polygons],
    }


def is_text(value: object) -> bool:
    """Return whether a value in an annotation file is a name: text that is not empty, in Unicode."""
    return isinstance(value, str) and _TEXT.fullmatch(value) is not None
