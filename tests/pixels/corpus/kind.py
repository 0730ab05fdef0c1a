"""``Nasty``, one file of the table, and the pictures that the files show."""

import struct
import zlib
from dataclasses import dataclass, field, replace

import numpy as np
from PIL import Image

from tests.pictures import image_file


@dataclass(frozen=True)
class Kind:
    """One file, and the expected result of a build.

    Attributes:
        suffix: suffix of its name, with the dot; may be empty.
        data: content of the file.
        outcome: ``kept`` byte for byte, ``converted``, ``skipped``, or the reason of its rejection.
        conversions: conversions that the manifest counts, if the file is accepted.
        orientation: 1 to 8 as in EXIF; how the pixels have to be rotated.
        pixels: what its first frame shows in RGB, where Pillow shows something else.
    """

    suffix: str
    data: bytes
    outcome: str
    conversions: tuple[str, ...] = ()
    orientation: int = 1
    pixels: np.ndarray | None = field(default=None, compare=False)


def shows(kind: Kind, pixels: np.ndarray) -> Kind:
    return replace(kind, pixels=pixels.astype(np.uint8))


def kept(suffix: str, data: bytes, *notes: str) -> Kind:
    return Kind(suffix, data, "kept", notes)


def converted(suffix: str, data: bytes, *conversions: str, orientation: int = 1) -> Kind:
    turned = ("orientation applied",) if orientation != 1 else ()
    return Kind(suffix, data, "converted", (*conversions, *turned, "re-encoded"), orientation)


def rejected(suffix: str, data: bytes, reason: str) -> Kind:
    return Kind(suffix, data, reason)


def skipped(suffix: str, data: bytes) -> Kind:
    return Kind(suffix, data, "skipped")


def encoded(image: Image.Image, file_format: str, **options: object) -> bytes:
    # Pillow images keep the parameters of the last save, which would change the next one
    if "append_images" in options:
        options["append_images"] = [each.copy() for each in options["append_images"]]
    return image_file(image.copy(), file_format, **options)


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def chunk(name: bytes, body: bytes = b"") -> bytes:
    """Return a chunk of a PNG."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def flipped(data: bytes, place: int) -> bytes:
    """Flip the lowest bit of one byte."""
    place %= len(data)
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


# One picture in each mode of Pillow


WIDTH, HEIGHT = 33, 25


def smooth() -> np.ndarray:
    """Return an image without symmetry, smooth enough for JPEG."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    return np.stack([columns * 7 % 256, rows * 9 % 256, (columns + rows) * 4 % 256], -1).astype(np.uint8)


def noise(channels: int = 3, seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (HEIGHT, WIDTH, channels), dtype=np.uint8)


RGB = Image.fromarray(smooth())


OTHER = Image.fromarray(smooth()[::-1, ::-1].copy())


GRAY = RGB.convert("L")


BILEVEL = Image.fromarray(noise()[..., 0] > 99)


PALETTE = RGB.quantize(16)


RGBA = Image.fromarray(noise(4), "RGBA")


GRAY_ALPHA = Image.fromarray(noise(2), "LA")


CMYK = Image.fromarray(255 - smooth()).convert("CMYK")
# The same picture in every 16-bit mode.
WORDS = (noise().astype(np.uint16) << 8 | noise(seed=8))[..., 0]


GRAY_16 = Image.fromarray(WORDS)
