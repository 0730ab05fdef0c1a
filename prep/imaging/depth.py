"""Images with more than 8 bits per sample: recognize them, and read and resize their exact samples.

Pillow has no pictures of several channels of 16 bits: it drops the lower byte of each sample. So only gray
ones are stored with 16 bits.
"""

from __future__ import annotations

from typing import IO, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.imaging.pillow import Image, ImageFile, opened
from tfshards.prep.imaging.whitelist import ImageError
from tfshards.schemas.reasons import Reason

Samples: TypeAlias = "npt.NDArray[np.uint16]"

WHITE = 0xFFFF
_WHITE_OF_12 = 0xFFF
_BITS_PER_SAMPLE = 258
_CODESTREAM = b"\xff\x4f\xff\x51"


def is_deep(image: Image.Image) -> bool:
    """Return whether an image, whose pixels are not loaded yet, has more than 8 bits per sample."""
    return is_deep_gray(image) or has_deep_colors(image)


def is_deep_gray(image: Image.Image) -> bool:
    """Return whether an image is gray, with more than 8 bits per sample, or of floats."""
    return image.mode.startswith("I") or image.mode == "F"


def file_depth(file: IO[bytes]) -> Literal["8", "gray", "color", "float"]:
    """Return whether an image file has 8 bits per sample, more in gray or color, or floats.

    Only the header is read; "8" if it is damaged.
    """
    try:
        with opened(file) as image:
            if image.mode == "F":
                return "float"
            if is_deep_gray(image):
                return "gray"
            return "color" if has_deep_colors(image) else "8"
    except Exception:  # the build reports what is wrong with the file
        return "8"


def has_deep_colors(image: Image.Image) -> bool:
    """Return whether Pillow would drop the lower bits of an image, whose pixels are not loaded yet."""
    if is_deep_gray(image):
        return False
    if image.format == "JPEG2000":
        return _jpeg2000_bits(cast("IO[bytes]", cast("ImageFile.ImageFile", image).fp)) > 8
    tags: dict[int, tuple[int, ...]] = getattr(image, "tag_v2", {})
    if max(tags.get(_BITS_PER_SAMPLE, (8,))) > 8:
        return True
    return any(_is_deep_tile(tile, image.format) for tile in cast("ImageFile.ImageFile", image).tile)


def _is_deep_tile(tile: ImageFile._Tile, name: str | None) -> bool:
    """Return whether the arguments of Pillow's decoder of a PNG or PPM file state more than 8 bits."""
    args = tile[3]
    if name == "PPM":
        # the layout of the samples, and the value of white
        return isinstance(args, tuple) and len(args) == 2 and int(str(args[1])) > 0xFF
    return name == "PNG" and ";16" in str(args[0] if isinstance(args, tuple) else args)


def _jpeg2000_bits(file: IO[bytes]) -> int:
    """Return the bits per sample of the first channel of a JPEG 2000 file; 8 if they are not found."""
    offset = file.tell()
    file.seek(0)
    head = file.read(1 << 12)
    file.seek(offset)
    start = head.find(_CODESTREAM)
    # the marker of the image's size, and 36 bytes on, the number of channels: ISO 15444-1, A.5.1
    bits = head[start + 42 : start + 43] if start >= 0 else b""
    return (bits[0] & 0x7F) + 1 if bits else 8


def gray_samples(image: Image.Image) -> Samples:
    """Return the exact samples of a loaded gray image with more than 8 bits, shape (height, width).

    Raises:
        ImageError: they do not fit 16 bits.
    """
    if image.mode == "F":
        raise ImageError(
            Reason.UNSUPPORTED,
            "mode F: floats do not fit 16 bits; 'tfshards build arrays' stores them as float32",
        )
    values = np.asarray(image)
    if not ((values >= 0) & (values <= WHITE)).all():
        raise ImageError(Reason.UNSUPPORTED, f"mode {image.mode}: has values outside of 0 to {WHITE}")
    tags: dict[int, tuple[int, ...]] = getattr(image, "tag_v2", {})
    if image.mode == "I;16" and tags.get(_BITS_PER_SAMPLE) == (12,):
        # as for PGM, whose header states the value of white, and as for files of 8 bits
        values = (values.astype(np.uint32) * WHITE + _WHITE_OF_12 // 2) // _WHITE_OF_12
    return values.astype(np.uint16)


def resized(values: Samples, size: tuple[int, int]) -> Samples:
    """Return samples resized to ``(width, height)`` by the Lanczos filter, in float32, and rounded.

    Args:
        values: shape (height, width, channels); the fourth channel is alpha.
        size: width and height of the result.
    """
    planes = values.astype(np.float32)
    if values.shape[2] == 4:
        # what is transparent has no weight
        planes[:, :, :3] *= planes[:, :, 3:] / WHITE
    whole = np.stack(
        [
            np.asarray(Image.fromarray(planes[:, :, index]).resize(size, Image.Resampling.LANCZOS))
            for index in range(values.shape[2])
        ],
        axis=2,
    )
    if values.shape[2] == 4:
        whole[:, :, :3] *= WHITE / np.maximum(whole[:, :, 3:], 1)
    rounded: Samples = np.rint(whole).clip(0, WHITE).astype(np.uint16)
    return rounded
