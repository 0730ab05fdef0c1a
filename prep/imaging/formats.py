"""The table of image formats: how files are recognized, stored unchanged, and measured by their headers."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    """

    name: str
    suffixes: tuple[bytes, ...]
    start: bytes | None = None
    is_decoded_by_loader: bool = False
    has_one_picture: bool = False
    is_exact: bool = False


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
    ImageFormat("PNG", (b".png", b".apng"), rb"\x89PNG\r\n\x1a\n", is_decoded_by_loader=True, is_exact=True),
    ImageFormat("WEBP", (b".webp",), rb"RIFF....WEBP", is_decoded_by_loader=True),
    ImageFormat("GIF", (b".gif",), rb"GIF8[79]a", is_decoded_by_loader=True, is_exact=True),
    ImageFormat("BMP", (b".bmp",), is_exact=True),
    ImageFormat("TIFF", (b".tif", b".tiff"), is_exact=True),
    ImageFormat("AVIF", (b".avif",), rb"....ftyp(?:avif|avis)"),
    ImageFormat(
        "HEIF",
        (b".heic", b".heif"),
        rb"....ftyp(?:heic|heix|hevc|hevx|heim|heis|mif1|msf1)",
        has_one_picture=True,
    ),
    ImageFormat("PPM", (b".pbm", b".pgm", b".ppm", b".pnm", b".pfm"), is_exact=True),
    ImageFormat("JPEG2000", (b".jp2", b".j2k", b".jpx"), rb"\x00\x00\x00\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51"),
)

# What manifests record of the code that converts images: its own version, and those of the decoders.
VERSIONS = ("conversion", "pillow", "pillow_heif")
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


def is_encoded(value: object) -> bool:
    """Return whether a value is bytes that begin like an image file.

    A BMP also states its length, and of PNM there must be the header that ``pixel_files`` writes. Camera raw
    files begin like TIFF as well.
    """
    if not isinstance(value, bytes):
        return False
    is_bmp = value[:2] == b"BM" and int.from_bytes(value[2:6], "little") == len(value)
    is_pixels = pixel_files.sides_of(value) is not None
    return is_bmp or is_pixels or value.startswith(_TIFF_STARTS) or format_of(value[:HEAD_BYTES]) is not None
