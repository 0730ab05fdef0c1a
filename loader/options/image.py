"""How images are decoded, as values that check themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from tfshards.loader.options.validation import check_choice, check_seed, invalid, is_integer

Crop: TypeAlias = Literal["center", "random", "shift"]
Flip: TypeAlias = Literal["horizontal", "vertical", "horizontal_and_vertical"]
Method: TypeAlias = Literal["bilinear", "nearest"]
PerChannel: TypeAlias = "float | tuple[float, ...]"
Normalize: TypeAlias = "Literal['unit', 'symmetric', 'imagenet'] | tuple[PerChannel, PerChannel]"

FLOAT_DTYPES = ("float32", "float16", "bfloat16")
# int32 and int64 are for masks
IMAGE_DTYPES = ("uint8", "uint16", "int32", "int64", *FLOAT_DTYPES)
# Mean and standard deviation of values from 0 to 1.
NORMALIZATIONS: Mapping[str, tuple[PerChannel, PerChannel]] = {
    "unit": (0.0, 1.0),
    "symmetric": (0.5, 0.5),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


@dataclass(frozen=True)
class Image:
    """How images, or masks, are decoded, also those in lists, whose images are all cropped and flipped alike.

    A mask is a feature of kind ``mask``, whose pixel values are numbers of classes or objects. It is resized
    with "nearest", its values are delivered as they are stored, in one channel, and it always has the size,
    the crop and the flip of the image of its example; of its own it may have a dtype.

    Attributes:
        size: ``(height, width)`` of the result; None keeps the stored size, which the schema must state,
            because a batch has one shape; with ``map_fn=``, which may resize, it may be unknown.
        crop: None resizes the whole image without keeping its aspect ratio; "center" first crops the largest
            centered box of the result's aspect ratio; "random" crops a random box whose area and aspect ratio
            are within ``scale`` and ``ratio`` (Szegedy et al., arXiv:1409.4842); "shift" crops a random box
            of the result's size, which is not resized, or the centered box of an image that is smaller. The
            box is a pure function of the seed, the epoch, the example and the stored size.
        channels: 1 (gray), 3 (RGB) or 4 (RGBA, not for JPEG); None for the channels in the schema,
            or 3 if they differ between images.
        dtype: None for the dtype of the feature, "uint8" or "uint16", to which resized values are rounded; or
            "float32", "float16" or "bfloat16", with values from 0 to 255, or to 65,535 if the feature is
            uint16, unless ``normalize`` changes them. For masks "uint8", "uint16", "int32" or "int64".
        seed: seed of the random boxes and flips; images of one example are cropped and flipped alike if
            their seeds, sizes, crops (with ``scale`` and ``ratio``) and flips are equal.
        method: method of ``tf.image.resize``: "bilinear" (default), or "nearest", which mixes no values and
            is the only one for masks.
        flip: flips a random half of the images: left and right with "horizontal", top and bottom with
            "vertical", each independently with "horizontal_and_vertical"; a pure function of the seed, the
            epoch and the example.
        normalize: how values are scaled, computed in float32: ``(mean, std)``, each a number
            or one per channel, gives ``(value / 255 - mean) / std``, with 65535 for a uint16 feature. "unit"
            is ``(0, 1)``, values from 0 to 1; "symmetric" is ``(0.5, 0.5)``, values from -1 to 1; "imagenet"
            is, for three channels, ``((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))``.
        scale: smallest and largest area of a random box, relative to the image.
        ratio: smallest and largest aspect ratio, width by height, of a random box.
        crop_fraction: sides of a centered box, relative to the largest one, such as 0.875.
    """

    size: tuple[int, int] | None = None
    crop: Crop | None = None
    channels: int | None = None
    dtype: str | None = None
    seed: int = 0
    method: Method | None = None
    flip: Flip | None = None
    normalize: Normalize | None = None
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    crop_fraction: float = 1.0

    def __post_init__(self) -> None:
        # size=224 is a common mistake
        sides = self.size if isinstance(self.size, (tuple, list)) else (self.size,)
        is_size = len(sides) == 2 and all(is_integer(side) and side >= 1 for side in sides)
        if self.size is not None and not is_size:
            raise invalid("Image.size", self.size, "(height, width), each at least 1")
        check_choice("Image.crop", self.crop, (None, *get_args(Crop)))
        if self.crop and self.size is None:
            raise invalid("Image.size", None, f"given with crop={self.crop!r}, as in Image(size=(224, 224))")
        for name, crop in (("scale", "random"), ("ratio", "random"), ("crop_fraction", "center")):
            given = getattr(self, name)
            if self.crop != crop and given != getattr(Image, name):
                allowed = f"left out with crop={self.crop!r}, since it is an option of crop={crop!r}"
                raise invalid(f"Image.{name}", given, allowed)
        if not _is_range(self.scale) or self.scale[1] > 1:
            raise invalid(
                "Image.scale", self.scale, "the smallest and the largest area, above 0 and at most 1"
            )
        if not _is_range(self.ratio):
            raise invalid(
                "Image.ratio", self.ratio, "the smallest and the largest aspect ratio, both above 0"
            )
        if not _is_range((self.crop_fraction, 1)):
            raise invalid("Image.crop_fraction", self.crop_fraction, "above 0 and at most 1")
        for name in ("size", "scale", "ratio"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.channels is not None and not (is_integer(self.channels) and self.channels in (1, 3, 4)):
            raise invalid("Image.channels", self.channels, "1, 3 or 4, or None for the dataset's")
        check_choice("Image.dtype", self.dtype, (None, *IMAGE_DTYPES))
        check_seed("Image.seed", self.seed)
        check_choice("Image.method", self.method, (None, *get_args(Method)))
        check_choice("Image.flip", self.flip, (None, *get_args(Flip)))
        if self.normalize is not None:
            self._check_normalize()

    @property
    def is_random(self) -> bool:
        """Whether crop or flip is random."""
        return self.crop in ("random", "shift") or self.flip is not None

    def mean_and_std(self) -> tuple[PerChannel, PerChannel]:
        """Return the mean and standard deviation that ``normalize`` selects, for values from 0 to 1."""
        assert self.normalize is not None
        return NORMALIZATIONS[self.normalize] if isinstance(self.normalize, str) else self.normalize

    def _check_normalize(self) -> None:
        name, given = "Image.normalize", self.normalize
        channels = (self.channels,) if self.channels else (1, 3, 4)
        try:
            mean, std = (np.array(part, np.float64) for part in self.mean_and_std())
        except (KeyError, TypeError, ValueError):
            mean = std = np.array(math.nan)
        shapes = [(), *((count,) for count in channels)]
        is_right = mean.shape in shapes and std.shape in shapes
        if not is_right or not np.all(abs(mean) < math.inf) or not np.all((std > 0) & (std < math.inf)):
            allowed = (
                f"(mean, std), finite numbers or one per channel ({', '.join(map(str, channels))}), std "
                f"above 0; or one of {', '.join(NORMALIZATIONS)}"
            )
            raise invalid(name, given, allowed)
        if self.dtype not in FLOAT_DTYPES:
            raise invalid(
                name, given, f"left out with dtype={self.dtype!r}; use dtype='float32' for fractions"
            )
        if np.max(abs(mean)) > 1:
            raise invalid(name, given, "for values from 0 to 1: a mean of 127.5 is 0.5, and so is its std")
        if not isinstance(given, str):
            # equal to the same numbers in a list, or of NumPy
            plain = tuple(tuple(part.tolist()) if part.ndim else float(part) for part in (mean, std))
            object.__setattr__(self, "normalize", plain)


def _is_range(pair: tuple[float, float]) -> bool:
    """Return whether these are two finite numbers above 0, the smaller one first."""
    return len(pair) == 2 and bool(0 < pair[0] <= pair[1] < math.inf)
