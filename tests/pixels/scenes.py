"""Photos with painted rectangles, whose boxes, keypoints and masks are known in every format and turn.

    file                         upright, after EXIF tag 6
    +----------------------+     +------------+
    |  RRR                 |     |            |
    |  RRR    GGG          |     |    RRR     |
    |         GGG   .      |     |    RRR     |
    |               y      |     |  GGG       |
    +----------------------+     ...

A rectangle has one pure color, a keypoint is the center of a square of 7 x 7 pixels of another one, and the
mask has a class for each color. So whatever a build and the loader do, the delivered pixels show where the
delivered numbers should be.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps

# class in the mask -> color; the first three are boxes, the others keypoints
COLORS = {
    1: (255, 0, 0),
    2: (0, 255, 0),
    3: (0, 0, 255),
    4: (255, 255, 0),
    5: (0, 255, 255),
}
BOXES, POINTS = (1, 2, 3), (4, 5)
# half of the side of a keypoint's square, without its center
REACH = 3
BOX_FORMATS = tuple(
    f"{order}{share}" for order in ("xywh", "xyxy", "cxcywh", "yxyx") for share in ("", "-normalized")
)


@dataclass(frozen=True)
class Scene:
    """One photo.

    Attributes:
        classes: class of each pixel in the file, uint8 of shape (height, width); 0 is background.
        orientation: EXIF orientation, 1 to 8.
    """

    classes: np.ndarray
    orientation: int

    def image(self, kind: str) -> bytes:
        """Return the photo as a file of this format, ``JPEG`` or ``PNG``, with its EXIF tag."""
        colors = np.zeros((6, 3), np.uint8)
        for number, color in COLORS.items():
            colors[number] = color
        return _file(colors[self.classes], kind, self.orientation)

    def mask(self, *, upright: bool) -> bytes:
        """Return the mask as PNG without a tag, of the pixels in the file or of the upright photo."""
        return _file(self.upright() if upright else self.classes, "PNG", 1)

    def upright(self) -> np.ndarray:
        """Return the classes as Pillow shows them."""
        file = io.BytesIO(_file(self.classes, "PNG", self.orientation))
        return np.asarray(ImageOps.exif_transpose(Image.open(file)))


def _file(pixels: np.ndarray, kind: str, orientation: int) -> bytes:
    tags = Image.Exif()
    if orientation != 1:
        tags[0x0112] = orientation
    file = io.BytesIO()
    options = {"quality": 98, "subsampling": 0} if kind == "JPEG" else {}
    Image.fromarray(pixels).save(file, kind, exif=tags, **options)
    return file.getvalue()


def scene(number: int, orientation: int) -> Scene:
    """Return a photo of sides that differ by more than a tenth, with what it shows drawn by its number."""
    random = np.random.default_rng(number)
    height = int(random.integers(70, 110))
    width = height + int(random.integers(15, 50)) * (1 if number % 2 else -1)
    classes = np.zeros((height, width), np.uint8)
    column = width / 5
    for index, kind in enumerate((1, 4, 2, 5, 3)):
        low, high = int(index * column) + 1, int((index + 1) * column) - 1
        if kind in BOXES:
            top, bottom = np.sort(random.choice(np.arange(height - 16), 2, replace=False))
            classes[top : bottom + 16, low : high - int(random.integers(0, 3))] = kind
        else:
            x, y = (low + high) // 2, int(random.integers(REACH, height - REACH))
            classes[y - REACH : y + REACH + 1, x - REACH : x + REACH + 1] = kind
    return Scene(classes, orientation)


def edges(classes: np.ndarray, kind: int) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom edge of a class, in pixels."""
    rows, columns = np.nonzero(classes == kind)
    return float(columns.min()), float(rows.min()), float(columns.max() + 1), float(rows.max() + 1)


def boxes(classes: np.ndarray, form: str) -> list[list[float]]:
    """Return the boxes of a photo, a list of four numbers each, in one of ``BOX_FORMATS``."""
    order, _, share = form.partition("-")
    height, width = classes.shape
    scale = [1.0] * 4
    if share:
        scale = [height, width] * 2 if order == "yxyx" else [width, height] * 2
    found = []
    for kind in BOXES:
        left, top, right, bottom = edges(classes, kind)
        numbers = {
            "xywh": (left, top, right - left, bottom - top),
            "xyxy": (left, top, right, bottom),
            "yxyx": (top, left, bottom, right),
            "cxcywh": ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top),
        }[order]
        found.append([number / side for number, side in zip(numbers, scale, strict=True)])
    return found


def points(classes: np.ndarray, form: str) -> list[list[float]]:
    """Return the keypoints of a photo as x, y, and a visibility of 2 if the format is "xyv"."""
    order, _, share = form.partition("-")
    height, width = classes.shape
    across, down = (width, height) if share else (1, 1)
    found = []
    for kind in POINTS:
        left, top, right, bottom = edges(classes, kind)
        found.append([(left + right) / 2 / across, (top + bottom) / 2 / down, *([2.0] * (order == "xyv"))])
    return found


def edges_of_boxes(numbers: np.ndarray, form: str, sides: tuple[int, int]) -> np.ndarray:
    """Return left, top, right and bottom edges in pixels; the inverse of ``boxes``.

    Args:
        numbers: float32 of shape (count, 4).
        form: one of ``BOX_FORMATS``.
        sides: height and width of the picture.
    """
    order, _, share = form.partition("-")
    height, width = sides
    numbers = np.asarray(numbers, np.float64).reshape(-1, 4)
    if share:
        numbers = numbers * ([height, width] * 2 if order == "yxyx" else [width, height] * 2)
    a, b, c, d = numbers.T
    return np.stack(
        {
            "xywh": (a, b, a + c, b + d),
            "xyxy": (a, b, c, d),
            "yxyx": (b, a, d, c),
            "cxcywh": (a - c / 2, b - d / 2, a + c / 2, b + d / 2),
        }[order],
        axis=1,
    )


def shown(picture: np.ndarray) -> Mapping[int, np.ndarray]:
    """Return where a picture shows each class: bool of shape (height, width) by class.

    Args:
        picture: uint8 or float32 from 0 to 255, of shape (height, width, 3).
    """
    # far from half of a color, where the two channels of yellow would differ by chance
    return {kind: (np.abs(picture.astype(float) - color) < 100).all(axis=2) for kind, color in COLORS.items()}
