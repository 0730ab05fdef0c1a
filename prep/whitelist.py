"""Which images are taken, which of them as they are, and which are rejected by their header alone.

Works on images that Pillow has opened; ``images`` opens them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tfshards.prep import jpeg, png
from tfshards.prep.formats import SUFFIXES
from tfshards.prep.image_options import LONGEST, MAX_SIDE, Channels, ImageOptions


class Opened(Protocol):
    """What is asked here of a ``PIL.Image.Image`` whose pixels are not decoded yet."""

    @property
    def format(self) -> str | None:
        """Pillow's name of the format."""

    @property
    def info(self) -> Mapping[str | tuple[int, int], object]:
        """What else stands in the file."""

    @property
    def mode(self) -> str:
        """Pillow's name for the kind of pixels."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""


@dataclass(eq=False)
class ImageError(Exception):
    """Why an image is rejected.

    Attributes:
        reason: one of ``empty``, ``unreadable``, ``damaged``, ``too large``, ``animated``, ``unsupported``.
        detail: for people; free of control characters.
    """

    reason: str
    detail: str


def check_size(image: Opened, options: ImageOptions) -> None:
    """Raise ImageError if the image has too many pixels."""
    sides = f"{image.size[0]} x {image.size[1]} pixels"
    if image.size[0] * image.size[1] > options.max_pixels:
        raise ImageError("too large", f"{sides}; at most {options.max_pixels}")
    if max(image.size) > MAX_SIDE:
        # libpng, which TensorFlow reads with, takes no longer side
        raise ImageError("too large", f"{sides}; no side above {MAX_SIDE}")


def check_side(size: tuple[int, int], name: str) -> None:
    """Raise ImageError if a picture of this width and height cannot be written in the format ``name``."""
    if max(size) > LONGEST[name]:
        sides = f"{size[0]} x {size[1]} pixels"
        raise ImageError("too large", f"{sides}; no side of a {name} image above {LONGEST[name]}")


def _num_frames(image: Opened) -> int:
    # An MPO file is a JPEG with more of them behind it, such as a camera's previews, and a HEIF file has one
    # that is the picture; all show that one.
    return 1 if image.format in ("JPEG", "MPO", "HEIF") else getattr(image, "n_frames", 1)


def check_limits(image: Opened, built: jpeg.Structure | None, options: ImageOptions) -> None:
    """Raise ImageError if the header, or the number of frames or scans, forbids to decode the image.

    Here and below ``built`` is how a JPEG file is built, and None for other formats.
    """
    check_size(image, options)
    num_frames = _num_frames(image)
    if num_frames > 1 and options.animation == "reject":
        raise ImageError("animated", f"has {num_frames} frames")
    if num_frames > options.max_frames:
        raise ImageError("too large", f"{num_frames} frames; at most {options.max_frames}")
    if built and built.num_scans > options.max_scans:
        raise ImageError("too large", f"{built.num_scans} scans; at most {options.max_scans}")


def check_pixels(image: Opened, data: bytes, built: jpeg.Structure | None) -> None:
    """Raise ImageError if there are not as many pixels as the header says, where Pillow makes up the rest."""
    fault = None
    if image.format == "PNG":
        fault = png.pixel_fault(data)
    elif built:
        fault = jpeg.pixel_fault(data, built)
    elif image.format == "ICO":
        start = data.find(png.SIGNATURE)
        fault = png.pixel_fault(data[start:]) if start > 0 else None
    if fault:
        raise ImageError("damaged", fault)


def notes_of(image: Opened, suffix: bytes) -> Iterator[str]:
    """Yield what the manifest counts of an image, whether it is kept or converted."""
    named = SUFFIXES.get(suffix)
    found = {"MPO": "JPEG"}.get(image.format or "", image.format)
    if named != found and not (suffix == b".dib" and found == "BMP"):
        yield "known by content"
    if image.info.get("icc_profile"):
        yield "colour profile ignored"
    if _num_frames(image) > 1:
        yield "first frame"


# By the channels that are asked for: the modes of which both decoders make the same pixels with so many.
_JPEG_MODES: Mapping[Channels, tuple[str, ...]] = {1: ("L",), 3: ("L", "RGB"), 4: (), "keep": ("L", "RGB")}
_PNG_MODES: Mapping[Channels, tuple[str, ...]] = {
    1: ("1", "L"),
    3: ("1", "L", "RGB"),
    4: ("L", "RGB"),
    "keep": ("1", "L", "RGB"),
}


def is_kept(image: Opened, data: bytes, built: jpeg.Structure | None, options: ImageOptions) -> bool:
    """Whether Pillow and TensorFlow decode these bytes to the same pixels, in the channels asked for."""
    if built:
        allowed = image.mode in _JPEG_MODES[options.channels] and options.format in ("keep", "jpeg")
        return allowed and built.is_plain
    if image.format == "PNG":
        modes = _PNG_MODES[options.channels] + (("RGBA",) if options.keeps_alpha else ())
        allowed = image.mode in modes and options.format in ("keep", "png")
        # of fewer bits a sample, TensorFlow makes an alpha channel that is nearly transparent
        allowed = allowed and (options.channels != 4 or png.depth(data) == 8)
        return allowed and "transparency" not in image.info and png.is_plain(data)
    return False
