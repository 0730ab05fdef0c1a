"""How images are decoded, as values that check themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Literal, TypeAlias, get_args

import numpy as np

from tfshards.loader.options.validation import check_choice, check_seed, check_type, is_integer
from tfshards.schemas import OptionsError

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
    with "nearest", its values are delivered as they are stored, in one channel, and it follows the image of
    its example: given one ``Image`` for all, masks get its size, its crop and its flip. In a dict of them, a
    mask without a crop and a flip gets those of the images, and their size unless it has its own, which must
    have the same aspect ratio, and with crop="shift" be equal.

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
        if self.size is not None and not _is_size(self.size):
            raise OptionsError("image-size", size=self.size)
        check_choice("Image.crop", self.crop, (None, *get_args(Crop)))
        if self.crop and self.size is None:
            raise OptionsError("image-crop-no-size", crop=self.crop)
        for name, crop in (("scale", "random"), ("ratio", "random"), ("crop_fraction", "center")):
            given = getattr(self, name)
            if self.crop != crop and given != getattr(Image, name):
                raise OptionsError("image-crop-option", name=name, given=given, wanted=crop, crop=self.crop)
        if not _is_range(self.scale) or self.scale[1] > 1:
            raise OptionsError("image-scale", scale=self.scale)
        if not _is_range(self.ratio):
            raise OptionsError("image-ratio", ratio=self.ratio)
        if not _is_range((self.crop_fraction, 1)):
            raise OptionsError("image-crop-fraction", crop_fraction=self.crop_fraction)
        for name in ("size", "scale", "ratio"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.channels is not None and not (is_integer(self.channels) and self.channels in (1, 3, 4)):
            raise OptionsError("image-channels", channels=self.channels)
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
        given = f"Image.normalize={self.normalize!r}"
        if isinstance(self.normalize, (tuple, list)) and len(self.normalize) == 2:
            mean, std = (_per_channel(given, part) for part in self.normalize)
            object.__setattr__(self, "normalize", (mean, std))
        elif not isinstance(self.normalize, str) or self.normalize not in NORMALIZATIONS:
            raise OptionsError("normalize-form", given=given, normalizations=NORMALIZATIONS)
        if self.dtype not in FLOAT_DTYPES:
            integers = "the stored integers" if self.dtype is None else f"dtype={self.dtype!r}"
            raise OptionsError("normalize-integers", given=given, integers=integers)
        allowed = (self.channels,) if self.channels else (1, 3, 4)
        parts = self.mean_and_std()
        for name, part in zip(("mean", "std"), parts, strict=True):
            if isinstance(part, tuple) and len(part) not in allowed:
                raise OptionsError(
                    "normalize-channels", given=given, name=name, num_part=len(part), allowed=allowed
                )
        if not np.all(np.asarray(parts[1]) > 0):
            raise OptionsError("normalize-std", given=given)


def check_images(image: object) -> None:
    """Raise unless ``image`` is None, an ``Image``, or a nonempty mapping to ``Image`` values."""
    if not isinstance(image, Mapping):
        check_type("image", image, Image)
        return
    if not image:
        raise OptionsError("image-empty")
    for name, value in image.items():
        if not isinstance(value, Image):
            raise OptionsError("image-value", name=name, found=value)


def _is_size(size: object) -> bool:
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        return False
    return all(is_integer(side) and side >= 1 for side in size)


def _is_range(pair: object) -> bool:
    """Return whether these are two finite numbers above 0, the smaller one first."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        return False
    if not all(isinstance(each, Real) and not isinstance(each, bool) for each in pair):
        return False
    return bool(0 < pair[0] <= pair[1] < math.inf)


def _per_channel(given: str, part: object) -> PerChannel:
    """Return a mean or a std as floats."""
    if isinstance(part, (tuple, list)) or (isinstance(part, np.ndarray) and part.ndim):
        return tuple(_finite(given, each) for each in part)
    return _finite(given, part)


def _finite(given: str, number: object) -> float:
    if isinstance(number, bool) or not isinstance(number, Real) or not math.isfinite(number):
        raise OptionsError("normalize-not-finite", given=given, number=number)
    return float(number)
