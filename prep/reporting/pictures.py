"""Small pictures of stored images, with their masks, boxes and keypoints, for people."""

from __future__ import annotations

import base64
import io
from collections import Counter
from typing import NamedTuple, cast

import numpy as np

from tfshards.prep.imaging.convert import orientation_of, turned_upright
from tfshards.prep.imaging.coordinates import Floats, edges_of
from tfshards.prep.imaging.pillow import Image, ImageDraw, Picture, one_at_a_time, opened
from tfshards.prep.imaging.stored import stored_image, stretched
from tfshards.schemas import Feature, Schema
from tfshards.schemas.coordinates import Coordinates, coordinates_of
from tfshards.schemas.example import Decoded
from tfshards.schemas.pixels import as_image, pixel_images

# Colors that differ also for people who see few of them: the palette of Okabe and Ito, without black.
_COLORS = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (213, 94, 0), (204, 121, 167))
_MASK_OPACITY = 0.55
_QUALITY = 68
_SHOWN_CLASSES = 6


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


def drawn(schema: Schema, side: int, values: dict[str, Decoded]) -> Picture:
    """Return the image of an example, see ``scaled``; raise ValueError if nothing can be decoded."""
    feature = cast("Feature", image_of(schema))
    with stored_image(cast("bytes", values[feature.name][0]), feature) as image:
        return scaled(image, side)


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
    with one_at_a_time(image.size):
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


class Marks(NamedTuple):
    """The features that are drawn over an encoded image: a mask, boxes with their classes, keypoints."""

    image: Feature
    mask: Feature | None
    boxes: Feature | None
    classes: Feature | None
    points: Feature | None

    @classmethod
    def of(cls, schema: Schema) -> Marks | None:
        """Return the first mask, and the first features that are declared as boxes and keypoints, if any."""
        image, mask = image_of(schema), next((one for one in schema.features if one.is_mask), None)
        declared = coordinates_of(schema.features)
        boxes = next((schema[name] for name, each in declared.items() if each.are_boxes), None)
        points = next((schema[name] for name, each in declared.items() if not each.are_boxes), None)
        if image is None or not image.is_encoded or not (mask or boxes or points):
            return None
        # labels with the prefix of the boxes, such as ``objects/``
        prefix = boxes.name.rpartition("/")[0] if boxes else ""
        labels = [one for one in schema.features if boxes and one.is_label and one.is_ragged]
        classes = next((one for one in labels if one.name.rpartition("/")[0] == prefix), None)
        return cls(image, mask, boxes, classes, points)

    def drawn(self, side: int, values: dict[str, Decoded]) -> Picture:
        """Return an image with its marks, scaled down to fit a square.

        Raises:
            ValueError: it cannot be decoded.
        """
        declared = coordinates_of(filter(None, (self.boxes, self.points))).values()
        with stored_image(cast("bytes", values[self.image.name][0]), self.image) as image:
            size = image.size
            # boxes and keypoints in pixels refer to the stored image
            picture = scaled(image, side, is_upright=all(each.is_normalized for each in declared))
        if self.mask is not None:
            picture = with_mask(picture, cast("bytes", values[self.mask.name][0]))
        pen, limits = ImageDraw.Draw(picture), np.array(picture.size) - 1
        for box, label in self._boxes(values, size):
            # a dark line around the bright one is seen on every background
            corners = (np.clip(box, 0, 1) * limits).reshape(4).tolist()
            pen.rectangle(corners, outline=(0, 0, 0), width=5)
            pen.rectangle(corners, outline=_COLORS[label % len(_COLORS)], width=3)
        for number, point in enumerate(self._points(values, size)):
            center = (np.clip(point, 0, 1) * limits).tolist()
            pen.circle(center, 4, fill=_COLORS[number % len(_COLORS)], outline=(0, 0, 0))
        return picture

    def caption(self, values: dict[str, Decoded], schema: Schema) -> str:
        """Return the classes of the boxes, or how many there are."""
        if self.boxes is None:
            return ""
        labels = [label for _, label in self._boxes(values, (1, 1))]
        if self.classes is None or not labels:
            return f"boxes: {len(labels)}"
        counts = Counter(map(schema.class_name, labels)).most_common()
        named = [f"{count} {name}" for name, count in counts[:_SHOWN_CLASSES]]
        return ", ".join(named) + (", …" if len(counts) > len(named) else "")

    def _boxes(self, values: dict[str, Decoded], size: tuple[int, int]) -> list[tuple[Floats, int]]:
        """Return two corners of each box, as fractions of an image, and its class; 0 without classes."""
        if self.boxes is None:
            return []
        are = Coordinates.parse(self.boxes.coordinates or "")
        corners = edges_of(values[self.boxes.name], are.order).reshape(-1, 2, 2)
        labels = cast("list[int]", values[self.classes.name]) if self.classes else []
        labels = labels if len(labels) == len(corners) else [0] * len(corners)
        shares = corners if are.is_normalized else corners / size
        # NaN is not less than anything
        is_box = np.isfinite(shares).all(axis=(1, 2)) & (shares[:, 0] <= shares[:, 1]).all(axis=1)
        return [(shares[index], labels[index]) for index in np.flatnonzero(is_box).tolist()]

    def _points(self, values: dict[str, Decoded], size: tuple[int, int]) -> Floats:
        """Return the labeled keypoints as fractions of the width and the height of an image."""
        if self.points is None:
            return np.zeros((0, 2))
        are = Coordinates.parse(self.points.coordinates or "")
        rows = np.asarray(values[self.points.name], np.float64).reshape(-1, len(are.order))
        # the third number is the visibility: 0 means that a keypoint is not labeled
        shown = rows[np.isfinite(rows).all(axis=1) & (rows[:, 2:] > 0).all(axis=1), :2]
        return shown if are.is_normalized else shown / size


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
