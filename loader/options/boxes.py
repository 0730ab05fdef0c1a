"""Options for the boxes of an image, as a value that validates itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Literal, TypeAlias, get_args

from tfshards.loader.options.validation import check_choice
from tfshards.schemas import OptionsError

BoxFormat: TypeAlias = Literal["xywh", "xyxy", "cxcywh", "yxyx"]


@dataclass(frozen=True)
class Boxes:
    """The feature that holds the boxes of an image, which move as it is cropped, resized and flipped.

    Boxes are delivered in their stored format, in pixels of the delivered image, as float32. A crop clips
    them; those of which less remains than ``min_visible`` are removed, as are boxes outside of the crop and
    boxes without an area. Without a crop no box is removed or clipped, also if it reaches out of the image. A
    box with NaN, an infinite number or a negative width or height is an error when it is read.

    Attributes:
        feature: name of the feature, numbers of shape ``(None, 4)``.
        format: meaning of the four numbers: "xywh" are the left and top edge, width and height (COCO, Hugging
            Face); "xyxy" the left, top, right and bottom edge (Pascal VOC); "cxcywh" the center, width and
            height (YOLO, with ``normalized``); "yxyx" the top, left, bottom and right edge (TensorFlow).
            Edges lie between pixels: an image has its left edge at 0, and its right edge at its width.
        along: names of features with one value for each box, such as classes, from which the values of
            removed boxes are removed, too. With a crop, each list that has the prefix of the boxes, such as
            ``objects/``, must be named here, or be left out with ``select``.
        min_visible: least share of the area of a box, from 0 to 1, that a crop must contain; boxes outside
            of the crop are always removed.
        normalized: whether the numbers are fractions of the width and the height, of the stored image and of
            the delivered one, rather than pixels.
        image: name of the image; by default the only decoded feature of kind ``image``.
    """

    feature: str
    format: BoxFormat
    along: Sequence[str] = ()
    min_visible: float = 0.1
    normalized: bool = False
    image: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.feature, str) or not self.feature:
            raise OptionsError("boxes-feature-type", feature=self.feature)
        check_choice("Boxes.format", self.format, get_args(BoxFormat))
        if isinstance(self.along, str) or not isinstance(self.along, Sequence):
            raise OptionsError("boxes-along-type", along=self.along)
        object.__setattr__(self, "along", tuple(self.along))
        for name in self.along:
            if not isinstance(name, str):
                raise OptionsError("boxes-along-name", along=self.along, name=name)
        if self.feature in self.along or len(set(self.along)) < len(self.along):
            raise OptionsError("boxes-along-repeated", along=self.along)
        share = self.min_visible
        if isinstance(share, bool) or not isinstance(share, Real) or not 0 <= share <= 1:
            raise OptionsError("boxes-min-visible", share=share)
        if not isinstance(self.normalized, bool):
            raise OptionsError("boxes-normalized", normalized=self.normalized)
        if self.image is not None and not isinstance(self.image, str):
            raise OptionsError("boxes-image-type", image=self.image)
