"""Draw small pictures of stored images for people, with masks and boxes over them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfshards.prep.imaging.convert import orientation_of, turned_upright
from tfshards.prep.imaging.depth import is_deep
from tfshards.prep.imaging.options import DEFAULT_MAX_PIXELS
from tfshards.prep.imaging.pillow import (
    Image,
    ImageDraw,
    Picture,
    UnidentifiedImageError,
    formats,
    one_at_a_time,
    own_settings,
)
from tfshards.prep.imaging.stored import stretched

# Left, top, right and bottom edge of a box, as fractions of the width and the height of an image.
Edges = tuple[float, float, float, float]

# Colors that differ also for people who see few of them: the palette of Okabe and Ito, without black.
_COLORS = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (213, 94, 0), (204, 121, 167))
_MASK_OPACITY = 0.55
_QUALITY = 68


class Header(NamedTuple):
    """What the header of an encoded image states.

    Attributes:
        width: number of columns.
        height: number of rows.
        kind: format, mode and depth, such as ``JPEG, RGB, 8 bits``.
    """

    width: int
    height: int
    kind: str


def header_of(data: bytes) -> Header | None:
    """Return what the header of an encoded image states, or None if it cannot be read."""
    try:
        with own_settings(DEFAULT_MAX_PIXELS), Image.open(io.BytesIO(data), formats=formats()) as image:
            bits = 16 if is_deep(image) else 1 if image.mode == "1" else 8
            mode = image.mode.partition(";")[0]
            return Header(image.width, image.height, f"{image.format}, {mode}, {bits} bits")
    except Exception:  # Pillow's parsers raise almost anything for damaged bytes
        return None


def thumbnail(data: bytes, side: int, *, is_upright: bool = True, is_damaged: bool = False) -> Picture:
    """Return an encoded image in RGB, scaled down to fit a square; a smaller one keeps its size.

    Transparent pixels become white; values of more than 8 bits of gray are stretched to black and white.

    Args:
        data: the encoded image.
        side: side of the square in pixels.
        is_upright: whether to apply the EXIF orientation.
        is_damaged: whether to draw what can be decoded of a damaged file.

    Raises:
        ValueError: nothing can be decoded; the message has no control characters.
    """
    settings = own_settings(DEFAULT_MAX_PIXELS, allows_truncated=is_damaged)
    try:
        with settings, Image.open(io.BytesIO(data), formats=formats()) as image:
            if image.width * image.height > DEFAULT_MAX_PIXELS:
                raise ValueError(f"{image.width} x {image.height} pixels; at most {DEFAULT_MAX_PIXELS}")
            # a JPEG is decoded at the smallest scale that suffices
            image.draft("RGB", (2 * side, 2 * side))
            with one_at_a_time(image.size):
                image.load()
            # Pillow turns TIFF files itself, and then reports no orientation
            orientation = orientation_of(image) if is_upright else 1
            picture = _in_color(image)
    except UnidentifiedImageError:
        raise ValueError("is not an image") from None
    except Exception as error:  # Pillow's decoders raise almost anything for damaged bytes
        raise ValueError(str(error).encode("unicode_escape").decode()) from None
    picture.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=3)
    return picture if orientation == 1 else turned_upright(picture, orientation)


def thumbnail_of_pixels(pixels: npt.NDArray[np.uint8], side: int) -> Picture:
    """Return pixels as a picture in RGB, scaled down to fit a square.

    Args:
        pixels: shape ``(height, width)`` or ``(height, width, channels)`` with 1, 3 or 4 channels.
        side: side of the square in pixels.
    """
    picture = _in_color(Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels))
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    return picture


def draw_mask(picture: Picture, mask: bytes) -> Picture:
    """Return a picture with a mask over it, in one color for each number but 0.

    Raises:
        ValueError: the mask cannot be decoded.
    """
    try:
        with own_settings(DEFAULT_MAX_PIXELS), Image.open(io.BytesIO(mask), formats=("PNG",)) as image:
            orientation = orientation_of(image)
            numbers = image.resize(
                picture.size if orientation < 5 else picture.size[::-1], Image.Resampling.NEAREST
            )
            numbers = numbers if orientation == 1 else turned_upright(numbers, orientation)
            values = np.asarray(numbers).astype(np.int64)
    except Exception as error:  # Pillow's decoders raise almost anything for damaged bytes
        raise ValueError(str(error).encode("unicode_escape").decode()) from None
    colors = np.array(_COLORS, np.float64)[(values - 1) % len(_COLORS)]
    pixels = np.asarray(picture).astype(np.float64)
    mixed = pixels * (1 - _MASK_OPACITY) + colors * _MASK_OPACITY
    drawn = np.where((values != 0)[..., None], mixed, pixels)
    return Image.fromarray(np.rint(drawn).astype(np.uint8))


def draw_boxes(picture: Picture, boxes: Sequence[Edges], colors: Sequence[int]) -> Picture:
    """Return a picture with the edges of boxes over it.

    Args:
        picture: the picture.
        boxes: the boxes, with finite numbers.
        colors: for each box a number that chooses its color, such as its class.
    """
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
