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
class Boxes:
    """A feature with boxes.

    Attributes:
        feature: its name.
        categories: name of the feature with a class number for each box, if there is one.
        format: order of the numbers, as for ``loader.Boxes``; None if nothing states it.
        is_normalized: whether they are fractions of the width and the height rather than pixels; None if the
            values of each image decide, since fractions do not exceed 1 by much.
    """

    feature: str
    categories: str | None
    format: BoxFormat | None
    is_normalized: bool | None = None

    def edges(self, values: Decoded, size: tuple[int, int]) -> tuple[list[Edges], bool]:
        """Return the edges of finite boxes as fractions of an image, and whether they are stored so.

        Args:
            values: four numbers for each box.
            size: width and height of the stored image in pixels.
        """
        boxes = np.asarray(values, np.float64).reshape(-1, 4)
        boxes = boxes[np.isfinite(boxes).all(axis=1)]
        is_share = self.is_normalized
        if is_share is None:
            is_share = bool(np.abs(boxes).max(initial=0) <= _LARGEST_SHARE)
        corners = boxes @ np.array(_CORNERS[self.format or "xyxy"]).T
        if not is_share:
            corners /= [*size, *size]
        return [cast("Edges", tuple(row)) for row in corners.tolist()], is_share


def boxes_of(manifest: Manifest, given: BoxFormat | None) -> Boxes | None:
    """Return the first feature that can be boxes: numbers of shape ``(None, 4)`` or ``(4,)``, named so.

    Args:
        manifest: the manifest of the dataset.
        given: the format that the user has stated.
    """
    for feature in manifest.schema.features:
        is_numbers = feature.kind in ("float", "int") and feature.shape in ((None, 4), (4,))
        if not is_numbers or "box" not in feature.name.lower():
            continue
        # labels with the prefix of the boxes, such as ``objects/``
        prefix = feature.name.rpartition("/")[0]
        lists = [one.name for one in manifest.schema.features if one.kind == "label" and one.is_ragged]
        categories = next((name for name in lists if name.rpartition("/")[0] == prefix), None)
        known = (given, None) if given else _OF_SOURCES.get(str(manifest.options.get("form")), (None, None))
        return Boxes(feature.name, categories, *known)
    return None
