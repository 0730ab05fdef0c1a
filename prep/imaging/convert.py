"""Turn, resize and re-encode the pixels of an image."""

from __future__ import annotations

import io
from typing import NamedTuple

import numpy as np

from tfshards.prep.imaging import depth
from tfshards.prep.imaging.channels import with_channels, with_deep_channels
from tfshards.prep.imaging.masks import class_numbers, unscaled
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.pillow import Image, one_at_a_time
from tfshards.prep.imaging.whitelist import ImageError, check_side, check_size

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
_PNG_LEVEL = 3


class Steps(NamedTuple):
    """What is done with decoded pixels.

    Attributes:
        orientation: the EXIF orientation that is applied to the pixels in the file.
        turn: the EXIF orientation that is applied to the pixels that Pillow decodes.
        size: width and height of the stored image.
        white: the number that Pillow decodes to white, if this is a mask; see ``white_number``.
        exif: EXIF data to store: the orientation, if it is not applied.
    """

    orientation: int
    turn: int
    size: tuple[int, int]
    white: int | None
    exif: bytes


def convert(image: Image.Image, options: ImageOptions, steps: Steps, notes: list[str]) -> bytes:
    """Return the re-encoded image, and add the names of its conversions to ``notes``."""
    was_jpeg = image.format in ("JPEG", "MPO")
    image.load()
    # the header of an icon may state another size than its image has
    check_size(image, options)
    if options.mask:
        picture = class_numbers(image, steps.white)
    else:
        picture = with_channels(image, options, notes.append)
    if steps.orientation != 1:
        notes.append("orientation applied")
    if steps.turn != 1:
        picture = turned_upright(picture, steps.turn)
    if steps.size != picture.size:
        if options.mask:
            picture = picture.resize(steps.size, Image.Resampling.NEAREST)
        else:
            picture = picture.resize(steps.size, Image.Resampling.LANCZOS, reducing_gap=REDUCING_GAP)
        notes.append("resized")
    else:
        was_jpeg = False
    if options.depth == 16 or (options.depth == "keep" and options.mask):
        return _encode_deep(picture, options, notes, steps.exif)
    return _encode(picture, options, was_jpeg, steps.exif)


def orientation_only(image: Image.Image) -> bytes:
    """Return EXIF data with only the orientation of an image; none if it is upright."""
    orientation = orientation_of(image)
    if orientation == 1:
        return b""
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    return exif.tobytes()


def _encode_deep(picture: Image.Image, options: ImageOptions, notes: list[str], exif: bytes) -> bytes:
    """Return a picture of 8 bits per sample as PNG with 16; the values of a mask are not scaled."""
    values = np.atleast_3d(np.asarray(picture.convert("L") if picture.mode == "1" else picture))
    if options.mask:
        return depth.encode_png(values.astype(np.uint16), exif)
    notes.append("8 bits to 16")
    return depth.encode_png(values * np.uint16(depth.WHITE // 0xFF), exif)


def convert_deep(
    values: depth.Samples, image: Image.Image, options: ImageOptions, steps: Steps, notes: list[str]
) -> bytes:
    """Return an image with more than 8 bits per sample as PNG with 16, and add to ``notes``."""
    check_size(image, options)
    if options.mask:
        if not image.mode.startswith("I"):
            raise ImageError("unsupported", f"mode {image.mode}: a mask has one channel")
        values = unscaled(values[:, :, :1], steps.white, depth.WHITE).astype(np.uint16)
    else:
        values = with_deep_channels(values, options, notes.append)
    if steps.orientation != 1:
        notes.append("orientation applied")
    if steps.turn != 1:
        values = depth.turned(values, steps.turn)
    if steps.size != (values.shape[1], values.shape[0]):
        values = depth.nearest(values, steps.size) if options.mask else depth.resized(values, steps.size)
        notes.append("resized")
    return depth.encode_png(values, steps.exif)


def _encode(picture: Image.Image, options: ImageOptions, was_jpeg: bool, exif: bytes) -> bytes:
    # drop the color profile and the transparent color of the original file
    picture.info = {}
    encoded = io.BytesIO()
    as_jpeg = options.format == "jpeg" or (
        options.format == "keep" and (was_jpeg or options.jpeg_quality is not None)
    )
    if as_jpeg and picture.mode in ("L", "RGB"):
        check_side(picture.size, "jpeg")
        picture.save(encoded, "JPEG", quality=options.quality, exif=exif)
    elif options.format == "webp":
        check_side(picture.size, "webp")
        picture.save(encoded, "WEBP", lossless=True, exif=exif)
    else:
        picture.save(encoded, "PNG", compress_level=_PNG_LEVEL, **({"exif": exif} if exif else {}))
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
