"""Convert the samples of a decoded picture to the channels and the depth that are stored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tfshards.prep.imaging import depth
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.pillow import Image
from tfshards.prep.imaging.whitelist import ImageError

_BITS_PER_SAMPLE = 258


def with_channels(image: Image.Image, options: ImageOptions, note: Callable[[str], None]) -> Image.Image:
    """Return the picture in mode L, RGB or RGBA, with 8 bits per channel."""
    picture = _with_eight_bits(image, note)
    has_alpha = picture.has_transparency_data
    is_gray = picture.mode in ("1", "L", "LA", "La")
    if picture.mode == "P":
        note("palette to RGB")
    if has_alpha:
        picture = picture.convert("RGBA")
        if options.keeps_alpha:
            return picture
        if options.alpha == "drop":
            note("alpha dropped")
        else:
            note("alpha over white")
            white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
            picture = Image.alpha_composite(white, picture)
        picture = picture.convert("RGB")
    elif picture.mode == "CMYK":
        note("CMYK to RGB")
    elif picture.mode not in ("1", "L", "P", "RGB"):
        note(f"{picture.mode} to RGB")
    if options.channels == 1 and not is_gray:
        # the name is stored in manifests and keeps its spelling
        note("colour to grey")
        is_gray = True
    if is_gray:
        # with the weights of ITU-R 601-2, which Pillow uses
        return (picture if picture.mode in ("1", "L", "RGB") else picture.convert("RGB")).convert("L")
    return picture.convert("RGB")


def with_deep_channels(
    values: depth.Samples, options: ImageOptions, note: Callable[[str], None]
) -> depth.Samples:
    """Return gray, RGB or RGBA samples, as ``with_channels`` does for 8 bits."""
    if values.shape[2] in (2, 4):
        if options.keeps_alpha:
            return values if values.shape[2] == 4 else values[:, :, [0, 0, 0, 1]]
        if options.alpha == "drop":
            note("alpha dropped")
            values = values[:, :, :-1]
        else:
            note("alpha over white")
            values = depth.over_white(values)
    if options.channels == 1 and values.shape[2] == 3:
        # the name is stored in manifests and keeps its spelling
        note("colour to grey")
        return depth.to_gray(values)
    return values


def _with_eight_bits(image: Image.Image, note: Callable[[str], None]) -> Image.Image:
    """Return the picture with 8 bits per channel.

    The upper 8 of 16 bits are used, as in TensorFlow and, for color, in Pillow. White is 65,535 for 32-bit
    integers and 1.0 for floats; a picture with values outside that range is rejected, since files do not
    state what these mean.
    """
    if image.mode == "1":
        note("1 bit to 8")
    if not (image.mode.startswith("I") or image.mode == "F"):
        return image
    values = np.asarray(image)
    if image.mode == "F":
        note("float to 8 bits")
        if not ((values >= 0) & (values <= 1)).all():
            raise ImageError("unsupported", "mode F: has values outside of 0 (black) to 1 (white)")
        return Image.fromarray(np.rint(values * 255).astype(np.uint8))
    # a TIFF states how many bits it has; Pillow has PGM with more than 8 in 32
    num_bits = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, (16,))[0]
    note("16 bits to 8" if num_bits <= 16 else "32 bits to 8")
    if image.mode == "I" and not ((values >= 0) & (values <= 0xFFFF)).all():
        raise ImageError("unsupported", "mode I: has values outside of 0 (black) to 65535 (white)")
    # a TIFF may have 12 bits, which Pillow puts into the lower bits
    used = num_bits if image.mode == "I;16" else 16
    gray = Image.fromarray((values >> used - 8).astype(np.uint8))
    if "transparency" in image.info:
        gray.putalpha(Image.fromarray((values != image.info["transparency"]).astype(np.uint8) * 255))
    return gray
