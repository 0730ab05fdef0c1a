"""Where the pixels of an image and of its masks are: sizes, and turns by EXIF orientations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
