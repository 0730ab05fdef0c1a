"""The boxes and keypoints that move with an image, as values that check themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from tfshards.loader.options.validation import check_choice, invalid
from tfshards.schemas.errors import check_strings

BoxFormat: TypeAlias = Literal["xywh", "xyxy", "cxcywh", "yxyx"]
PointFormat: TypeAlias = Literal["xy", "xyv"]


@dataclass(frozen=True)
class Boxes:
    """The feature that holds the boxes of an image, which move as it is cropped, resized and flipped.

    Boxes are delivered in their stored format, in pixels of the delivered image, as float32. A crop clips
    them; boxes of which less remains than ``min_visible`` are removed, as are boxes outside of the crop and
    boxes without an area. Without a crop no box is removed or clipped, also if it reaches out of the image. A
    box with NaN, an infinite number or a negative width or height is an error when it is read.

    Attributes:
        feature: name of the feature, numbers of shape ``(None, 4)``, or ``(4,)`` for one box, which is never
            removed: a crop that does not contain it leaves it without an area.
        format: meaning of the four numbers, by default as the dataset declares it: "xywh" are the left and
            top edge, width and height (COCO, Hugging Face); "xyxy" the left, top, right and bottom edge
            (Pascal VOC); "cxcywh" the center, width and height (YOLO, with ``normalized``); "yxyx" the top,
            left, bottom and right edge (TensorFlow).
            Edges lie between pixels: an image has its left edge at 0, and its right edge at its width.
        along: names of features with one value for each box, such as classes, from which the values of
            removed boxes are removed, too. With a crop, each list that has the prefix of the boxes, such as
            ``objects/``, must be named here, or be left out with ``select``.
        min_visible: least share of the area of a box, from 0 to 1, that a crop must contain; boxes outside
            of the crop are always removed.
        normalized: whether the numbers are fractions of the width and the height, of the stored image and of
            the delivered one, rather than pixels; by default as the dataset declares it, or False.
        image: name of the image; by default the only decoded feature of kind ``image``.
    """

    feature: str
    format: BoxFormat | None = None
    along: Sequence[str] = ()
    min_visible: float = 0.1
    normalized: bool | None = None
    image: str | None = None

    def __post_init__(self) -> None:
        check_choice("Boxes.format", self.format, (None, *get_args(BoxFormat)))
        check_strings("Boxes.along", self.along)
        object.__setattr__(self, "along", tuple(self.along))
        if len({self.feature, *self.along}) <= len(self.along):
            raise invalid("Boxes.along", self.along, "each feature once, without the boxes")
        if not 0 <= self.min_visible <= 1:
            raise invalid("Boxes.min_visible", self.min_visible, "a share from 0 to 1")


@dataclass(frozen=True)
class Keypoints:
    """The feature that holds the keypoints of an image, which move as it is cropped, resized and flipped.

    Keypoints are delivered in their stored format, in pixels of the delivered image, as float32. A crop sets
    points outside of it to ``(0, 0, 0)`` in the format "xyv"; in the format "xy" their coordinates are then
    outside of the image. Points of visibility 0 have no label, and stay as they are. A point with NaN or an
    infinite number is an error when it is read.

    Attributes:
        feature: name of the feature: numbers of shape ``(k, 2)`` or ``(k, 3)``, ``(None, 2)`` or
            ``(None, 3)``, or rows of k points for each object, such as ``(None, 51)`` for 17 points.
        flip_pairs: numbers of the points that are left and right of each other, from 0. They change places
            where the image is mirrored, that is flipped along one axis, but not along both. Required with
            ``Image.flip``; ``()`` if there are none.
        format: "xy", or "xyv" with the visibility; by default as the dataset declares it.
        normalized: whether coordinates are fractions of the width and the height rather than pixels; by
            default as the dataset declares it, or False.
        image: name of the image; by default the only decoded feature of kind ``image``.
    """

    feature: str
    flip_pairs: Sequence[tuple[int, int]] | None = None
    format: PointFormat | None = None
    normalized: bool | None = None
    image: str | None = None

    def __post_init__(self) -> None:
        if self.flip_pairs is not None:
            pairs = tuple(map(tuple, self.flip_pairs))
            numbers = [number for pair in pairs for number in pair]
            is_each_once = len({*numbers}) == len(numbers) == 2 * len(pairs)
            if not is_each_once or any(len(pair) != 2 or min(pair) < 0 for pair in pairs):
                allowed = "pairs of numbers from 0, each number once, such as ((1, 2), (3, 4))"
                raise invalid("Keypoints.flip_pairs", self.flip_pairs, allowed)
            object.__setattr__(self, "flip_pairs", pairs)
        check_choice("Keypoints.format", self.format, (None, *get_args(PointFormat)))
