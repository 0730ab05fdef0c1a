"""Turn, resize and re-encode the pixels of an image, in the channels and the depth that are stored."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tfshards.prep.imaging import depth
from tfshards.prep.imaging.masks import class_numbers, unscaled
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.pillow import Image, one_at_a_time
from tfshards.prep.imaging.whitelist import ImageError, check_side, check_size
from tfshards.schemas import pixel_files
from tfshards.schemas.reasons import Reason

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
            raise ImageError(Reason.UNSUPPORTED, "mode F: has values outside of 0 (black) to 1 (white)")
        return Image.fromarray(np.rint(values * 255).astype(np.uint8))
    # a TIFF states how many bits it has; Pillow has PGM with more than 8 in 32
    num_bits = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, (16,))[0]
    note("16 bits to 8" if num_bits <= 16 else "32 bits to 8")
    if image.mode == "I" and not ((values >= 0) & (values <= 0xFFFF)).all():
        raise ImageError(Reason.UNSUPPORTED, "mode I: has values outside of 0 (black) to 65535 (white)")
    # a TIFF may have 12 bits, which Pillow puts into the lower bits
    used = num_bits if image.mode == "I;16" else 16
    gray = Image.fromarray((values >> used - 8).astype(np.uint8))
    if "transparency" in image.info:
        gray.putalpha(Image.fromarray((values != image.info["transparency"]).astype(np.uint8) * 255))
    return gray


_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# A JPEG is decoded at the smallest scale whose sides have at least this many times the requested pixels.
REDUCING_GAP = 3
# For photos, files are as small as with zlib-ng's default level 6, in less than half the time.
PNG_LEVEL = 3


class Conversions(NamedTuple):
    """What is done with decoded pixels; for ``white`` see ``white_number``."""

    # the EXIF orientation that is applied to the pixels in the file, and to those that Pillow decodes
    orientation: int
    turn: int
    # width and height of the stored image
    size: tuple[int, int]
    white: int | None


def convert(image: Image.Image, options: ImageOptions, steps: Conversions, notes: list[str]) -> bytes:
    """Return the re-encoded image, and add the names of its conversions to ``notes``."""
    was_jpeg = image.format in ("JPEG", "MPO")
    image.load()
    # what was decoded may have another size than the header states
    check_size(image.size, options)
    if options.depth != 8 and depth.is_deep_gray(image):
        picture = _deep_gray(image, options, steps.white, notes.append)
    elif options.mask:
        picture = class_numbers(image, steps.white)
    else:
        picture = with_channels(image, options, notes.append)
    if steps.orientation != 1:
        notes.append("orientation applied")
    if steps.turn != 1:
        picture = turned_upright(picture, steps.turn)
    if steps.size != picture.size:
        picture = _resized(picture, steps.size, options)
        notes.append("resized")
    else:
        was_jpeg = False
    if picture.mode != "I;16" and (options.depth == 16 or (options.depth == "keep" and options.mask)):
        picture = _with_sixteen_bits(picture, options, notes.append)
    return _encode(picture, options, was_jpeg)


def _deep_gray(
    image: Image.Image, options: ImageOptions, white: int | None, note: Callable[[str], None]
) -> Image.Image:
    """Return a gray picture of 16 bits; for ``white`` see ``white_number``."""
    values = depth.gray_samples(image)
    if options.mask:
        return Image.fromarray(unscaled(values, white, depth.WHITE).astype(np.uint16))
    if "transparency" in image.info:
        if options.alpha != "drop":
            raise ImageError(
                Reason.UNSUPPORTED,
                f"mode {image.mode} with a transparent value: with 16 bits, alpha is not stored or blended; "
                "alpha='drop' keeps the value",
            )
        note("alpha dropped")
    return Image.fromarray(values)


def _resized(picture: Image.Image, size: tuple[int, int], options: ImageOptions) -> Image.Image:
    if options.mask:
        return picture.resize(size, Image.Resampling.NEAREST)
    if picture.mode == "I;16":
        return Image.fromarray(depth.resized(np.atleast_3d(np.asarray(picture)), size)[:, :, 0])
    return picture.resize(size, Image.Resampling.LANCZOS, reducing_gap=REDUCING_GAP)


def _with_sixteen_bits(
    picture: Image.Image, options: ImageOptions, note: Callable[[str], None]
) -> Image.Image:
    """Return a picture of 8 bits per sample with 16; the values of a mask are not scaled."""
    values = np.asarray(picture).astype(np.uint16)
    if options.mask:
        return Image.fromarray(values)
    if picture.mode != "L":
        raise ImageError(
            Reason.UNSUPPORTED,
            f"{picture.mode} with 8 bits per sample: depth=16 stores gray images, channels=1 converts to "
            "gray, and depth='keep' stores 8 bits as they are",
        )
    note("8 bits to 16")
    return Image.fromarray(values * np.uint16(depth.WHITE // 0xFF))


def _encode(picture: Image.Image, options: ImageOptions, was_jpeg: bool) -> bytes:
    # drop the color profile and the transparent color of the original file
    picture.info = {}
    encoded = io.BytesIO()
    as_jpeg = options.format == "jpeg" or (
        options.format == "keep" and (was_jpeg or options.jpeg_quality is not None)
    )
    if as_jpeg and picture.mode in ("L", "RGB"):
        check_side(picture.size, "jpeg")
        picture.save(encoded, "JPEG", quality=options.quality)
    elif options.format == "pixels":
        check_side(picture.size, "pixels")
        return pixel_files.encode(np.asarray(picture))
    else:
        picture.save(encoded, "PNG", compress_level=PNG_LEVEL)
    return encoded.getvalue()


def turned_upright(picture: Image.Image, orientation: int) -> Image.Image:
    """Return a picture turned upright by an EXIF orientation from 2 to 8."""
    return picture.transpose(_TURNS[orientation])


def orientation_of(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; 1 if it is missing or cannot be read."""
    if image.format == "PNG":
        # EXIF may follow the pixels; faults of the pixels are raised here rather than ignored below
        with one_at_a_time(image.size):
            image.load()
    try:
        found = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # damaged EXIF is ignored: the pixels may be sound
        return 1
    return found if found in _TURNS else 1
