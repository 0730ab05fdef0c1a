"""Image bytes that TensorFlow decodes to what Pillow shows: kept, re-encoded, or rejected with a reason.

The one file that imports Pillow. Neither library applies the EXIF orientation while decoding, and they
disagree about palettes, transparency, 16 bits, CMYK and broken checksums: hence the whitelist below.
"""

from __future__ import annotations

import io
import threading
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast, get_args

import PIL
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from tfshards.prep import jpeg, png
from tfshards.schemas import OptionsError

PILLOW_VERSION = PIL.__version__

Check = Literal["decode", "header", "none"]

# By suffix, so that listing a folder reads no file; and only decoders that execute nothing.
SUFFIXES = {
    b".jpg": "JPEG",
    b".jpeg": "JPEG",
    b".jpe": "JPEG",
    b".jfif": "JPEG",
    b".png": "PNG",
    b".webp": "WEBP",
    b".gif": "GIF",
    b".bmp": "BMP",
    b".tif": "TIFF",
    b".tiff": "TIFF",
}
_FORMATS = sorted(set(SUFFIXES.values()))
_MAX_PIXELS = 89_000_000
# libpng, which TensorFlow reads with, takes no longer side.
_MAX_SIDE = 1_000_000
_ORIENTATION = 0x0112


@dataclass(eq=False)
class ImageError(Exception):
    """Why an image is rejected.

    Attributes:
        reason: one of ``empty``, ``unreadable``, ``damaged``, ``too large``, ``animated``, ``unsupported``.
        detail: for people; free of control characters.
    """

    reason: str
    detail: str


def check_option(check: str) -> Check:
    """Return ``check`` if it is allowed, else raise OptionsError."""
    if check not in get_args(Check):
        raise OptionsError(f"--check {check}: must be one of {', '.join(get_args(Check))}")
    return cast("Check", check)


def normalise(data: bytes, check: Check) -> bytes:
    """Return ``data`` itself if TensorFlow decodes it to what Pillow shows, else the same picture as a PNG.

    Args:
        data: the file's bytes.
        check: ``decode`` decodes every image, ``header`` only those that are re-encoded; ``none`` returns
            ``data`` as it is.

    Raises:
        ImageError: the image is rejected.
    """
    if check == "none":
        return data
    if not data:
        raise ImageError("empty", "the file has no bytes")
    try:
        with _own_settings, Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            return _keep_or_convert(image, data, check)
    except ImageError:
        raise
    except Image.DecompressionBombError as error:
        raise ImageError("too large", str(error)) from None
    except UnidentifiedImageError:
        known = ", ".join(_FORMATS)
        raise ImageError("unreadable", f"starts with {data[:8].hex(' ')}, opens as none of {known}") from None
    except Exception as error:  # Pillow's decoders raise almost anything for damaged bytes
        raise ImageError(
            "damaged", f"{type(error).__name__}: {error}".encode("ascii", "replace").decode()
        ) from None


def _keep_or_convert(image: Image.Image, data: bytes, check: Check) -> bytes:
    if image.width * image.height > _MAX_PIXELS:
        raise ImageError("too large", f"{image.width} x {image.height} pixels; at most {_MAX_PIXELS}")
    if max(image.size) > _MAX_SIDE:
        raise ImageError("too large", f"{image.width} x {image.height} pixels; no side above {_MAX_SIDE}")
    # An MPO file is a JPEG with more of them behind it, such as a camera's previews; all show the first.
    if image.format != "MPO" and getattr(image, "n_frames", 1) > 1:
        raise ImageError("animated", f"has {image.n_frames} frames")  # type: ignore[attr-defined]
    agree = _both_agree(image, data)
    if image.format == "PNG" and (check == "decode" or not agree):
        fault = png.pixel_fault(data)
        if fault:
            raise ImageError("damaged", fault)
    if agree:
        if check == "decode":
            # At an eighth of the size the whole JPEG stream is still read, at half the cost.
            image.draft(None, (max(1, image.width // 8), max(1, image.height // 8)))
            image.load()
        return data
    upright = ImageOps.exif_transpose(image)
    encoded = io.BytesIO()
    _to_rgb(upright).save(encoded, "PNG")
    return encoded.getvalue()


def _both_agree(image: Image.Image, data: bytes) -> bool:
    """Whether Pillow and TensorFlow decode these bytes to the same upright pixels."""
    if image.getexif().get(_ORIENTATION, 1) not in (0, 1):
        return False
    if image.format in ("JPEG", "MPO"):
        return image.mode in ("L", "RGB") and jpeg.is_plain(data)
    if image.format == "PNG":
        return image.mode in ("1", "L", "RGB") and "transparency" not in image.info and png.is_plain(data)
    return False


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        # convert() would clip at 255
        raise ImageError("unsupported", f"mode {image.mode}: more than 8 bits a channel")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        opaque = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(opaque, image).convert("RGB")
    return image.convert("L" if image.mode in ("1", "L") else "RGB")


def describe(data: bytes) -> str:
    """Return format, size and mode of encoded image bytes, for people."""
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            return f"{image.format} {image.width} x {image.height}, mode {image.mode}"
    except (OSError, ValueError, Image.DecompressionBombError):
        return "no image that can be read"


@dataclass
class _OwnSettings:
    """While any thread is inside, Pillow does not warn, and accepts the same whatever the process has set.

    All that it warns about is decided here. ``catch_warnings`` alone is for one thread: several restore each
    other's filters and leave them changed.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    num_inside: int = 0
    others: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> None:
        with self.lock:
            if self.num_inside == 0:
                self.others.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
                # training scripts like to set the first
                for holder, name, value in (
                    (ImageFile, "LOAD_TRUNCATED_IMAGES", False),
                    (Image, "MAX_IMAGE_PIXELS", _MAX_PIXELS),
                ):
                    self.others.callback(setattr, holder, name, getattr(holder, name))
                    setattr(holder, name, value)
            self.num_inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.num_inside -= 1
            if self.num_inside == 0:
                self.others.close()


_own_settings = _OwnSettings()


# For those who hand pictures on without importing Pillow.
Picture: TypeAlias = Image.Image

# What an audit reads: only decoders that execute nothing.
_GLANCED = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")
_MAX_GLANCED_PIXELS = 89_000_000


def glance(data: bytes, side: int) -> tuple[tuple[int, int], Picture | None]:
    """Return an image's (width, height) in pixels and a grey copy of it, ``side`` pixels wide and high.

    With a side of 0 there is no copy, and no pixel is decoded. A JPEG is decoded at the smallest scale that
    has twice the side.

    Raises:
        ValueError: the image cannot be decoded; it says why, without control characters.
    """
    try:
        with Image.open(io.BytesIO(data), formats=_GLANCED) as image:
            size = image.size
            if not side:
                return size, None
            if size[0] * size[1] > _MAX_GLANCED_PIXELS:
                raise ValueError(f"{size[0]} x {size[1]} pixels; at most {_MAX_GLANCED_PIXELS}")
            image.draft("L", (2 * side, 2 * side))
            return size, image.convert("L").resize((side, side), Image.Resampling.LANCZOS)
    except UnidentifiedImageError:
        raise ValueError(f"opens as none of {', '.join(_GLANCED)}") from None
    except Exception as error:  # Pillow's decoders raise almost anything for damaged bytes
        raise ValueError(str(error).encode("unicode_escape").decode()) from None
