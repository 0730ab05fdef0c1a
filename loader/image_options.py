"""How images are decoded, as a value that checks itself; nothing here reads a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from tfshards.loader.options import check_seed, check_type
from tfshards.schemas import OptionsError

Crop: TypeAlias = Literal["center", "random"]
Method: TypeAlias = Literal["bilinear", "nearest", "area"]

IMAGE_DTYPES = ("uint8", "float32")


@dataclass(frozen=True)
class Image:
    """How images are decoded.

    Attributes:
        size: ``(height, width)`` of the result; None keeps the stored size, which must then be one and the
            same for all images, because a batch has one shape.
        crop: None resizes the whole image, whatever its aspect ratio; "center" first cuts the largest
            centred box of the result's aspect ratio; "random" cuts a random box of 8 to 100 % of the area
            with an aspect ratio of 3/4 to 4/3, as Inception was trained (Szegedy et al.,
            arXiv:1409.4842). The box is a pure function of the seed, the epoch, the example and the stored
            size: images of one size in one example, such as a photo and its mask, are cut alike.
        channels: 1 (grey), 3 (RGB) or 4 (RGBA, not for JPEG); None for those that the dataset was built with,
            or 3 if it keeps each image's own.
        dtype: "uint8", rounded, or "float32" with values from 0 to 255.
        seed: of the random boxes.
        method: of ``tf.image.resize``: "bilinear"; "nearest", which mixes no values, as masks of class
            numbers need it; or "area", the mean of what a pixel covers.
    """

    size: tuple[int, int] | None = None
    crop: Crop | None = None
    channels: int | None = None
    dtype: str = "uint8"
    seed: int = 0
    method: Method = "bilinear"

    def __post_init__(self) -> None:
        if self.size is not None and not _is_size(self.size):
            raise OptionsError(f"Image.size={self.size!r} must be (height, width), each at least 1")
        if self.crop not in (None, *get_args(Crop)):
            raise OptionsError(f"Image.crop={self.crop!r} must be None, 'center' or 'random'")
        if self.crop and self.size is None:
            raise OptionsError(f"Image.crop={self.crop!r} needs a size, as in Image(size=(224, 224))")
        if self.channels not in (None, 1, 3, 4):
            raise OptionsError(
                f"Image.channels={self.channels!r} must be 1, 3 or 4, or None for the dataset's"
            )
        if self.dtype not in IMAGE_DTYPES:
            raise OptionsError(f"Image.dtype={self.dtype!r} must be one of {', '.join(IMAGE_DTYPES)}")
        check_seed("Image.seed", self.seed)
        if self.method not in get_args(Method):
            raise OptionsError(f"Image.method={self.method!r} must be one of {', '.join(get_args(Method))}")


def check_images(image: object) -> None:
    """Raise unless ``image`` is None, an ``Image``, or a mapping that is not empty to such.

    Raises:
        OptionsError: it is something else.
    """
    if not isinstance(image, Mapping):
        check_type("image", image, Image)
        return
    if not image:
        raise OptionsError("image={} names no feature; leave it out for encoded bytes")
    for name, value in image.items():
        if not isinstance(value, Image):
            raise OptionsError(f"image[{name!r}]={value!r} must be loader.Image(...)")


def _is_size(size: object) -> bool:
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        return False
    return all(isinstance(side, (int, np.integer)) and side >= 1 for side in size)
