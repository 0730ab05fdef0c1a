"""Describe, verify and scale down images that are stored in a dataset."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import numpy as np

from tfshards.prep.imaging.depth import has_deep_colors, is_deep
from tfshards.prep.imaging.options import DEFAULT_MAX_PIXELS
from tfshards.prep.imaging.pillow import (
    Image,
    Picture,
    UnidentifiedImageError,
    formats,
    one_at_a_time,
    own_settings,
)

if TYPE_CHECKING:
    from tfshards.schemas import Feature

# What an audit decodes: only formats whose decoders execute nothing.
_AUDITED = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")
# To describe an image, none of its pixels are decoded.
_NO_LIMIT = sys.maxsize


def describe(data: bytes) -> str:
    """Return the format, height x width and mode of an encoded image as text."""
    try:
        with own_settings(_NO_LIMIT), Image.open(io.BytesIO(data), formats=formats()) as image:
            bits = ", 16 bits per sample" if has_deep_colors(image) else ""
            sides = f"{image.height} x {image.width} (height x width)"
            return f"{image.format} {sides}, mode {image.mode}{bits}"
    except (OSError, ValueError):
        return "not a readable image"


# The number of decoded channels by mode; bilevel images decode to gray, palette images to RGB.
_CHANNELS = {"1": 1, "L": 1, "I;16": 1, "P": 3, "RGB": 3, "RGBA": 4, "LA": 4, "PA": 4}


def decoded_fault(data: bytes, feature: Feature, max_pixels: int) -> str | None:
    """Decode all pixels of a stored image, and return how it contradicts ``feature``, or None.

    An image may have fewer channels than the feature, since the loader converts it to that number.
    """
    height, width, channels = feature.shape
    try:
        with own_settings(max_pixels), Image.open(io.BytesIO(data), formats=formats()) as image:
            if image.width * image.height > max_pixels:
                size = f"{image.width} x {image.height} pixels"
                return f"the image {feature.name!r} has {size}; at most {max_pixels} are decoded"
            bits = 16 if is_deep(image) else 8
            with one_at_a_time(image.size):
                image.load()
            sides, mode = (image.height, image.width), image.mode
    except UnidentifiedImageError:
        return f"the image {feature.name!r} starts with {data[:8].hex(' ')}, and cannot be decoded"
    except Exception as error:  # Pillow's decoders raise almost anything for damaged bytes
        detail = f"{type(error).__name__}: {error}".encode("unicode_escape").decode()
        return f"the image {feature.name!r} cannot be decoded: {detail}"
    if any(side not in (None, own) for side, own in zip((height, width), sides, strict=True)):
        stated = " x ".join("?" if side is None else str(side) for side in (height, width))
        found = f"{sides[0]} x {sides[1]} pixels"
        return f"the image {feature.name!r} has {found}, but the schema requires {stated}"
    if channels is not None and _CHANNELS.get(mode, channels + 1) > channels:
        return f"the image {feature.name!r} has mode {mode}, but the schema allows {channels} channels"
    if feature.kind == "mask" and (bits == 16) != (feature.dtype == "uint16"):
        # images are scaled, the values of masks are numbers
        return f"the mask {feature.name!r} has {bits} bits per sample, but the schema has {feature.dtype}"
    return None


def glance(data: bytes, side: int) -> tuple[tuple[int, int], Picture | None]:
    """Return an image's (width, height) in pixels and a gray copy of it, ``side`` pixels wide and high.

    If ``side`` is 0, there is no copy, and no pixel is decoded. A JPEG is decoded at the smallest scale that
    has at least twice the side.

    Raises:
        ValueError: the image cannot be decoded; the message has no control characters.
    """
    try:
        with own_settings(DEFAULT_MAX_PIXELS), Image.open(io.BytesIO(data), formats=_AUDITED) as image:
            size = image.size
            if not side:
                return size, None
            if size[0] * size[1] > DEFAULT_MAX_PIXELS:
                raise ValueError(f"{size[0]} x {size[1]} pixels; at most {DEFAULT_MAX_PIXELS}")
            image.draft("L", (2 * side, 2 * side))
            return size, _in_gray(image).resize((side, side), Image.Resampling.LANCZOS)
    except UnidentifiedImageError:
        raise ValueError(f"cannot be opened as {', '.join(_AUDITED)}") from None
    except Exception as error:  # Pillow's decoders raise almost anything for damaged bytes
        raise ValueError(str(error).encode("unicode_escape").decode()) from None


def _in_gray(image: Picture) -> Picture:
    """Return a picture in gray of 8 bits, in which the range of more bits is stretched to black and white."""
    return stretched(image) if image.mode.startswith("I") else image.convert("L")


def stretched(image: Picture) -> Picture:
    """Return a gray picture of more than 8 bits with 8, its range stretched to black and white."""
    values = np.asarray(image).astype(np.float64)
    low, high = float(values.min()), float(values.max())
    return Image.fromarray(np.rint((values - low) * (255 / max(high - low, 1))).astype(np.uint8))
