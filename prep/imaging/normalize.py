"""Convert image files to bytes that TensorFlow and Pillow decode to the same pixels, or reject them.

Neither library applies the EXIF orientation while decoding, and they disagree about palettes, transparency,
16 bits, CMYK and wrong checksums: hence the rules in ``acceptance``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tfshards.prep.imaging import jpeg
from tfshards.prep.imaging.acceptance import (
    check_header,
    check_pixels,
    is_kept,
    notes_of,
)
from tfshards.prep.imaging.convert import REDUCING_GAP, convert, orientation_of
from tfshards.prep.imaging.masks import SIDEWAYS, Geometry, mask_turn
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.pillow import (
    Header,
    Image,
    header_of,
    opened,
)
from tfshards.prep.imaging.reasons import ImageError, Reason


class Normalized(NamedTuple):
    """An accepted image.

    Attributes:
        data: the bytes to store.
        conversions: names of conversions and properties that the manifest counts.
        view: size of the image in its file, and how it was turned; None if it was not checked.
    """

    data: bytes
    conversions: tuple[str, ...]
    view: Geometry | None


def normalize(data: bytes, options: ImageOptions, images: Sequence[Geometry] = ()) -> Normalized:
    """Return ``data`` itself if TensorFlow and Pillow decode it to the same pixels, else re-encode the image.

    Args:
        data: content of the file, whose size was checked when it was read.
        options: how to convert and check it.
        images: those that a mask may belong to; it is turned like them, and has their size.

    Raises:
        ImageError: the image is rejected.
    """
    if options.check == "none":
        return Normalized(data, (), None)
    if not data:
        raise ImageError(Reason.EMPTY, "the file has no bytes")
    built = jpeg.structure(data) if data.startswith(jpeg.START) else None
    kept = _kept_jpeg(built, data, options) if built and not options.mask else None
    if kept is not None:
        return kept
    with opened(data, options.max_pixels) as image:
        header = header_of(image, data, built)
        check_header(header, options)
        notes = list(notes_of(header))
        view, turn = _turned(image, options, images)
        size = options.size.size(*view.upright) if options.size else view.upright
        keeps = view.orientation == 1 and size == image.size and is_kept(header, data, options)
        check_pixels(header, data)
        if keeps:
            # The whole JPEG stream is decoded, but only gray pixels of an eighth of the size: half the cost.
            image.draft("L", (max(1, image.width // 8), max(1, image.height // 8)))
            image.load()
            return Normalized(data, tuple(notes), view)
        if size != view.upright and not options.mask:
            wide, high = (REDUCING_GAP * side for side in size)
            image.draft(None, (high, wide) if turn in SIDEWAYS else (wide, high))
        encoded = convert(image, header, options, notes, turn=turn, size=size)
    turned = ("orientation applied",) if view.orientation != 1 else ()
    return Normalized(encoded, (*notes, *turned, "re-encoded"), view)


def _kept_jpeg(built: jpeg.Structure, data: bytes, options: ImageOptions) -> Normalized | None:
    """Return a JPEG that can be kept without opening it with Pillow, or None for the complete check.

    This is a shortcut for the most common files: Pillow's parser takes a sixth of the time of the check. It
    reports no faults; every file that is not kept takes the general path, which finds and names them.
    """
    if built.header is None:
        return None
    header = Header("JPEG", *built.header, built=built)
    size = header.size
    if options.size and options.size.size(*size) != size:
        return None
    try:
        check_header(header, options)
        check_pixels(header, data)
        if not is_kept(header, data, options):
            return None
        # The whole stream is decoded, but only gray pixels of an eighth of the size: half the cost.
        eighth = (-(-size[0] // 8), -(-size[1] // 8))
        # arguments of the decoder: output mode, color space of the input (as stated in it), scale
        Image.frombytes("L", eighth, data, "jpeg", "L", "", 8, 0)
    except (ImageError, OSError, ValueError):
        return None
    return Normalized(data, tuple(notes_of(header)), Geometry(size))


def _turned(image: Image.Image, options: ImageOptions, images: Sequence[Geometry]) -> tuple[Geometry, int]:
    """Return the view of an image, and the EXIF orientation to apply to the pixels that Pillow decodes."""
    # Pillow turns a TIFF as it decodes it, and reports the size of the turned pixels
    is_tiff = image.format == "TIFF"
    tag = orientation_of(image)
    raw = image.size[::-1] if is_tiff and tag in SIDEWAYS else image.size
    view = Geometry(raw, tag)
    if options.mask and images:
        # at most one of them turns
        view = Geometry(raw, max(tag, mask_turn(view, images)))
    return view, 1 if is_tiff and tag != 1 else view.orientation
