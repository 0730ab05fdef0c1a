"""Small pictures of stored images, with their masks, boxes and keypoints, for people."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import NamedTuple, cast

import numpy as np

from tfshards.prep.imaging.convert import orientation_of, turned_upright
from tfshards.prep.imaging.coordinates import Floats, edges_of
from tfshards.prep.imaging.pillow import Image, ImageDraw, Picture, opened
from tfshards.prep.imaging.stored import stored_image, stretched
from tfshards.schemas import Feature, Schema
from tfshards.schemas.coordinates import Coordinates, coordinates_of
from tfshards.schemas.example import Decoded
from tfshards.schemas.pixels import as_image, pixel_images

# Colors that differ also for people who see few of them: the palette of Okabe and Ito, without black.
_COLORS = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (213, 94, 0), (204, 121, 167))
_MASK_OPACITY = 0.55
_QUALITY = 68


class Thumbnail(NamedTuple):
    """A small picture as a URI with its bytes, and its width and height."""

    uri: str
    width: int
    height: int


def image_of(schema: Schema) -> Feature | None:
    """Return the feature that thumbnails show: the first image, or the first array that can be pixels."""
    images = [feature for feature in schema.features if feature.is_image]
    arrays = [schema[name] for name in pixel_images(schema.features)]
    return next(iter([*images, *arrays, *filter(as_image, schema.features)]), None)


def marks_of(schema: Schema) -> dict[str, str]:
    """Return what is drawn over an encoded image: each mask, and the form of declared boxes and keypoints."""
    image = image_of(schema)
    if image is None or not image.is_encoded:
        return {}
    masks = {feature.name: "mask" for feature in schema.features if feature.is_mask}
    return masks | {name: str(form) for name, form in coordinates_of(schema.features).items()}


def drawn(schema: Schema, side: int, values: Mapping[str, Decoded]) -> Picture:
    """Return the image of an example with its masks, boxes and keypoints, scaled down to fit a square.

    Raises:
        ValueError: it cannot be decoded.
    """
    feature, marks = cast("Feature", image_of(schema)), marks_of(schema)
    forms = {name: form for name, form in coordinates_of(schema.features).items() if name in marks}
    with stored_image(cast("bytes", values[feature.name][0]), feature) as image:
        size = image.size
        # boxes and keypoints in pixels refer to the stored image
        picture = scaled(image, side, is_upright=all(form.is_normalized for form in forms.values()))
    for mask in (one for one in schema.features if one.is_mask and one.name in marks):
        picture = with_mask(picture, cast("bytes", values[mask.name][0]))
    pen, limits, width = ImageDraw.Draw(picture), np.array(picture.size) - 1, max(1, side // 100)
    for name, form in forms.items():
        for number, shares in enumerate(_shares(values[name], form, size)):
            corners = (np.clip(shares, 0, 1) * limits).ravel().tolist()
            color = _COLORS[number % len(_COLORS)]
            if form.are_boxes:
                # a dark line around the bright one is seen on every background
                pen.rectangle(corners, outline=(0, 0, 0), width=width + 2)
                pen.rectangle(corners, outline=color, width=width)
            else:
                pen.circle(corners, width + 1, fill=color, outline=(0, 0, 0))
    return picture


def _shares(values: Decoded, form: Coordinates, size: tuple[int, int]) -> Floats:
    """Return two corners of each box, or each labeled keypoint, as fractions of the sides of an image."""
    found: Floats
    if form.are_boxes:
        found = edges_of(values, form.order).reshape(-1, 2, 2)
        # NaN is not less than anything
        is_shown = np.isfinite(found).all(axis=(1, 2)) & (found[:, 0] <= found[:, 1]).all(axis=1)
    else:
        found = np.asarray(values, np.float64).reshape(-1, len(form.order))
        # the third number is the visibility: 0 means that a keypoint is not labeled
        is_shown, found = np.isfinite(found).all(axis=1) & (found[:, 2:] > 0).all(axis=1), found[:, :2]
    return found[is_shown] if form.is_normalized else found[is_shown] / size


def as_thumbnail(picture: Picture) -> Thumbnail:
    """Return a picture as a thumbnail; equal pictures have equal bytes."""
    file = io.BytesIO()
    picture.save(file, "WEBP", quality=_QUALITY, method=4)
    encoded = base64.b64encode(file.getvalue()).decode("ascii")
    return Thumbnail(f"data:image/webp;base64,{encoded}", *picture.size)


def scaled(image: Picture, side: int, *, is_upright: bool = True) -> Picture:
    """Return an image in RGB, scaled down to fit a square; a smaller one keeps its size.

    Transparent pixels become white; values of more than 8 bits of gray are stretched to black and white. The
    EXIF orientation is applied if ``is_upright``.
    """
    # a JPEG is decoded at the smallest scale that suffices
    image.draft("RGB", (2 * side, 2 * side))
    image.load()
    # Pillow turns TIFF files itself, and then reports no orientation
    orientation = orientation_of(image) if is_upright else 1
    picture = _in_color(image)
    picture.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=3)
    return picture if orientation == 1 else turned_upright(picture, orientation)


def _in_color(image: Picture) -> Picture:
    """Return a picture in RGB of 8 bits, over white where it is transparent."""
    if image.mode[0] in "IF":
        return stretched(image).convert("RGB")
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        colored = image.convert("RGBA")
        white = Image.new("RGBA", colored.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, colored).convert("RGB")
    return image.convert("RGB")


def with_mask(picture: Picture, mask: bytes) -> Picture:
    """Return a picture with a mask over it, in one color for each number but 0.

    Raises:
        ValueError: the mask cannot be decoded.
    """
    with opened(mask) as image:
        orientation = orientation_of(image)
        sides = picture.size if orientation < 5 else picture.size[::-1]
        numbers = image.resize(sides, Image.Resampling.NEAREST)
        numbers = numbers if orientation == 1 else turned_upright(numbers, orientation)
        values = np.asarray(numbers).astype(np.int64)
    colors = np.array(_COLORS, np.float64)[(values - 1) % len(_COLORS)]
    pixels = np.asarray(picture).astype(np.float64)
    mixed = pixels * (1 - _MASK_OPACITY) + colors * _MASK_OPACITY
    return Image.fromarray(np.rint(np.where((values != 0)[..., None], mixed, pixels)).astype(np.uint8))
