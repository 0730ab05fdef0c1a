"""Convert image files to bytes that TensorFlow and Pillow decode to the same pixels, or reject them.

Neither library applies the EXIF orientation while decoding, and they disagree about palettes, transparency,
16 bits, CMYK and wrong checksums: hence the rules in ``whitelist``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfshards.prep.imaging import depth, jpeg
from tfshards.prep.imaging.convert import REDUCING_GAP, Conversions, convert, orientation_of
from tfshards.prep.imaging.formats import HEAD_BYTES, format_named, format_of, image_shape
from tfshards.prep.imaging.masks import SIDEWAYS, Geometry, check_format, mask_turn, white_number
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.pillow import Image, UnidentifiedImageError, formats, one_at_a_time, opened
from tfshards.prep.imaging.whitelist import Header, ImageError, check_limits, check_pixels, is_kept, notes_of
from tfshards.schemas.reasons import Reason

# The tag of a TIFF for its compression, and the values of it for fax.
_COMPRESSION, _FAX = 259, (2, 3, 4, 32771)


@dataclass(frozen=True)
class Normalized:
    """An accepted image: its bytes, and names of conversions and properties that the manifest counts."""

    data: bytes
    conversions: tuple[str, ...] = ()
    # how its pixels were turned; None if they were not checked
    turned: Geometry | None = None

    @property
    def view(self) -> Geometry | None:
        """The geometry of the pixels; of an image that was not checked, None if it is not easy to read."""
        if self.turned is not None:
            return self.turned
        height, width, _ = image_shape(self.data) or (None, None, 3)
        return None if height is None or width is None else Geometry((width, height))


def normalize(
    data: bytes, options: ImageOptions, suffix: bytes = b"", images: Sequence[Geometry] = ()
) -> Normalized:
    """Return ``data`` itself if TensorFlow and Pillow decode it to the same pixels, else re-encode the image.

    Args:
        data: content of the file.
        options: how to convert and check it.
        suffix: of the file's name, lowercase, with the dot; the content takes precedence.
        images: those that a mask may belong to; it is turned like them, and has their size.

    Raises:
        ImageError: the image is rejected.
    """
    if options.check == "none":
        return Normalized(data)
    if not data:
        raise ImageError(Reason.EMPTY, "the file has no bytes")
    built = jpeg.structure(data) if data.startswith(jpeg.START) else None
    kept = _kept_jpeg(built, data, options, suffix) if built and not options.mask else None
    if kept is not None:
        return kept
    try:
        with opened(data, max_pixels=options.max_pixels) as image:
            return _keep_or_convert(image, built, data, options, suffix, images)
    except ImageError:
        raise
    except Image.DecompressionBombError as error:
        raise ImageError(Reason.TOO_LARGE, str(error)) from None
    except UnidentifiedImageError:
        found = format_of(data[:HEAD_BYTES])
        if found is not None and found.name == "HEIF" and "HEIF" not in formats():
            raise ImageError(Reason.UNSUPPORTED, "HEIC; install tfshards[heic] to read it") from None
        known = ", ".join(formats())
        raise ImageError(
            Reason.UNREADABLE, f"starts with {data[:8].hex(' ')}, opens as none of {known}"
        ) from None
    except Exception as error:  # Pillow's decoders raise almost anything for damaged bytes
        detail = f"{type(error).__name__}: {error}".strip()
        raise ImageError(Reason.DAMAGED, detail.encode("unicode_escape").decode()) from None


def _kept_jpeg(built: jpeg.Structure, data: bytes, options: ImageOptions, suffix: bytes) -> Normalized | None:
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
        check_limits(header, options)
        check_pixels(header, data)
        if not is_kept(header, data, options):
            return None
        # The whole stream is decoded, but only gray pixels of an eighth of the size: half the cost.
        eighth = (-(-size[0] // 8), -(-size[1] // 8))
        with one_at_a_time(size):
            # arguments of the decoder: output mode, color space of the input (as stated in it), scale
            Image.frombytes("L", eighth, data, "jpeg", "L", "", 8, 0)
    except (ImageError, OSError, ValueError):
        return None
    return Normalized(data, tuple(notes_of(header, suffix)), Geometry(size))


def _keep_or_convert(
    image: Image.Image,
    built: jpeg.Structure | None,
    data: bytes,
    options: ImageOptions,
    suffix: bytes,
    images: Sequence[Geometry],
) -> Normalized:
    row = format_named("JPEG" if built else image.format)
    header = Header(
        row.name or str(image.format),
        image.mode,
        image.size,
        1 if row.has_one_picture else getattr(image, "n_frames", 1),
        bool(image.info.get("icc_profile")),
        "transparency" in image.info,
        built,
    )
    check_limits(header, options)
    if options.mask:
        check_format(image)
    notes = list(notes_of(header, suffix))
    if not options.mask and depth.has_deep_colors(image):
        if options.depth != 8:
            raise ImageError(
                Reason.UNSUPPORTED,
                f"{image.format} of mode {image.mode} with more than 8 bits per sample: only gray without "
                "alpha is stored with 16; 'tfshards build arrays' stores color",
            )
        notes.append("16 bits of color to 8")
    white = white_number(image, data) if options.mask else None
    view, turn = _turned(image, options, images)
    size = options.size.size(*view.upright) if options.size else view.upright
    keeps = view.orientation == 1 and size == image.size and is_kept(header, data, options)
    check_pixels(header, data)
    if getattr(image, "tag_v2", {}).get(_COMPRESSION) in _FAX:
        # libtiff makes up missing rows
        detail = "fax-compressed, so that missing rows go unnoticed; convert it"
        raise ImageError(Reason.UNSUPPORTED, detail)
    if keeps:
        # The whole JPEG stream is decoded, but only gray pixels of an eighth of the size: half the cost.
        image.draft("L", (max(1, image.width // 8), max(1, image.height // 8)))
        with one_at_a_time(image.size):
            image.load()
        return Normalized(data, tuple(notes), view)
    if size != view.upright and not options.mask:
        wide, high = (REDUCING_GAP * side for side in size)
        image.draft(None, (high, wide) if turn in SIDEWAYS else (wide, high))
    steps = Conversions(view.orientation, turn, size, white)
    with one_at_a_time(image.size):
        encoded = convert(image, options, steps, notes)
    return Normalized(encoded, (*notes, "re-encoded"), view)


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
