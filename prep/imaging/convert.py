"""Turn, resize and encode the pixels of an image, in the channels and the depth that are stored.

Pillow has no pictures of several channels of 16 bits: it drops the lower byte of each sample. So only gray
ones are stored with 16 bits.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tfshards.prep.imaging.acceptance import check_side, check_size
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.pillow import Header, Image, Picture
from tfshards.prep.imaging.reasons import ImageError, Reason
from tfshards.schemas import pixel_files

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
# Of 16 bits.
_WHITE = 0xFFFF
# Modes that PNG has, and the EXIF data with it; others are stored as TIFF.
_IN_PNG = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")


def convert(
    image: Image.Image,
    header: Header,
    options: ImageOptions,
    notes: list[str],
    *,
    turn: int,
    size: tuple[int, int],
) -> bytes:
    """Return the re-encoded image, and add the names of its conversions to ``notes``.

    Args:
        image: as it was opened.
        header: what it states.
        options: how to convert it.
        notes: where the names of conversions go.
        turn: the EXIF orientation to apply to the pixels that Pillow decodes.
        size: width and height of the stored image.
    """
    image.load()
    # what is decoded may have another size than stated; drafts of JPEG are smaller, and TIFF is turned
    if image.size != header.size and header.format not in ("JPEG", "TIFF"):
        sizes = " x ".join(map(str, image.size)), " x ".join(map(str, header.size))
        raise ImageError(Reason.DAMAGED, f"{sizes[0]} pixels are decoded, but its header states {sizes[1]}")
    check_size(image.size, options)
    _check_sign(image, header)
    is_deep = options.depth == 16
    if options.mask:
        picture = _class_numbers(image, header, is_deep=is_deep)
    elif header.depth != "gray":
        picture = _with_channels(image, options, notes.append)
    elif is_deep:
        if header.is_transparent:
            detail = "16 bits with a transparent value: depth=8 blends it, 'tfshards build arrays' keeps 16"
            raise ImageError(Reason.UNSUPPORTED, detail)
        values = _gray_values(image)
        picture = Image.fromarray(_WHITE - values if header.is_inverted else values)
    else:
        picture = _with_channels(_with_eight_bits(image, header, notes.append), options, notes.append)
    if turn != 1:
        picture = turned_upright(picture, turn)
    resizes = size != picture.size
    if resizes:
        picture = _resized(picture, size, options)
        notes.append("resized")
    if is_deep and picture.mode != "I;16":
        picture = _with_sixteen_bits(picture, options, notes.append)
    return _encode(picture, options, is_photo=resizes and header.format == "JPEG")


def _class_numbers(image: Image.Image, header: Header, *, is_deep: bool) -> Image.Image:
    """Return a loaded mask as a picture of its numbers in the file: palette indices or gray.

    Args:
        image: the mask, loaded.
        header: of its file.
        is_deep: whether numbers may have 16 bits.
    """
    if image.mode == "P":
        return Image.fromarray(np.asarray(image))
    if is_deep and header.depth == "gray":
        return Image.fromarray(_gray_values(image))
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


def _gray_values(image: Image.Image) -> npt.NDArray[np.uint16]:
    """Return the values of a loaded gray image with more than 8 bits per sample, shape (height, width).

    Raises:
        ImageError: they do not fit 16 bits.
    """
    values = np.asarray(image)
    if not ((values >= 0) & (values <= _WHITE)).all():
        raise ImageError(Reason.UNSUPPORTED, f"mode {image.mode}: has values outside of 0 to {_WHITE}")
    return values.astype(np.uint16)


def _with_eight_bits(image: Image.Image, header: Header, note: Callable[[str], None]) -> Image.Image:
    """Return the upper 8 bits of a gray image with more, as TensorFlow and, for color, Pillow do."""
    note("16 bits to 8")
    values = _gray_values(image)
    upper = (values >> 8).astype(np.uint8)
    gray = Image.fromarray(255 - upper if header.is_inverted else upper)
    if header.is_transparent:
        gray.putalpha(Image.fromarray((values != image.info["transparency"]).astype(np.uint8) * 255))
    return gray


def _check_sign(image: Image.Image, header: Header) -> None:
    """Raise ImageError if Pillow has decoded negative numbers of 8 bits as positive ones."""
    if header.is_signed and image.mode == "L" and np.asarray(image).max(initial=0) > 0x7F:
        detail = "signed 8 bits with negative values; 'tfshards build arrays' stores arrays of int8"
        raise ImageError(Reason.UNSUPPORTED, detail)


def _with_channels(picture: Image.Image, options: ImageOptions, note: Callable[[str], None]) -> Image.Image:
    """Return a picture of 8 bits per channel in mode L, RGB or RGBA."""
    has_alpha = picture.has_transparency_data
    is_gray = picture.mode in ("1", "L", "LA", "La")
    if picture.mode == "1":
        note("1 bit to 8")
    elif picture.mode == "P":
        note("palette to RGB")
    if has_alpha:
        # Pillow would copy one that is RGBA already
        picture = picture if picture.mode == "RGBA" else picture.convert("RGBA")
        if options.channels == 4:
            return picture
        note("alpha over white")
        white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
        picture = Image.alpha_composite(white, picture).convert("RGB")
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


def _resized(picture: Image.Image, size: tuple[int, int], options: ImageOptions) -> Image.Image:
    if options.mask:
        return picture.resize(size, Image.Resampling.NEAREST)
    if picture.mode == "I;16":
        exact = Image.fromarray(np.asarray(picture).astype(np.float32))
        values = np.asarray(exact.resize(size, Image.Resampling.LANCZOS))
        return Image.fromarray(np.rint(values).clip(0, _WHITE).astype(np.uint16))
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
            f"{picture.mode}, but depth=16 stores gray: channels=1 converts to it",
        )
    note("8 bits to 16")
    return Image.fromarray(values * np.uint16(_WHITE // 0xFF))


def _encode(picture: Image.Image, options: ImageOptions, *, is_photo: bool) -> bytes:
    # drop the color profile and the transparent color of the original file
    picture.info = {}
    encoded = io.BytesIO()
    as_jpeg = options.format == "jpeg" or (
        options.format == "keep" and (is_photo or options.jpeg_quality is not None)
    )
    if as_jpeg and picture.mode in ("L", "RGB"):
        check_side(picture.size, "jpeg")
        picture.save(encoded, "JPEG", quality=options.quality)
    elif options.format == "pixels":
        check_side(picture.size, "pixels")
        return pixel_files.encode(np.asarray(picture))
    else:
        picture.save(encoded, "PNG", compress_level=_PNG_LEVEL)
    return encoded.getvalue()


def encoded_picture(picture: Picture) -> bytes:
    """Return a picture as PNG, or as TIFF if PNG does not have its mode; its EXIF orientation stays.

    Raises:
        OSError, ValueError: its file is damaged, or no format has its mode.
    """
    file = io.BytesIO()
    picture.load()
    # in a TIFF, Pillow would take the orientation as the file's
    exif = {"exif": picture.info["exif"]} if picture.info.get("exif") else {}
    if picture.mode in _IN_PNG:
        picture.save(file, "PNG", compress_level=_PNG_LEVEL, **exif)
    else:
        picture.save(file, "TIFF", **exif)
    return file.getvalue()


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


def turned_upright(picture: Image.Image, orientation: int) -> Image.Image:
    """Return a picture turned upright by an EXIF orientation from 2 to 8."""
    return picture.transpose(_TURNS[orientation])


def orientation_of(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; 1 if it is missing or cannot be read."""
    if image.format == "PNG":
        # EXIF may follow the pixels; faults of the pixels are raised here rather than ignored below
        image.load()
    try:
        found = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # damaged EXIF is ignored: the pixels may be sound
        return 1
    return found if found in _TURNS else 1
