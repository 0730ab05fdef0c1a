"""The rules by which opened images are accepted, and stored unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tfshards.prep.imaging import jpeg
from tfshards.prep.imaging.formats import SUFFIXES, ImageFormat, format_named
from tfshards.prep.imaging.opened import Opened
from tfshards.prep.imaging.options import LONGEST, MAX_SIDE, ImageOptions
from tfshards.schemas.reasons import Reason


@dataclass(eq=False)
class ImageError(Exception):
    """An image is rejected. Both texts are stored in the rejects file, so their wording does not change.

    Attributes:
        reason: why.
        detail: an explanation without control characters.
    """

    reason: Reason
    detail: str


def check_size(image: Opened, options: ImageOptions) -> None:
    """Raise ImageError if the image has too many pixels."""
    sides = f"{image.size[0]} x {image.size[1]} pixels"
    if image.size[0] * image.size[1] > options.max_pixels:
        raise ImageError(Reason.TOO_LARGE, f"{sides}; at most {options.max_pixels}")
    if max(image.size) > MAX_SIDE:
        # the limit of libpng, which TensorFlow uses
        raise ImageError(Reason.TOO_LARGE, f"{sides}; no side above {MAX_SIDE}")


def check_side(size: tuple[int, int], name: str) -> None:
    """Raise ImageError if a picture of this width and height cannot be written in the format ``name``."""
    if max(size) > LONGEST[name]:
        sides = f"{size[0]} x {size[1]} pixels"
        raise ImageError(Reason.TOO_LARGE, f"{sides}; no side of a {name} image above {LONGEST[name]}")


def _num_frames(image: Opened) -> int:
    return 1 if format_named(image.format).has_one_picture else getattr(image, "n_frames", 1)


def check_limits(image: Opened, built: jpeg.Structure | None, options: ImageOptions) -> None:
    """Raise ImageError if the header, or the number of frames or scans, exceeds a limit.

    Here and below, ``built`` is the structure of a JPEG file, and None for other formats.
    """
    check_size(image, options)
    num_frames = _num_frames(image)
    if num_frames > 1 and options.animation == "reject":
        raise ImageError(Reason.ANIMATED, f"has {num_frames} frames")
    if num_frames > options.max_frames:
        raise ImageError(Reason.TOO_LARGE, f"{num_frames} frames; at most {options.max_frames}")
    if built and built.num_scans > options.max_scans:
        raise ImageError(Reason.TOO_LARGE, f"{built.num_scans} scans; at most {options.max_scans}")


def check_pixels(image: Opened, data: bytes, built: jpeg.Structure | None) -> None:
    """Raise ImageError if the file has fewer pixels than its header states; Pillow may fill in the rest."""
    rule = _row(image, built).pixel_fault
    fault = rule(data, built) if rule else None
    if fault:
        raise ImageError(Reason.DAMAGED, fault)


def notes_of(image: Opened, suffix: bytes) -> Iterator[str]:
    """Yield the properties of a kept or converted image that the manifest counts."""
    named = SUFFIXES.get(suffix)
    found = format_named(image.format).name or image.format
    if named != found and not (suffix == b".dib" and found == "BMP"):
        yield "known by content"
    if image.info.get("icc_profile"):
        yield "color profile ignored"
    if _num_frames(image) > 1:
        yield "first frame"


def is_kept(image: Opened, data: bytes, built: jpeg.Structure | None, options: ImageOptions) -> bool:
    """Return whether Pillow and TensorFlow decode ``data`` to the same pixels, in the options' channels."""
    rule = _row(image, built).is_kept
    return rule is not None and rule(image, data, built, options)


def _row(image: Opened, built: jpeg.Structure | None) -> ImageFormat:
    return format_named("JPEG" if built else image.format)
