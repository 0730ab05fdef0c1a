"""Place the boxes and keypoints of a row in its image as it is stored, or reject the row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import pyarrow as pa

from tfshards.prep.imaging.coordinates import Frame, Outside, Reference, check_numbers, placed
from tfshards.prep.imaging.masks import Geometry
from tfshards.prep.imaging.normalize import Normalized
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.whitelist import ImageError
from tfshards.prep.records.example import Values
from tfshards.prep.sources.tables.annotations import BOXES, TEXTS
from tfshards.prep.sources.tables.assigned_columns import AssignedColumns
from tfshards.prep.sources.tables.column_roles import ColumnRoles
from tfshards.prep.sources.tables.coordinates import NONE, with_joined
from tfshards.prep.sources.tables.features import StoredColumn
from tfshards.prep.sources.tables.files import TableFile
from tfshards.schemas import InputError
from tfshards.schemas.coordinates import Coordinates, coordinates_of, undeclared_boxes
from tfshards.schemas.reasons import Reason

# The format of the boxes of annotations.
_FORMATS = {"coco": "xywh", "yolo": "cxcywh-normalized"}
# The columns of the size of an image.
_SIDES = ("width", "height")
# Width and height of an image, as its row states them.
Stated: TypeAlias = "tuple[int | None, ...]"


@dataclass(frozen=True)
class Placement:
    """The boxes and keypoints of a table, and what is known about them.

    Attributes:
        coordinates: the coordinates of features, by name.
        undeclared: features that may be boxes, which no one declared, and the format that is likely.
        fixed: feature of texts with coordinates, which cannot move; empty if there is none.
        image: feature of the image to which all of them refer; None in a table without images.
        outside: what to do about those outside of the image.
        reference: whether they refer to the pixels in the file or to the upright image, if it is declared.
    """

    coordinates: Mapping[str, Coordinates]
    undeclared: Mapping[str, str]
    fixed: str
    image: str | None
    outside: Outside
    reference: Reference | None

    def check_resize(self, resize: str | None) -> None:
        """Raise InputError if images are resized, and features that cannot be scaled with them."""
        if resize is not None and self.undeclared:
            name, order = next(iter(self.undeclared.items()))
            raise InputError("boxes-undeclared", name=name, order=order, resize=resize)
        if resize is not None and self.fixed:
            raise InputError("segmentations-resized", name=self.fixed, resize=resize)

    def check(self, values: Mapping[str, Values]) -> None:
        """Raise ImageError if a number is wrong by itself."""
        for name, coordinates in self.coordinates.items():
            check_numbers(name, cast("list[float]", values[name]), coordinates)

    def place(
        self,
        values: dict[str, Values],
        normalized: Normalized,
        options: ImageOptions,
        stated: Stated,
    ) -> list[str]:
        """Replace the values of the features by those that fit the stored image, and return what was done.

        The row states ``stated`` as the width and height of the image, if any.

        Raises:
            ImageError: a number is wrong, or it is not known where it is in the stored image.
        """
        file = normalized.view
        if self.undeclared and file.orientation != 1:
            name = next(iter(self.undeclared))
            raise ImageError(
                Reason.BOXES,
                f"--boxes {name}={self.undeclared[name]} (or another format) or {name}=none must declare "
                f"whether these are boxes, since EXIF orientation {file.orientation} turns the image",
            )
        if self.fixed and values[self.fixed] and file.orientation != 1:
            raise ImageError(
                Reason.BOXES,
                f"{self.fixed} is text, which cannot be turned with the image (EXIF orientation "
                f"{file.orientation}); --segmentations polygons turns them",
            )
        if not self.coordinates:
            return []
        given = {name: cast("list[float]", values[name]) for name in self.coordinates}
        in_file = _is_in_file(file, stated, self.reference, are_any=any(given.values()))
        frame = Frame(file, in_file, options.size.size(*file.upright) if options.size else file.upright)
        notes: list[str] = []
        for name, numbers in given.items():
            values[name], done = placed(name, numbers, self.coordinates[name], frame, self.outside)
            notes += done
        return list(dict.fromkeys(notes))


def with_formats(found: TableFile, roles: ColumnRoles, form: str) -> tuple[TableFile, ColumnRoles]:
    """Return a table with each box and keypoint in one column, its formats, and the roles of these columns.

    The columns ``width`` and ``height`` are the size of the image to which they refer.
    """
    of_form = {BOXES: _FORMATS[form]} if form in _FORMATS else {}
    table, boxes = with_joined(found.table, {**of_form, **roles.boxes}, "boxes")
    own = {name: text for name, text in found.formats.items() if name not in roles.drop}
    table, keypoints = with_joined(table, {**own, **roles.keypoints}, "keypoints")
    sides = [found.table[name] for name in _SIDES if name in found.table.column_names]
    are_any = bool({*boxes.values(), *keypoints.values()} - {NONE})
    are_sides = len(sides) == 2 and all(pa.types.is_integer(side.type) for side in sides)
    if are_any and are_sides and not found.sides and roles.boxes_in is None:
        found = replace(found, sides=tuple(tuple(side.to_pylist()) for side in sides))
    found = replace(found, table=table, formats={**boxes, **keypoints})
    return found, replace(roles, boxes=boxes, keypoints=keypoints)


def placement_of(
    stored: Sequence[StoredColumn],
    assigned: AssignedColumns,
    roles: ColumnRoles,
    form: str,
    formats: Mapping[str, str],
) -> tuple[Placement, list[str]]:
    """Return the placement of boxes and keypoints, whose ``formats`` are by column, and warnings."""
    coordinates = coordinates_of([each.feature for each in stored])
    images = [name for name in assigned.images.values() if name not in assigned.masks]
    found = [each.feature for each in stored if each.feature.name not in formats]
    undeclared = undeclared_boxes(found) if images and form == "table" else {}
    # Ultralytics reads images with OpenCV, which turns them upright
    reference = roles.boxes_in or ("upright" if form == "yolo" else None)
    warnings = [
        f"column {name!r} may have boxes: boxes={{{name!r}: {order!r}}} (or another format) moves them with "
        f"their image, boxes={{{name!r}: 'none'}} states that they are none"
        for name, order in undeclared.items()
    ]
    if coordinates and len(images) > 1:
        warnings.append(f"boxes and keypoints belong to the image {images[0]!r}")
    first = images[0] if images else None
    fixed = next((each.feature.name for each in stored if form == "coco" and each.feature.name == TEXTS), "")
    return Placement(coordinates, undeclared, fixed, first, roles.outside_boxes, reference), warnings


def _is_in_file(file: Geometry, stated: Stated, reference: Reference | None, *, are_any: bool) -> bool:
    """Return whether coordinates refer to the pixels in the file, rather than to the upright image.

    ``are_any`` is true if the image has any coordinates.
    """
    if reference is not None:
        return reference == "file"
    size = None if not stated or None in stated else stated
    turns = file.orientation != 1 and are_any
    if size not in (None, file.raw, file.upright):
        raise ImageError(Reason.BOXES, f"the annotations state {size} pixels, the image has {file.raw}")
    if turns and (size is None or file.raw == file.upright):
        raise ImageError(
            Reason.BOXES,
            "--boxes-in file or upright must declare whether boxes refer to the upright image, since EXIF "
            f"orientation {file.orientation} turns it",
        )
    return not turns or size != file.upright
