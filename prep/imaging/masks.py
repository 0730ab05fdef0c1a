"""Masks, whose values are numbers of classes or objects: read them exactly, and fit them to their image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfshards.prep.imaging.depth import gray_values
from tfshards.prep.imaging.pillow import Header, Image
from tfshards.prep.imaging.reasons import ImageError, Reason

# EXIF orientations that exchange width and height.
SIDEWAYS = (5, 6, 7, 8)


class Geometry(NamedTuple):
    """Width and height in the file of an image, and the EXIF orientation that is applied to the pixels."""

    raw: tuple[int, int]
    orientation: int = 1

    @property
    def upright(self) -> tuple[int, int]:
        """Width and height of the turned pixels."""
        return self.raw[::-1] if self.orientation in SIDEWAYS else self.raw


def mask_turn(mask: Geometry, images: Sequence[Geometry]) -> int:
    """Return the EXIF orientation by which a mask is turned like its image; 1 if it fits as it is.

    A mask, after its own orientation was applied, may belong to the pixels in the file of its image or to the
    upright ones, as its size shows. It must fit one of several images.

    Raises:
        ImageError: the mask has another size, or fits in two ways.
    """
    size = mask.upright
    fits = set()
    for image in images:
        if size == image.upright:
            fits.add(1)
        if size == image.raw and mask.orientation == 1:
            fits.add(image.orientation)
    if len(fits) == 1:
        return fits.pop()
    wide, high = size
    if fits:
        raise ImageError(
            Reason.MISMATCH,
            f"{wide} x {high} pixels fit its image both before and after it is turned upright by its EXIF "
            "tag; if masks fit the pixels as they are in the files, remove the tags (exiftool -Orientation= "
            "-overwrite_original -r DIR), else turn the images before the build",
        )
    sizes = " or ".join(dict.fromkeys("{} x {}".format(*image.upright) for image in images))
    raise ImageError(Reason.MISMATCH, f"{wide} x {high} pixels, but its image has {sizes}")


def class_numbers(image: Image.Image, header: Header, *, is_deep: bool) -> Image.Image:
    """Return a loaded mask as a picture of its numbers in the file: palette indices or gray.

    Args:
        image: the mask, loaded.
        header: of its file.
        is_deep: whether numbers may have 16 bits.
    """
    if image.mode == "P":
        return Image.fromarray(np.asarray(image))
    if is_deep and header.depth in ("gray", "float"):
        return Image.fromarray(gray_values(image))
    if image.mode in ("1", "L"):
        values = np.asarray(image.convert("L"))
        if header.is_inverted:
            # Pillow has exchanged black and white
            values = 0xFF - values
        if header.white is not None:
            # exact, since the numbers are at least one step of the decoded values apart
            values = ((values.astype(np.uint16) * header.white + 0x7F) // 0xFF).astype(np.uint8)
        return Image.fromarray(values)
    more = "; mask_depth=16 allows 16" if image.mode.startswith("I") else ""
    raise ImageError(Reason.UNSUPPORTED, f"mode {image.mode}: a mask has one channel of at most 8 bits{more}")
