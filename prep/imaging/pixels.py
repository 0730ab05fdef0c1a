"""Pixels that are in memory, as pictures of Pillow or as arrays: encode them without a loss."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt

from tfshards.prep.imaging.convert import PNG_LEVEL
from tfshards.prep.imaging.pillow import Image, Picture, one_at_a_time
from tfshards.schemas import Feature

# Modes that PNG has, and the EXIF data with it; others are stored as TIFF.
_IN_PNG = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")


def encoded_picture(picture: Picture) -> bytes:
    """Return a picture as PNG, or as TIFF if PNG does not have its mode; its EXIF orientation stays.

    Raises:
        OSError, ValueError: its file is damaged, or no format has its mode.
    """
    file = io.BytesIO()
    with one_at_a_time(picture.size):
        picture.load()
    # in a TIFF, Pillow would take the orientation as the file's
    exif = {"exif": picture.info["exif"]} if picture.info.get("exif") else {}
    if picture.mode in _IN_PNG:
        picture.save(file, "PNG", compress_level=PNG_LEVEL, **exif)
    else:
        picture.save(file, "TIFF", **exif)
    return file.getvalue()


def stored_picture(data: bytes, feature: Feature) -> Picture:
    """Return the pixels in a value of a raw feature as a picture."""
    shape = tuple(side or 0 for side in feature.shape)
    samples = np.frombuffer(data, np.dtype(feature.dtype).newbyteorder("<")).reshape(shape)
    return picture_of(samples.astype(feature.dtype, copy=False))


def picture_of(samples: npt.NDArray[np.generic]) -> Picture:
    """Return pixels as for ``encoded_pixels`` as a picture; of colors of 16 bits the upper 8."""
    samples = samples.reshape(*samples.shape[:2], -1)
    if samples.shape[2] == 1:
        return Image.fromarray(samples[:, :, 0])
    is_deep = samples.dtype.itemsize > 1
    return Image.fromarray((samples.astype(np.uint16) >> 8).astype(np.uint8) if is_deep else samples)


def encoded_pixels(pixels: npt.NDArray[np.generic]) -> bytes:
    """Return an array of pixels as PNG.

    Args:
        pixels: shape ``(height, width)`` or ``(height, width, 1 | 3 | 4)``, uint8, or gray of uint16.

    Raises:
        ValueError: it has another shape or dtype.
    """
    shape = pixels.shape if pixels.ndim == 3 else (*pixels.shape, 1)
    if (
        len(shape) != 3
        or shape[2] not in (1, 3, 4)
        or 0 in shape
        or pixels.dtype not in (np.uint8, np.uint16)
    ):
        found = f"{pixels.dtype} {pixels.shape}"
        raise ValueError(
            f"{found} are not pixels: uint8 or uint16, (height, width) or (height, width, 1|3|4)"
        )
    samples = pixels.reshape(shape)
    if samples.dtype == np.uint16 and shape[2] != 1:
        raise ValueError(
            f"uint16 {pixels.shape} is color with 16 bits: declared as 'raw' it is stored as it is"
        )
    return encoded_picture(picture_of(samples))
