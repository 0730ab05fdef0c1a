"""What the numbers of a box or a keypoint mean: their order, and whether they are pixels or fractions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tfshards.schemas.declared import BOX_ORDERS, COORDINATES, NORMALIZED
from tfshards.schemas.schema import Feature


class Coordinates(NamedTuple):
    """The order of the numbers of a box or a keypoint, and whether they are fractions of the image."""

    order: str
    is_normalized: bool = False

    @classmethod
    def parse(cls, text: str) -> Coordinates:
        """Return the coordinates in a text that ``COORDINATES`` has, such as ``cxcywh-normalized``."""
        return cls(text.removesuffix(NORMALIZED), text.endswith(NORMALIZED))

    def __str__(self) -> str:
        """Return the text of a schema, and of the command line."""
        return self.order + (NORMALIZED if self.is_normalized else "")

    @property
    def are_boxes(self) -> bool:
        """Whether the numbers are of boxes rather than of keypoints."""
        return self.order in BOX_ORDERS


BOX_FORMATS = tuple(each for each in COORDINATES if Coordinates.parse(each).are_boxes)
POINT_FORMATS = tuple(each for each in COORDINATES if each not in BOX_FORMATS)
# Usual names of four columns that are a box, which may have a common prefix.
_FOUR: Mapping[tuple[str, ...], str] = {
    ("xmin", "ymin", "xmax", "ymax"): "xyxy",
    ("x1", "y1", "x2", "y2"): "xyxy",
    ("left", "top", "right", "bottom"): "xyxy",
    ("left", "top", "width", "height"): "xywh",
    ("x", "y", "w", "h"): "xywh",
    ("x", "y", "width", "height"): "xywh",
    ("x1", "y1", "width", "height"): "xywh",
}


def coordinates_of(features: Iterable[Feature]) -> dict[str, Coordinates]:
    """Return the coordinates of the features that have any, by name."""
    return {each.name: Coordinates.parse(each.coordinates) for each in features if each.coordinates}


def may_be_boxes(feature: Feature) -> bool:
    """Return whether a feature has four numbers, or rows of four, which may be boxes."""
    has_numbers = feature.kind in ("int", "float", "raw") and feature.dtype.startswith(
        ("int", "uint", "float")
    )
    return has_numbers and feature.shape in ((4,), (None, 4))


def undeclared_boxes(features: Iterable[Feature]) -> dict[str, str]:
    """Return the features that may be boxes, or four names with commas, and the format that is likely.

    Four features of one number each, or of lists, may be a box if they have usual names, such as ``Roi.X1``.
    """
    features = [each for each in features if not each.coordinates]
    numbers = [
        each.name for each in features if each.kind in ("int", "float") and each.shape in ((), (None,))
    ]
    plain = {re.sub(r"[\W_]", "", name.lower()): name for name in numbers}
    found = {each.name: "xywh" for each in features if may_be_boxes(each)}
    for parts, order in _FOUR.items():
        for prefix in [name.removesuffix(parts[0]) for name in plain if name.endswith(parts[0])]:
            if {prefix + part for part in parts} <= {*plain}:
                found[",".join(plain[prefix + part] for part in parts)] = order
    return found
