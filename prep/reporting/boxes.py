"""What the four numbers of a box mean: as the user states it, or as the source of the dataset defines it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

import numpy as np

from tfshards.prep.imaging.stored import Edges
from tfshards.prep.records.example import Decoded
from tfshards.schemas import Manifest

# The names are those of ``loader.Boxes``.
BoxFormat: TypeAlias = Literal["xywh", "xyxy", "cxcywh", "yxyx"]
BOX_FORMATS: tuple[str, ...] = get_args(BoxFormat)

_OF_SOURCES: Mapping[str, tuple[BoxFormat, bool]] = {"coco": ("xywh", False), "yolo": ("cxcywh", True)}
# Boxes in fractions may reach a little out of their image.
_LARGEST_SHARE = 1.5
# Left, top, right and bottom edge from the four numbers.
_CORNERS = {
    "xyxy": [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]],
    "yxyx": [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]],
    "xywh": [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]],
    "cxcywh": [[1, 0, -0.5, 0], [0, 1, 0, -0.5], [1, 0, 0.5, 0], [0, 1, 0, 0.5]],
}


@dataclass(frozen=True)
class DrawnBoxes:
    """A feature with boxes, and one with their class numbers, if there is one."""

    feature: str
    categories: str | None
    # None if nothing states it
    format: BoxFormat | None
    # Whether boxes are fractions of the width and the height rather than pixels; None if the values of each
    # image decide, since fractions do not exceed 1 by much.
    is_normalized: bool | None = None

    def edges(self, values: Decoded, size: tuple[int, int]) -> tuple[list[Edges], bool]:
        """Return the edges of finite boxes as fractions of an image, and whether they are stored so."""
        boxes = np.asarray(values, np.float64).reshape(-1, 4)
        boxes = boxes[np.isfinite(boxes).all(axis=1)]
        is_share = self.is_normalized
        if is_share is None:
            is_share = bool(np.abs(boxes).max(initial=0) <= _LARGEST_SHARE)
        corners = boxes @ np.array(_CORNERS[self.format or "xyxy"]).T
        if not is_share:
            corners /= [*size, *size]
        return [cast("Edges", tuple(row)) for row in corners.tolist()], is_share


def boxes_of(manifest: Manifest, given: BoxFormat | None) -> DrawnBoxes | None:
    """Return the first feature that can be boxes, and is named so; the user may have given the format."""
    for feature in manifest.schema.features:
        is_numbers = feature.kind in ("float", "int") and feature.shape in ((None, 4), (4,))
        if not is_numbers or "box" not in feature.name.lower():
            continue
        # labels with the prefix of the boxes, such as ``objects/``
        prefix = feature.name.rpartition("/")[0]
        lists = [one.name for one in manifest.schema.features if one.kind == "label" and one.is_ragged]
        categories = next((name for name in lists if name.rpartition("/")[0] == prefix), None)
        known = (given, None) if given else _OF_SOURCES.get(str(manifest.options.get("form")), (None, None))
        return DrawnBoxes(feature.name, categories, *known)
    return None
