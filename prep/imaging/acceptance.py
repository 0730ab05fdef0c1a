"""Acceptance: the rules by which opened images are rejected, or accepted and stored unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tfshards.prep.imaging import jpeg, png
from tfshards.prep.imaging.formats import format_named
from tfshards.prep.imaging.options import LONGEST, MAX_FRAMES, MAX_SIDE, Channels, ImageOptions
from tfshards.prep.imaging.pillow import Header, Image
from tfshards.prep.imaging.reasons import ImageError, Reason

# By format and by the channels of the options: the modes that both decoders decode to the same pixels.
_KEPT_MODES: Mapping[str, Mapping[Channels, tuple[str, ...]]] = {
    "JPEG": {1: ("L",), 3: ("L", "RGB"), 4: ()},
    "PNG": {1: ("1", "L"), 3: ("1", "L", "RGB"), 4: ("L", "RGB", "RGBA")},
}
# The most scans of a progressive JPEG, each a pass over it.
_MAX_SCANS = 100
# Compressions of TIFF by their numbers. For fax and JPEG, libtiff makes up missing pixels.
_UNSURE = {2: "fax", 3: "fax", 4: "fax", 7: "JPEG", 32771: "fax"}
# Old JPEG and WebP mix the numbers of a mask.
_LOSSY = (6, 50001)


def check_size(size: tuple[int, int], options: ImageOptions) -> None:
    """Raise ImageError if an image of this width and height has too many pixels."""
    sides = f"{size[0]} x {size[1]} pixels"
    if size[0] * size[1] > options.max_pixels:
        raise ImageError(Reason.TOO_LARGE, f"{sides}; at most {options.max_pixels}")
    if max(size) > MAX_SIDE:
        # the limit of libpng, which TensorFlow uses
        raise ImageError(Reason.TOO_LARGE, f"{sides}; no side above {MAX_SIDE}")


def check_side(size: tuple[int, int], name: str) -> None:
    """Raise ImageError if a picture of this width and height cannot be written in the format ``name``."""
    if max(size) > LONGEST[name]:
        sides = f"{size[0]} x {size[1]} pixels"
        raise ImageError(Reason.TOO_LARGE, f"{sides}; no side of a {name} image above {LONGEST[name]}")


def check_header(image: Header, options: ImageOptions) -> None:
    """Raise ImageError if a limit is exceeded, or what the file has can neither be stored nor counted."""
    check_size(image.size, options)
    if image.num_frames > 1 and options.animation == "reject":
        what = "pages" if image.format == "TIFF" else "frames"
        raise ImageError(
            Reason.ANIMATED, f"has {image.num_frames} {what}; animation='first' stores the first one"
        )
    if image.num_frames > MAX_FRAMES:
        raise ImageError(Reason.TOO_LARGE, f"{image.num_frames} frames; at most {MAX_FRAMES}")
    if image.built and image.built.num_scans > _MAX_SCANS:
        raise ImageError(Reason.TOO_LARGE, f"{image.built.num_scans} scans; at most {_MAX_SCANS}")
    fault = _loss(image, options)
    if fault:
        raise ImageError(Reason.UNSUPPORTED, fault)


def _loss(image: Header, options: ImageOptions) -> str | None:
    """Return what would be lost of an image, and what keeps it, or None."""
    if image.compression in _UNSURE:
        name = _UNSURE[image.compression]
        return f"TIFF with {name} inside, whose missing pixels go unnoticed; save it with another compression"
    if image.format == "TIFF" and image.bits == 12:
        return "TIFF of 12 bits; save it with 16"
    if image.mode == "F":
        return "floating point numbers; 'tfshards build arrays' stores arrays of them as float32"
    if image.depth == "gray" and image.bits > 16 and not options.mask and options.depth == 8:
        return f"{image.bits} bits, of which no file states what is white; depth=16 keeps values up to 65535"
    read = Image.getmodebands(image.mode)
    if image.num_bands > read:
        bands = f"has {image.num_bands} bands, but {image.mode} has {read}"
        return f"{bands}; 'tfshards build arrays' stores arrays of any bands"
    if options.mask and (not format_named(image.format).is_exact or image.compression in _LOSSY):
        name = "TIFF with WebP inside" if image.compression else image.format
        return f"{name} does not keep the numbers of a mask; save masks as PNG"
    if options.mask and image.format == "PPM" and image.white not in (None, 0xFF, 0xFFFF):
        # Pillow scales the numbers, and lowers those above white to white
        return f"a PGM whose white is {image.white}, neither 255 nor 65535; save masks as PNG"
    if not options.mask and options.depth != 8 and image.depth == "color":
        return (
            f"{image.format} of {image.bits} bits in mode {image.mode}: 'tfshards build arrays' stores "
            "arrays of it, depth=8 its upper bits"
        )
    return None


def check_pixels(image: Header, data: bytes) -> None:
    """Raise ImageError if the file has fewer pixels than its header states; Pillow may fill in the rest."""
    fault = jpeg.pixel_fault(data, image.built) if image.built else None
    if image.format == "PNG":
        fault = png.pixel_fault(data)
    if fault:
        raise ImageError(Reason.DAMAGED, fault)


def notes_of(image: Header) -> Iterator[str]:
    """Yield the properties of a kept or converted image that the manifest counts."""
    if image.has_profile:
        yield "color profile ignored"
    if image.num_frames > 1:
        yield "first frame"
    if image.depth == "color":
        yield "16 bits of color to 8"


def is_kept(image: Header, data: bytes, options: ImageOptions) -> bool:
    """Return whether Pillow and TensorFlow decode ``data`` to the same pixels, in the options' channels."""
    modes = _KEPT_MODES.get(image.format, {}).get(options.channels, ())
    is_png = image.format == "PNG"
    mode = "L" if is_png and image.mode == "I;16" else image.mode
    if mode not in modes or options.format not in ("keep", image.format.lower()):
        return False
    if not is_png:
        return options.depth != 16 and image.built is not None and image.built.is_plain
    if image.bits == 16:
        fits = options.depth != 8
    elif options.mask:
        # the values of a mask are not scaled, neither fewer bits by a decoder nor 8 by a loader
        fits = options.depth == image.bits
    else:
        # for fewer bits per sample, TensorFlow adds an alpha channel that is nearly transparent
        fits = options.depth != 16 and (options.channels != 4 or image.bits == 8)
    return fits and not image.is_transparent and png.is_plain(data)
