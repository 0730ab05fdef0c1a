"""The options of a build that concern images, with their checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

from tfshards.prep.option import check_choices, option, recorded_values
from tfshards.schemas import OptionsError
from tfshards.schemas.json_reader import Json
from tfshards.schemas.pixel_files import MOST_SIDE

Check: TypeAlias = Literal["decode", "none"]
Alpha: TypeAlias = Literal["white", "keep"]
Animation: TypeAlias = Literal["reject", "first"]
Format: TypeAlias = Literal["keep", "jpeg", "png", "pixels"]
Channels: TypeAlias = Literal[1, 3, 4, "keep"]
Depth: TypeAlias = Literal[8, 16, "keep"]

# Raised when the same image and options give other bytes than before with the same versions of the decoders;
# tests/pixels/golden.json has their digests.
CONVERSION = 4
# What manifests record of the code that converted the images.
VERSIONS = ("conversion", "pillow", "pillow_heif")

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


def _depth(text: str) -> object:
    if text == "float32":
        raise OptionsError(
            "depth='float32' is for tensors, not for image files: stack the images in one array, save it as "
            ".npy and build that with 'tfshards build arrays'"
        )
    return int(text) if text.isdecimal() else text


@dataclass(frozen=True)
class ImageOptions:
    """How images are checked, converted and stored.

    ``tfshards build images --help`` describes each option.

    Attributes:
        check: with ``none`` no other option applies, and images have no masks, boxes or keypoints.
        alpha: None is ``keep`` if the channels allow it, else ``white``.
        depth: with 16 and ``keep`` the values are uint16, and only gray images have more than 8 bits; the
            loader multiplies the 8-bit values that ``keep`` stores.
        format: ``keep`` writes images that need a change as PNG, but a resized JPEG as JPEG.
        for_training: stands for ``resize``, ``format`` and ``jpeg_quality``, and is None afterwards.
        usual_quality: quality of JPEG where ``jpeg_quality`` is not given; a dataset keeps that of its build.
        mask: whether images are class maps: one channel of numbers, which are never mixed or scaled.

    Raises:
        OptionsError: an option is not allowed, or two exclude each other.
    """

    check: Check = option("decode", "decode every image, or store files unchecked", choices=get_args(Check))
    channels: Channels = option(
        3, "store gray, RGB or RGBA images, or keep the channels of each image", choices=get_args(Channels)
    )
    depth: Depth = option(
        8,
        "reduce images to 8 bits per sample, store all as gray with 16, or keep the depth of each; 8-bit "
        "values are multiplied by 257 where images have 16 bits",
        metavar="{8,16,keep}",
        choices=get_args(Depth),
        parse=_depth,
    )
    mask_depth: Literal[8, 16] | None = option(
        None,
        "bits per sample of masks, such as 16 for depth maps next to photos of 8 bits",
        metavar="{8,16}",
        choices=(8, 16),
        parse=_depth,
        default_text="the depth of the images",
    )
    alpha: Alpha | None = option(
        None,
        "blend transparent images over white (default with 1 or 3 channels), or store the alpha channel "
        "(default with 4 or keep)",
        choices=get_args(Alpha),
    )
    animation: Animation = option(
        "reject",
        "reject files with several frames or pages, or store the first",
        choices=get_args(Animation),
    )
    resize: str | None = option(
        None,
        "resize images: short=256 and long=1024 limit a side and never enlarge; HEIGHTxWIDTH is exact",
        metavar="SIZE",
    )
    format: Format = option(
        "keep",
        "format of stored images; keep stores the bytes of a file if they can be kept, else PNG",
        choices=get_args(Format),
    )
    jpeg_quality: int | None = option(
        None,
        f"write JPEG of this quality where PNG would be written ({JPEG_QUALITY} with --format jpeg)",
        metavar="1-100",
        parse=int,
    )
    max_pixels: int = option(DEFAULT_MAX_PIXELS, "reject images with more pixels", metavar="N", parse=int)
    for_training: int | None = option(
        None,
        "store images for random crops of SIZE pixels: JPEG of quality 90, short side 1.15 times SIZE",
        metavar="SIZE",
        parse=int,
        recorded="never",
    )
    mask: bool = False
    usual_quality: int = JPEG_QUALITY

    def __post_init__(self) -> None:
        check_choices(self)
        if self.for_training is not None:
            self._resolve_for_training(self.for_training)
        if not _is_integer(self.max_pixels) or self.max_pixels < 1:
            raise OptionsError(f"max_pixels={self.max_pixels!r} must be an integer of at least 1")
        quality = self.jpeg_quality
        if quality is not None and not (_is_integer(quality) and 1 <= quality <= 100):
            raise OptionsError(f"jpeg_quality={quality!r} must be an integer from 1 to 100")
        if not isinstance(self.resize, (str, type(None))):
            raise OptionsError(f"resize={self.resize!r} must be text, such as 'short=256' or '224x224'")
        self._check_pairs()
        if self.size is None or self.size.side is not None:
            return
        longest = LONGEST.get(self.format, MAX_SIDE)
        if max(self.size.height, self.size.width) > longest:
            raise OptionsError(f"resize={self.resize!r} exceeds {longest}, the longest side of {self.format}")
        if self.size.height * self.size.width > self.max_pixels:
            raise OptionsError(f"resize={self.resize!r} has more pixels than max_pixels={self.max_pixels}")

    def _resolve_for_training(self, side: int) -> None:
        """Set the options that ``for_training`` stands for."""
        if not _is_integer(side) or not 1 <= side <= LONGEST["jpeg"]:
            raise OptionsError(
                f"for_training={side!r} must be the side of a crop, at most {LONGEST['jpeg']:,}"
            )
        for name, allowed in (("resize", (None,)), ("format", ("keep", "jpeg", "pixels"))):
            if getattr(self, name) not in allowed:
                raise OptionsError(
                    f"for_training= decides the size and the format, and {name}={getattr(self, name)!r} was "
                    "given; leave one of them out"
                )
        chosen: dict[str, object] = {"resize": f"short={round(_MARGIN * side)}", "for_training": None}
        if self.format != "pixels":
            quality = _TRAINING_QUALITY if self.jpeg_quality is None else self.jpeg_quality
            chosen |= {"format": "jpeg", "jpeg_quality": quality}
        for name, value in chosen.items():
            object.__setattr__(self, name, value)

    def _check_pairs(self) -> None:
        """Raise OptionsError if two options exclude each other."""
        defaults = {name: field.default for name, field in type(self).__dataclass_fields__.items()}
        changed = [f"{name}=" for name, value in defaults.items() if getattr(self, name) != value]
        if self.check == "none" and len(changed) > 1:
            left_out = " and ".join(changed[1:])
            raise OptionsError(f"check='none' stores the bytes unchanged; leave out {left_out}")
        if self.alpha == "keep" and self.channels not in (4, "keep"):
            raise OptionsError("alpha='keep' requires channels=4 or channels='keep'")
        if self.format in ("jpeg", "pixels") and (self.keeps_alpha or self.channels == 4):
            raise OptionsError(f"format={self.format!r} has no alpha channel; choose png, or leave alpha out")
        if self.jpeg_quality is not None and (self.format not in ("keep", "jpeg") or self.channels == 4):
            where = "channels=4" if self.channels == 4 else f"format={self.format!r}"
            raise OptionsError(f"jpeg_quality= and {where} exclude each other: nothing is written as JPEG")
        is_exact = self.format in ("keep", "png") and self.jpeg_quality is None
        if self.depth != 8 and not is_exact:
            raise OptionsError(f"depth={self.depth!r} requires format='png', without jpeg_quality=")
        if self.mask and not (is_exact and self.channels == 1):
            raise OptionsError("mask=True requires channels=1 and format='png', without jpeg_quality=")

    @property
    def keeps_alpha(self) -> bool:
        """Whether an alpha channel is stored."""
        return self.channels in (4, "keep") if self.alpha is None else self.alpha == "keep"

    @property
    def size(self) -> Resize | None:
        """``resize``, parsed."""
        return None if self.resize is None else parse_resize(self.resize)

    @property
    def quality(self) -> int:
        """The quality of images that are written as JPEG."""
        return self.jpeg_quality or self.usual_quality

    @property
    def dtype(self) -> str:
        """The dtype of the decoded pixels."""
        return "uint8" if self.depth == 8 else "uint16"

    @property
    def shape(self) -> tuple[int | None, int | None, int | None]:
        """Height, width and channels of the decoded pixels; None for those that differ between images."""
        sides = (self.size.height, self.size.width) if self.size and self.size.side is None else (None, None)
        return *sides, None if self.channels == "keep" else self.channels

    def to_json(self) -> dict[str, Json]:
        """Return the options that change which bytes are written, with the values that apply.

        Defaults are not left out, since another release may have others. ``mask`` is a property of a feature,
        and ``quality`` is what ``jpeg_quality`` stands for.
        """
        if self.check == "none":
            return {"check": "none", "max_bytes": MAX_BYTES}
        unnamed = ("mask", "for_training", "usual_quality")
        names = [name for name in type(self).__dataclass_fields__ if name not in unnamed]
        values = {name: getattr(self, name) for name in names}
        alpha = "keep" if self.keeps_alpha else "white"
        return {**values, "max_bytes": MAX_BYTES, "alpha": alpha, "quality": self.quality}


def _is_integer(value: object) -> bool:
    # True equals 1
    return isinstance(value, int) and not isinstance(value, bool)


def changed_images(recorded: Mapping[str, Json]) -> dict[str, Json]:
    """Return the image options among the options that a manifest records that are not the defaults."""
    defaults = ImageOptions().to_json()
    values = recorded_values(ImageOptions, recorded)
    return {name: value for name, value in values.items() if value != defaults.get(name)}
