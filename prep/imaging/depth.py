"""Gray images with more than 8 bits per sample: read their exact samples, or reduce them.

Pillow has no pictures of several channels of 16 bits: it drops the lower byte of each sample. So only gray
ones are stored with 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tfshards.prep.imaging.pillow import Header, Image
from tfshards.prep.imaging.reasons import ImageError, Reason

WHITE = 0xFFFF


def gray_values(image: Image.Image) -> npt.NDArray[np.uint16]:
    """Return the values of a loaded gray image with more than 8 bits per sample, shape (height, width).

    Raises:
        ImageError: they do not fit 16 bits.
    """
    if image.mode == "F":
        detail = "floats do not fit 16 bits; 'tfshards build arrays' stores arrays of them as float32"
        raise ImageError(Reason.UNSUPPORTED, detail)
    values = np.asarray(image)
    if not ((values >= 0) & (values <= WHITE)).all():
        raise ImageError(Reason.UNSUPPORTED, f"mode {image.mode}: has values outside of 0 to {WHITE}")
    return values.astype(np.uint16)


def with_eight_bits(image: Image.Image, header: Header, note: Callable[[str], None]) -> Image.Image:
    """Return a loaded gray image with more than 8 bits, or of floats, with 8.

    The upper 8 of 16 bits are used, as in TensorFlow and, for color, in Pillow. White is 65,535 for 32-bit
    integers and 1.0 for floats; a picture with values outside that range is rejected, since files do not
    state what these mean.
    """
    values = np.asarray(image)
    if image.mode == "F":
        note("float to 8 bits")
        if not ((values >= 0) & (values <= 1)).all():
            raise ImageError(Reason.UNSUPPORTED, "mode F: has values outside of 0 (black) to 1 (white)")
        return Image.fromarray(np.rint((1 - values if header.is_inverted else values) * 255).astype(np.uint8))
    note("16 bits to 8" if header.bits <= 16 else "32 bits to 8")
    if image.mode == "I" and not ((values >= 0) & (values <= WHITE)).all():
        raise ImageError(Reason.UNSUPPORTED, "mode I: has values outside of 0 (black) to 65535 (white)")
    upper = (values >> 8).astype(np.uint8)
    gray = Image.fromarray(255 - upper if header.is_inverted else upper)
    if header.is_transparent:
        gray.putalpha(Image.fromarray((values != image.info["transparency"]).astype(np.uint8) * 255))
    return gray
