"""What the numbers of a box or a keypoint mean: their order, and whether they are pixels or fractions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tfshards.schemas.schema import BOX_ORDERS, NORMALIZED, Feature


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


def coordinates_of(features: Iterable[Feature]) -> dict[str, Coordinates]:
    """Return the coordinates of the features that have any, by name."""
    return {each.name: Coordinates.parse(each.coordinates) for each in features if each.coordinates}
