"""The size of an image before and after its EXIF orientation is applied, to which boxes may refer."""

from __future__ import annotations

import io
from dataclasses import dataclass

from tfshards.prep.imaging.convert import orientation_of
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.pillow import Image, formats_of, own_settings

# EXIF orientations that exchange width and height
SIDEWAYS = (5, 6, 7, 8)


@dataclass(frozen=True)
class OrientedSize:
    """The size of an image in a file, and how it is turned upright.

    Attributes:
        width: number of columns of the pixels in the file.
        height: number of rows of the pixels in the file.
        orientation: EXIF orientation, 1 to 8.
    """

    width: int
    height: int
    orientation: int

    @property
    def stored(self) -> tuple[int, int]:
        """Width and height of the pixels in the file."""
        return self.width, self.height

    @property
    def upright(self) -> tuple[int, int]:
        """Width and height of the upright image."""
        return self.stored[::-1] if self.orientation in SIDEWAYS else self.stored


def oriented_size(data: bytes, options: ImageOptions, suffix: bytes = b"") -> OrientedSize:
    """Return the size and the orientation of an image that ``normalize`` accepted with these options."""
    with own_settings(options.max_pixels), Image.open(io.BytesIO(data), formats=formats_of(suffix)) as image:
        width, height = image.size
        orientation = orientation_of(image)
        if image.format == "TIFF" and orientation in SIDEWAYS:
            # Pillow reports the size of the upright image
            width, height = height, width
    return OrientedSize(width, height, orientation)
