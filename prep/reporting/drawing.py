"""Draw small pictures of stored images, with their masks, boxes and keypoints, for people."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np

from tfshards.prep.imaging.convert import orientation_of, turned_upright
from tfshards.prep.imaging.pillow import Image, ImageDraw, Picture, one_at_a_time
from tfshards.prep.imaging.stored import readable, stretched

# Left, top, right and bottom edge of a box, as fractions of the width and the height of an image.
Edges = tuple[float, float, float, float]

# Colors that differ also for people who see few of them: the palette of Okabe and Ito, without black.
_COLORS = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (213, 94, 0), (204, 121, 167))
_MASK_OPACITY = 0.55
_QUALITY = 68


def thumbnail(data: bytes, side: int, *, is_upright: bool = True, is_damaged: bool = False) -> Picture:
    """Return an encoded image in RGB, scaled down to fit a square; a smaller one keeps its size.

    Transparent pixels become white; values of more than 8 bits of gray are stretched to black and white. The
    EXIF orientation is applied if ``is_upright``, and what can be decoded of a damaged file is drawn if
    ``is_damaged``.

    Raises:
        ValueError: nothing can be decoded; the message has no control characters.
    """
    with readable(data, allows_truncated=is_damaged) as image:
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
    with readable(mask, ("PNG",)) as image:
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
