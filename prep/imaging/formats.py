"""The table of image formats: how files are recognized, stored unchanged, and measured by their headers."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TypeAlias

from tfshards.prep.imaging import jpeg, png
from tfshards.schemas import pixel_files


@dataclass(frozen=True)
class ImageFormat:
    """One format.

    Attributes:
        name: Pillow's name for it.
        suffixes: suffixes of file names, lowercase, with the dot.
        start: a regular expression of the first bytes, if these identify the format with certainty. Those of
            BMP and PPM are so short that any file may begin with them. Camera raw files begin like TIFF.
        is_decoded_by_loader: whether TensorFlow decodes it.
        has_one_picture: whether further frames in a file are previews or alternatives of its only picture.
        is_exact: whether the numbers of a mask stay as they were saved: a lossy format mixes them.
        may_be_deep: whether samples may have more than 8 bits.
    """

    name: str
    suffixes: tuple[bytes, ...]
    start: bytes | None = None
    is_decoded_by_loader: bool = False
    has_one_picture: bool = False
    is_exact: bool = False
    may_be_deep: bool = False


# Only formats whose decoders execute nothing: no PostScript, no Windows metafiles, no scientific containers
# that need a plugin. Pillow tries them in this order.
FORMATS = (
    ImageFormat(
        "JPEG",
        (b".jpg", b".jpeg", b".jpe", b".jfif", b".mpo"),
        rb"\xff\xd8\xff",
        is_decoded_by_loader=True,
        has_one_picture=True,
    ),
    ImageFormat(
        "PNG",
        (b".png", b".apng"),
        rb"\x89PNG\r\n\x1a\n",
        is_decoded_by_loader=True,
        is_exact=True,
        may_be_deep=True,
    ),
    ImageFormat("WEBP", (b".webp",), rb"RIFF....WEBP", is_decoded_by_loader=True),
    ImageFormat("GIF", (b".gif",), rb"GIF8[79]a", is_decoded_by_loader=True, is_exact=True),
    ImageFormat("BMP", (b".bmp",), is_exact=True),
    ImageFormat("TIFF", (b".tif", b".tiff"), is_exact=True, may_be_deep=True),
    ImageFormat("AVIF", (b".avif",), rb"....ftyp(?:avif|avis)", may_be_deep=True),
    ImageFormat(
        "HEIF",
        (b".heic", b".heif"),
        rb"....ftyp(?:heic|heix|hevc|hevx|heim|heis|mif1|msf1)",
        has_one_picture=True,
        may_be_deep=True,
    ),
    ImageFormat("PPM", (b".pbm", b".pgm", b".ppm", b".pnm", b".pfm"), is_exact=True, may_be_deep=True),
    ImageFormat(
        "JPEG2000",
        (b".jp2", b".j2k", b".jpx"),
        rb"\x00\x00\x00\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51",
        may_be_deep=True,
    ),
)

SUFFIXES = {suffix: row.name for row in FORMATS for suffix in row.suffixes}
HEAD_BYTES = 32
# Tables that Hugging Face datasets have next to the images that they describe.
METADATA_NAMES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")

# An MPO file is a JPEG followed by further JPEGs, such as a camera's previews.
_BY_NAME = {row.name: row for row in FORMATS} | {"MPO": FORMATS[0]}
_STARTS = [(re.compile(row.start, re.DOTALL), row) for row in FORMATS if row.start]
_TIFF_STARTS = (b"II*\x00", b"MM\x00*")
_OTHER = ImageFormat("", ())


def format_named(name: str | None) -> ImageFormat:
    """Return the format with Pillow's name ``name``; an unnamed one without rules if it is unknown."""
    return _BY_NAME.get(name or "", _OTHER)


def format_of(head: bytes) -> ImageFormat | None:
    """Return the format that the first ``HEAD_BYTES`` of a file identify with certainty, or None."""
    return next((row for start, row in _STARTS if start.match(head)), None)


def is_tiff(head: bytes) -> bool:
    """Return whether a file begins like TIFF, as camera raw files do as well."""
    return head.startswith(_TIFF_STARTS)


def is_encoded(value: object) -> bool:
    """Return whether a value is bytes that begin like an image file.

    A BMP also states its length, and of PNM there must be the header that ``pixel_files`` writes.
    """
    if not isinstance(value, bytes):
        return False
    is_bmp = value[:2] == b"BM" and int.from_bytes(value[2:6], "little") == len(value)
    is_pixels = pixel_files.sides_of(value) is not None
    return is_bmp or is_pixels or is_tiff(value) or format_of(value[:HEAD_BYTES]) is not None


# Height, width and channels; None where the header does not state it.
HeaderShape: TypeAlias = "tuple[int | None, int | None, int]"

_GRAY_PNG = 0


def image_shape(data: bytes) -> HeaderShape | None:
    """Return the shape of the pixels of an encoded image, as the loader decodes it.

    Gray JPEG, PNG and pixel files have 1 channel, all others 3.

    Returns:
        None if ``data`` does not begin like a format that the loader decodes.
    """
    found = format_of(data[:HEAD_BYTES])
    if found is None or not found.is_decoded_by_loader:
        return pixel_files.sides_of(data)
    if found.name == "PNG" and data[12:16] == b"IHDR" and len(data) >= 26:
        width, height = struct.unpack_from(">II", data, 16)
        return height, width, 1 if data[25] == _GRAY_PNG else 3
    frame = jpeg.frame_header(data) if found.name == "JPEG" else None
    if frame is None:
        return None, None, 3
    height, width, num_components = frame
    return height, width, 1 if num_components == 1 else 3


def has_deep_header(data: bytes) -> bool:
    """Return whether an encoded image is a PNG with 16 bits per sample."""
    return data.startswith(png.SIGNATURE) and data[12:16] == b"IHDR" and data[24:25] == b"\x10"


def common_shape(one: HeaderShape, other: HeaderShape) -> HeaderShape:
    """Return the shape that describes images of both shapes; gray and color together are color."""
    height = one[0] if one[0] == other[0] else None
    width = one[1] if one[1] == other[1] else None
    return height, width, max(one[2], other[2])
