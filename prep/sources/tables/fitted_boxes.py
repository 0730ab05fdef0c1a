"""Boxes in pixels that fit their image as it is stored: turned with it, or rejected."""

from __future__ import annotations

from collections.abc import Sequence

from tfshards.prep.imaging.oriented_size import OrientedSize
from tfshards.prep.sources.base import Rejected

_REASON = "boxes do not fit"


def fitted_boxes(
    boxes: Sequence[float], stated: tuple[int, int] | None, size: OrientedSize, *, is_turned: bool
) -> Sequence[float] | Rejected:
    """Return boxes for an image as it is stored, or why it is not known where they are in it.

    Args:
        boxes: left, top, width and height of each box, one after another.
        stated: width and height of the image to which the boxes refer, according to the annotations.
        size: size and orientation of the image file.
        is_turned: whether the image is stored upright, rather than as it is in the file.
    """
    if stated not in (None, size.stored, size.upright):
        assert stated is not None
        return Rejected(
            _REASON, f"the annotations state {_shown(stated)} pixels, the image has {_shown(size.stored)}"
        )
    if not is_turned:
        if stated in (None, size.stored):
            return boxes
        return Rejected(
            _REASON,
            f"the annotations state {_shown(size.upright)} pixels, as of the upright image, but with "
            f"--orientation keep {_shown(size.stored)} are stored",
        )
    if size.orientation == 1 or not len(boxes):
        return boxes
    if stated is None or size.stored == size.upright:
        return Rejected(
            _REASON,
            f"the image is turned by its EXIF orientation {size.orientation}, and the annotations do not "
            "show whether their boxes refer to the upright image; --orientation keep stores both as they are",
        )
    return boxes if stated == size.upright else _turned(boxes, size)


def _turned(boxes: Sequence[float], size: OrientedSize) -> list[float]:
    """Return boxes of the pixels in the file as boxes of the upright image, whose sides are exchanged."""
    turned: list[float] = []
    for start in range(0, len(boxes), 4):
        left, top, width, height = boxes[start : start + 4]
        right, bottom = size.width - left - width, size.height - top - height
        # transposed; turned clockwise; transposed along the other diagonal; turned counterclockwise
        corner = {5: (top, left), 6: (bottom, left), 7: (bottom, right), 8: (top, right)}
        turned += [*corner[size.orientation], height, width]
    return turned


def _shown(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"
