"""Stored images: describe, verify and scale them down, and draw small pictures of them for people."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from tfshards.prep.imaging.convert import orientation_of, turned_upright
from tfshards.prep.imaging.options import DEFAULT_MAX_PIXELS
from tfshards.prep.imaging.pillow import (
    Header,
    Image,
    ImageDraw,
    Picture,
    UnidentifiedImageError,
    header_of,
    one_at_a_time,
    opened,
)

if TYPE_CHECKING:
    from tfshards.schemas import Feature


# What an audit decodes: only formats whose decoders execute nothing.
_AUDITED = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
# To describe an image, none of its pixels are decoded.
_NO_LIMIT = sys.maxsize


def describe(data: bytes) -> str:
    """Return the format, height x width and mode of an encoded image as text."""
    try:
        with _readable(data, max_pixels=_NO_LIMIT) as image:
            sides = f"{image.height} x {image.width} (height x width)"
            return f"{image.format} {sides}, mode {image.mode}"
    except ValueError:
        return "not a readable image"


@contextmanager
def _readable(
    data: bytes,
    allowed: tuple[str, ...] | None = None,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    *,
    allows_truncated: bool = False,
) -> Iterator[Picture]:
    """Open an encoded image; the arguments are those of ``opened``.

    Raises:
        ValueError: it cannot be decoded, or has too many pixels; the message has no control characters.
    """
    try:
        with opened(data, allowed, max_pixels, allows_truncated=allows_truncated) as image:
            if image.width * image.height > max_pixels:
                raise ValueError(f"{image.width} x {image.height} pixels; at most {max_pixels}")
            yield image
    except UnidentifiedImageError:
        raise ValueError(f"starts with {data[:8].hex(' ')}, and is not a known image") from None
    except Exception as error:  # Pillow's decoders raise almost anything for damaged bytes
        raise ValueError(str(error).encode("unicode_escape").decode()) from None


# The number of decoded channels by mode; bilevel images decode to gray, palette images to RGB.
_CHANNELS = {"1": 1, "L": 1, "I;16": 1, "P": 3, "RGB": 3, "RGBA": 4, "LA": 4, "PA": 4}


def decoded_fault(data: bytes, feature: Feature, max_pixels: int) -> str | None:
    """Decode all pixels of a stored image, and return how it contradicts ``feature``, or None.

    An image may have fewer channels than the feature, since the loader converts it to that number.
    """
    height, width, channels = feature.shape[-3:]
    try:
        with _readable(data, max_pixels=max_pixels) as image:
            is_deep = header_of(image, io.BytesIO(data)).depth != "8"
            with one_at_a_time(image.size):
                image.load()
            sides, mode = (image.height, image.width), image.mode
    except ValueError as error:
        return f"the image {feature.name!r} cannot be decoded: {error}"
    if any(side not in (None, own) for side, own in zip((height, width), sides, strict=True)):
        stated = " x ".join("?" if side is None else str(side) for side in (height, width))
        found = f"{sides[0]} x {sides[1]} pixels"
        return f"the image {feature.name!r} has {found}, but the schema requires {stated}"
    if channels is not None and _CHANNELS.get(mode, channels + 1) > channels:
        return f"the image {feature.name!r} has mode {mode}, but the schema allows {channels} channels"
    if feature.kind == "mask" and is_deep != (feature.dtype == "uint16"):
        # images are scaled, the values of masks are numbers
        bits = 16 if is_deep else 8
        return f"the mask {feature.name!r} has {bits} bits per sample, but the schema has {feature.dtype}"
    return None


def glance(data: bytes, side: int) -> tuple[tuple[int, int], Picture | None]:
    """Return an image's (width, height) in pixels and a gray copy of it, ``side`` pixels wide and high.

    If ``side`` is 0, there is no copy, and no pixel is decoded. A JPEG is decoded at the smallest scale that
    has at least twice the side.

    Raises:
        ValueError: the image cannot be decoded; the message has no control characters.
    """
    with _readable(data, _AUDITED) as image:
        return glance_at(image, side)


def glance_at(image: Picture, side: int) -> tuple[tuple[int, int], Picture | None]:
    """Return the same of a picture."""
    size = image.size
    if not side:
        return size, None
    image.draft("L", (2 * side, 2 * side))
    gray = stretched(image) if image.mode.startswith("I") else image.convert("L")
    return size, gray.resize((side, side), Image.Resampling.LANCZOS)


def stretched(image: Picture) -> Picture:
    """Return a gray picture of more than 8 bits with 8, its range stretched to black and white."""
    values = np.asarray(image).astype(np.float64)
    low, high = float(values.min()), float(values.max())
    return Image.fromarray(np.rint((values - low) * (255 / max(high - low, 1))).astype(np.uint8))


# Left, top, right and bottom edge of a box, as fractions of the width and the height of an image.
Edges = tuple[float, float, float, float]

# Colors that differ also for people who see few of them: the palette of Okabe and Ito, without black.
_COLORS = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (213, 94, 0), (204, 121, 167))
_MASK_OPACITY = 0.55
_QUALITY = 68


def stored_header(data: bytes) -> Header | None:
    """Return what the header of an encoded image states, or None if it cannot be read."""
    try:
        with _readable(data, max_pixels=_NO_LIMIT) as image:
            return header_of(image, io.BytesIO(data))
    except ValueError:
        return None


def thumbnail(data: bytes, side: int, *, is_upright: bool = True, is_damaged: bool = False) -> Picture:
    """Return an encoded image in RGB, scaled down to fit a square; a smaller one keeps its size.

    Transparent pixels become white; values of more than 8 bits of gray are stretched to black and white. The
    EXIF orientation is applied if ``is_upright``, and what can be decoded of a damaged file is drawn if
    ``is_damaged``.

    Raises:
        ValueError: nothing can be decoded; the message has no control characters.
    """
    with _readable(data, allows_truncated=is_damaged) as image:
        # a JPEG is decoded at the smallest scale that suffices
        image.draft("RGB", (2 * side, 2 * side))
        with one_at_a_time(image.size):
            image.load()
        # Pillow turns TIFF files itself, and then reports no orientation
        orientation = orientation_of(image) if is_upright else 1
        picture = _in_color(image)
    picture.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=3)
    return picture if orientation == 1 else turned_upright(picture, orientation)


def thumbnail_of(picture: Picture, side: int) -> Picture:
    """Return a picture in RGB, scaled down to fit a square."""
    picture = _in_color(picture)
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    return picture


def draw_mask(picture: Picture, mask: bytes) -> Picture:
    """Return a picture with a mask over it, in one color for each number but 0.

    Raises:
        ValueError: the mask cannot be decoded.
    """
    with _readable(mask, ("PNG",)) as image:
        orientation = orientation_of(image)
        sides = picture.size if orientation < 5 else picture.size[::-1]
        numbers = image.resize(sides, Image.Resampling.NEAREST)
        numbers = numbers if orientation == 1 else turned_upright(numbers, orientation)
        values = np.asarray(numbers).astype(np.int64)
    colors = np.array(_COLORS, np.float64)[(values - 1) % len(_COLORS)]
    pixels = np.asarray(picture).astype(np.float64)
    mixed = pixels * (1 - _MASK_OPACITY) + colors * _MASK_OPACITY
    drawn = np.where((values != 0)[..., None], mixed, pixels)
    return Image.fromarray(np.rint(drawn).astype(np.uint8))


def draw_boxes(picture: Picture, boxes: Sequence[Edges], colors: Sequence[int]) -> Picture:
    """Return a picture with the edges of boxes over it, each in a color by its number, such as its class."""
    drawn = picture.copy()
    pen = ImageDraw.Draw(drawn)
    wide, high = picture.width - 1, picture.height - 1
    for (left, top, right, bottom), color in zip(boxes, colors, strict=True):
        edges = [(_inside(left) * wide, _inside(top) * high), (_inside(right) * wide, _inside(bottom) * high)]
        if left > right or top > bottom:
            continue
        # a dark line around the bright one is seen on every background
        pen.rectangle(edges, outline=(0, 0, 0), width=5)
        pen.rectangle(edges, outline=_COLORS[color % len(_COLORS)], width=3)
    return drawn


def draw_points(picture: Picture, points: Sequence[tuple[float, float]]) -> Picture:
    """Return a picture with a disk over each point, whose coordinates are fractions of the picture."""
    drawn = picture.copy()
    pen = ImageDraw.Draw(drawn)
    for number, (x, y) in enumerate(points):
        center = (_inside(x) * (picture.width - 1), _inside(y) * (picture.height - 1))
        pen.circle(center, 4, fill=_COLORS[number % len(_COLORS)], outline=(0, 0, 0))
    return drawn


def encoded_small(picture: Picture) -> bytes:
    """Return a picture as WebP, for a page; equal pictures have equal bytes."""
    file = io.BytesIO()
    picture.save(file, "WEBP", quality=_QUALITY, method=4)
    return file.getvalue()


def _inside(share: float) -> float:
    return min(1.0, max(0.0, share))


def _in_color(image: Picture) -> Picture:
    """Return a picture in RGB of 8 bits, over white where it is transparent."""
    if image.mode[0] in "IF":
        return stretched(image).convert("RGB")
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        colored = image.convert("RGBA")
        white = Image.new("RGBA", colored.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, colored).convert("RGB")
    return image.convert("RGB")
