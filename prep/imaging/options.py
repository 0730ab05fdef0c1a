"""The options of a build that concern images, with their checks."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple, TypeAlias

from tfshards.prep.option import check_choices, recorded_options
from tfshards.schemas import OptionsError
from tfshards.schemas.json_reader import Json
from tfshards.schemas.pixel_files import MOST_SIDE

Check: TypeAlias = Literal["decode", "none"]
Animation: TypeAlias = Literal["reject", "first"]
Format: TypeAlias = Literal["keep", "jpeg", "png", "pixels"]
Channels: TypeAlias = Literal[1, 3, 4]
Depth: TypeAlias = Literal[8, 16]

# Raised when the same image and options give other bytes than before with the same versions of the decoders;
# tests/pixels/golden.json has their digests.
CONVERSION = 4

JPEG_QUALITY = 95
# The quality of images stored for training, and their short side as a multiple of a crop's longest side.
_TRAINING_QUALITY, _MARGIN = 90, 1.15
# The longest side that libjpeg and our header allow; libpng reads sides up to MAX_SIDE.
LONGEST = {"jpeg": 65_500, "pixels": MOST_SIDE}
MAX_SIDE = 1_000_000
# The largest file of an image that is read, and the most frames of one whose first frame is stored.
MAX_BYTES, MAX_FRAMES = 1 << 30, 10_000
DEFAULT_MAX_PIXELS = 89_000_000


class Resize(NamedTuple):
    """A height and a width in pixels for all images, or the longest ``short`` or ``long`` side."""

    side: str | None
    height: int
    width: int

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Return the new ``(width, height)`` of an image, each at least 1; smaller sides are unchanged."""
        if self.side is None:
            return self.width, self.height
        side = min(width, height) if self.side == "short" else max(width, height)
        if side <= self.height:
            return width, height
        return max(1, round(width * self.height / side)), max(1, round(height * self.height / side))


def parse_resize(text: str) -> Resize:
    """Return the size in a text such as ``short=256``, ``long=1024`` or ``224x224`` (height x width).

    Raises:
        OptionsError: the text is not of that form.
    """
    match = re.fullmatch(r"(?:(short|long)=(\d{1,6})|(\d{1,6})x(\d{1,6}))", text)
    sides = [int(side) for side in match.group(2, 3, 4) if side] if match else []
    if not match or 0 in sides:
        raise OptionsError(f"resize={text!r} must be short=PIXELS, long=PIXELS or HEIGHTxWIDTH, as 224x224")
    return Resize(match[1], sides[0], sides[-1])


@dataclass(frozen=True)
class ImageOptions:
    """How images are checked, converted and stored.

    Attributes:
        check: decode every image, or with "none" store files unchecked; no other option then applies, and
            images have no masks, boxes or keypoints.
        channels: store gray (1) or RGB (3) images, in which transparency is blended over white, or RGBA (4).
        depth: reduce images to 8 bits per sample, or store all as gray with 16; values of 8 bits are then
            multiplied by 257.
        mask_depth: bits per sample of masks, such as 16 for depth maps next to photos of 8 bits; by default
            the depth of the images.
        animation: reject files with several frames or pages, or store the first frame.
        resize: new size of images: "short=256" and "long=1024" limit a side and never enlarge; "224x224"
            (height and width) is exact.
        format: format of stored images; "keep" stores the bytes of a file if they can be kept, else PNG, or
            JPEG for a resized JPEG.
        jpeg_quality: write JPEG of this quality, from 1 to 100, where PNG would be written; by default 95
            with the format "jpeg".
        max_pixels: reject images with more pixels.
        for_training: store images for random crops of so many pixels a side: JPEG of quality 90, short side
            1.15 times as long. It stands for "resize", "format" and "jpeg_quality".

    Raises:
        OptionsError: an option is not allowed, or two exclude each other.
    """

    check: Check = "decode"
    channels: Channels = 3
    depth: Depth = 8
    mask_depth: Literal[8, 16] | None = None
    animation: Animation = "reject"
    resize: str | None = None
    format: Format = "keep"
    jpeg_quality: int | None = None
    max_pixels: int = DEFAULT_MAX_PIXELS
    # None as soon as the options are made, since others have its meaning
    for_training: int | None = None
    # set by sources for the images that are class maps: one channel of numbers, never mixed or scaled
    mask: bool = False

    def __post_init__(self) -> None:
        check_choices(self)
        if self.for_training is not None:
            self._resolve_for_training(self.for_training)
        _check_integer("max_pixels", self.max_pixels, sys.maxsize)
        if self.jpeg_quality is not None:
            _check_integer("jpeg_quality", self.jpeg_quality, 100)
        if not isinstance(self.resize, (str, type(None))):
            raise OptionsError(f"resize={self.resize!r} must be text, such as 'short=256' or '224x224'")
        self._check_pairs()
        size = self.size
        if size is not None and size.side is None and size.height * size.width > self.max_pixels:
            raise OptionsError(f"resize={self.resize!r} has more pixels than max_pixels={self.max_pixels}")

    def _resolve_for_training(self, side: int) -> None:
        """Set the options that ``for_training`` stands for."""
        _check_integer("for_training", side, LONGEST["jpeg"])
        if self.resize is not None or self.format == "png":
            name = "resize" if self.resize is not None else "format"
            raise OptionsError(f"for_training= decides {name}=; leave one of them out")
        chosen: dict[str, object] = {"resize": f"short={round(_MARGIN * side)}", "for_training": None}
        if self.format != "pixels":
            quality = _TRAINING_QUALITY if self.jpeg_quality is None else self.jpeg_quality
            chosen |= {"format": "jpeg", "jpeg_quality": quality}
        for name, value in chosen.items():
            object.__setattr__(self, name, value)

    def _check_pairs(self) -> None:
        """Raise OptionsError if two options exclude each other."""
        changed = [f"{each.name}=" for each in fields(self) if getattr(self, each.name) != each.default]
        if self.check == "none" and len(changed) > 1:
            left_out = " and ".join(changed[1:])
            raise OptionsError(f"check='none' stores the bytes unchanged; leave out {left_out}")
        if self.format in ("jpeg", "pixels") and self.channels == 4:
            raise OptionsError(f"format={self.format!r} has no alpha channel; choose png, or channels=3")
        if self.jpeg_quality is not None and (self.format not in ("keep", "jpeg") or self.channels == 4):
            where = "channels=4" if self.channels == 4 else f"format={self.format!r}"
            raise OptionsError(f"jpeg_quality= and {where} exclude each other: nothing is written as JPEG")
        is_exact = self.format in ("keep", "png") and self.jpeg_quality is None
        if self.depth != 8 and not is_exact:
            raise OptionsError(f"depth={self.depth!r} requires format='png', without jpeg_quality=")
        if self.mask and not (is_exact and self.channels == 1):
            raise OptionsError("mask=True requires channels=1 and format='png', without jpeg_quality=")

    @property
    def size(self) -> Resize | None:
        """``resize``, parsed."""
        return None if self.resize is None else parse_resize(self.resize)

    @property
    def quality(self) -> int:
        """The quality of images that are written as JPEG."""
        return self.jpeg_quality or JPEG_QUALITY

    @property
    def dtype(self) -> str:
        """The dtype of the decoded pixels."""
        return "uint8" if self.depth == 8 else "uint16"

    @property
    def shape(self) -> tuple[int | None, int | None, int]:
        """Height, width and channels of the decoded pixels; None for those that differ between images."""
        sides = (self.size.height, self.size.width) if self.size and self.size.side is None else (None, None)
        return *sides, self.channels

    def to_json(self) -> dict[str, Json]:
        """Return the options that change which bytes are written, with the values that apply.

        Defaults are not left out, since another release may have others; ``quality`` is the one that applies.
        """
        if self.check == "none":
            return {"check": "none", "max_bytes": MAX_BYTES}
        values = {name: getattr(self, name) for name in _RECORDED}
        return {**values, "max_bytes": MAX_BYTES, "quality": self.quality}


def _check_integer(name: str, value: int, most: int) -> None:
    # True equals 1
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise OptionsError(f"{name}={value!r} must be an integer from 1 to {most:,}")


# What manifests record: ``for_training`` stands for others, and ``mask`` is a property of a feature.
_RECORDED = tuple(each.name for each in fields(ImageOptions) if each.name not in ("for_training", "mask"))


def recorded_images(recorded: Mapping[str, Json]) -> ImageOptions:
    """Return the image options among the options that a manifest records."""
    return ImageOptions(**recorded_options(_RECORDED, recorded))


def changed_images(recorded: Mapping[str, Json]) -> dict[str, Json]:
    """Return the image options among the options that a manifest records that are not the defaults."""
    defaults = ImageOptions().to_json()
    values = recorded_options(_RECORDED, recorded)
    return {name: value for name, value in values.items() if value != defaults.get(name)}
