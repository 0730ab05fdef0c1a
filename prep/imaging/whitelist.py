"""The rules by which opened images are accepted, and stored unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tfshards.prep.imaging import jpeg, png
from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.imaging.options import LONGEST, MAX_SIDE, Channels, ImageOptions
from tfshards.schemas.reasons import Reason

# By format and by the channels of the options: the modes that both decoders decode to the same pixels.
_KEPT_MODES: Mapping[str, Mapping[Channels, tuple[str, ...]]] = {
    "JPEG": {1: ("L",), 3: ("L", "RGB"), 4: (), "keep": ("L", "RGB")},
    "PNG": {1: ("1", "L"), 3: ("1", "L", "RGB"), 4: ("L", "RGB"), "keep": ("1", "L", "RGB")},
}
# The most frames of a file whose first one is stored, and scans of a progressive JPEG, each a pass over it.
_MAX_FRAMES, _MAX_SCANS = 10_000, 100


@dataclass(eq=False)
class ImageError(Exception):
    """An image is rejected. Both texts are stored in the rejects file, so their wording does not change.

    Attributes:
        reason: why.
        detail: an explanation without control characters.
    """

    reason: Reason
    detail: str


class Header(NamedTuple):
    """What is known of an image whose pixels are not decoded yet: by the table of formats, and by Pillow."""

    format: str
    mode: str
    # width and height
    size: tuple[int, int]
    num_frames: int = 1
    has_profile: bool = False
    # one color, or one value of gray
    is_transparent: bool = False
    # of a JPEG file
    built: jpeg.Structure | None = None


def check_size(size: tuple[int, int], options: ImageOptions) -> None:
    """Raise ImageError if an image of this width and height has too many pixels."""
    sides = f"{size[0]} x {size[1]} pixels"
    if size[0] * size[1] > options.max_pixels:
        raise ImageError(Reason.TOO_LARGE, f"{sides}; at most {options.max_pixels}")
    if max(size) > MAX_SIDE:
        # the limit of libpng, which TensorFlow uses
        raise ImageError(Reason.TOO_LARGE, f"{sides}; no side above {MAX_SIDE}")


def check_side(size: tuple[int, int], name: str) -> None:
    """Raise ImageError if a picture of this width and height cannot be written in the format ``name``."""
    if max(size) > LONGEST[name]:
        sides = f"{size[0]} x {size[1]} pixels"
        raise ImageError(Reason.TOO_LARGE, f"{sides}; no side of a {name} image above {LONGEST[name]}")


def check_limits(image: Header, options: ImageOptions) -> None:
    """Raise ImageError if the size, or the number of frames or scans, exceeds a limit."""
    check_size(image.size, options)
    if image.num_frames > 1 and options.animation == "reject":
        raise ImageError(Reason.ANIMATED, f"has {image.num_frames} frames")
    if image.num_frames > _MAX_FRAMES:
        raise ImageError(Reason.TOO_LARGE, f"{image.num_frames} frames; at most {_MAX_FRAMES}")
    if image.built and image.built.num_scans > _MAX_SCANS:
        raise ImageError(Reason.TOO_LARGE, f"{image.built.num_scans} scans; at most {_MAX_SCANS}")


def check_pixels(image: Header, data: bytes) -> None:
    """Raise ImageError if the file has fewer pixels than its header states; Pillow may fill in the rest."""
    fault = jpeg.pixel_fault(data, image.built) if image.built else None
    if image.format == "PNG":
        fault = png.pixel_fault(data)
    if fault:
        raise ImageError(Reason.DAMAGED, fault)


def notes_of(image: Header, suffix: bytes) -> Iterator[str]:
    """Yield the properties of a kept or converted image that the manifest counts."""
    if SUFFIXES.get(suffix) != image.format:
        yield "known by content"
    if image.has_profile:
        yield "color profile ignored"
    if image.num_frames > 1:
        yield "first frame"


def is_kept(image: Header, data: bytes, options: ImageOptions) -> bool:
    """Return whether Pillow and TensorFlow decode ``data`` to the same pixels, in the options' channels."""
    modes = _KEPT_MODES.get(image.format, {}).get(options.channels, ())
    is_png = image.format == "PNG"
    if is_png and options.keeps_alpha:
        modes += ("RGBA",)
    mode = "L" if is_png and image.mode == "I;16" else image.mode
    if mode not in modes or options.format not in ("keep", image.format.lower()):
        return False
    if not is_png:
        return options.depth != 16 and image.built is not None and image.built.is_plain
    depth = data[24]
    if depth == 16:
        fits = options.depth != 8
    elif options.mask:
        # the values of a mask are not scaled, neither fewer bits by a decoder nor 8 by a loader
        fits = options.depth == depth
    else:
        # for fewer bits per sample, TensorFlow adds an alpha channel that is nearly transparent
        fits = options.depth != 16 and (options.channels != 4 or depth == 8)
    return fits and not image.is_transparent and png.is_plain(data)
