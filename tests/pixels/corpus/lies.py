"""Files whose content does not match their suffix, and files that are not images."""

import io
import random
import struct
import zipfile
import zlib

from tests.pixels.corpus.kind import PALETTE, RGB, RGBA, Kind, converted, encoded, kept, rejected, skipped

_TIFF = encoded(RGB, "TIFF")
_BMP = encoded(RGB, "BMP")


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("photo.jpg"), encoded(RGB, "JPEG"))
    return file.getvalue()


_EPS = encoded(RGB, "EPS")
_WMF = (
    b"\xd7\xcd\xc6\x9a"
    + bytes(4)
    + struct.pack("<4hH", 0, 0, 99, 99, 96)
    + bytes(6)
    + b"\1\0\t\0"
    + bytes(40)
)
_EMF = b"\1\0\0\0" + struct.pack("<I8i", 88, 0, 0, 9, 9, 0, 0, 99, 99) + b" EMF" + bytes(44)
_SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
_PSD = b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 4, 4, 8, 3) + bytes(64)

KINDS: dict[str, Kind] = {
    "PNG as .jpg": kept(".jpg", encoded(RGB, "PNG", compress_level=1)),
    "JPEG as .png": kept(".png", encoded(RGB, "JPEG", quality=91)),
    "WebP as .jpg": converted(".jpg", encoded(RGB, "WEBP", lossless=True)),
    "GIF as .png": converted(".png", encoded(PALETTE, "GIF"), "palette to RGB"),
    "BMP as .jpg": converted(".jpg", _BMP),
    "TIFF as .png": converted(".png", _TIFF),
    "AVIF as .jpg": converted(".jpg", encoded(RGB, "AVIF")),
    "QOI as .bmp": rejected(".bmp", encoded(RGB, "QOI"), "unreadable"),
    "TGA as .jpg": rejected(".jpg", encoded(RGB, "TGA"), "unreadable"),
    "PCX as .png": rejected(".png", encoded(RGB, "PCX"), "unreadable"),
    "JPEG without a suffix": skipped("", encoded(RGB, "JPEG", quality=93)),
    "BMP without a suffix": skipped("", _BMP),
    "TIFF of a camera's maker": skipped(".nef", _TIFF),
    "text without a suffix": skipped("", b"hello, world"),
    "text": skipped(".txt", b"hello, world"),
    "text as .jpg": rejected(".jpg", b"hello, world", "unreadable"),
    "HTML as .jpg": rejected(".jpg", b"<!DOCTYPE html><title>404</title>", "unreadable"),
    "nothing as .jpg": rejected(".jpg", b"", "empty"),
    "nothing as .png": rejected(".png", b"", "empty"),
    "one byte": rejected(".jpg", b"\xff", "unreadable"),
    "two bytes": rejected(".jpg", b"\xff\xd8", "unreadable"),
    "zeros": rejected(".jpg", bytes(5000), "unreadable"),
    "ones": rejected(".png", b"\xff" * 5000, "unreadable"),
    "random bytes as .jpg": rejected(".jpg", random.Random(1).randbytes(5000), "unreadable"),
    "EPS as .jpg": rejected(".jpg", _EPS, "unreadable"),
    "EPS": skipped(".eps", _EPS),
    "EPS behind a DOS header as .png": rejected(
        ".png",
        b"\xc5\xd0\xd3\xc6" + struct.pack("<6I", 32, len(_EPS), 0, 0, 0, 0) + b"\xff\xff\0\0" + _EPS,
        "unreadable",
    ),
    "WMF as .png": rejected(".png", _WMF, "unreadable"),
    "EMF as .bmp": rejected(".bmp", _EMF, "unreadable"),
    "SVG as .png": rejected(".png", _SVG, "unreadable"),
    "SVG": skipped(".svg", _SVG),
    "PDF as .jpg": rejected(".jpg", encoded(RGB, "PDF"), "unreadable"),
    "PSD as .tif": rejected(".tif", _PSD, "unreadable"),
    "ZIP as .jpg": rejected(".jpg", _zip(), "unreadable"),
    "ICNS as .png": rejected(".png", encoded(RGBA.resize((16, 16)), "ICNS"), "unreadable"),
    "an MP4 film as .heic": rejected(".heic", b"\0\0\0\x18ftypmp42" + bytes(99), "unreadable"),
}


# Damage good files: changed bytes, truncation, two files spliced


# Extreme values of sizes, counts and markers.
_ODD = (0, 1, 2, 0x7F, 0x80, 0xC4, 0xD9, 0xDA, 0xFE, 0xFF)


def _changed(data: bytes, draw: random.Random) -> bytes:
    """Change one to four bytes, half of the time near the start, where the headers are."""
    changed = bytearray(data)
    near = min(len(data), draw.choice([64, 700, len(data)]))
    for _ in range(draw.randint(1, 4)):
        changed[draw.randrange(near)] = draw.choice([draw.choice(_ODD), draw.randrange(256)])
    return bytes(changed)


def _cut_out(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data))
    return data[:start] + data[start + draw.randint(1, 64) :]


def _inserted(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data))
    return data[:start] + draw.randbytes(draw.randint(1, 16)) + data[start:]


def _truncated(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))] + draw.choice([b"", b"\xff\xd9", b";", bytes(99)])


def repaired(data: bytes) -> bytes:
    """Return a PNG with correct checksums of its chunks; anything else unchanged."""
    if not data.startswith(b"\x89PNG"):
        return data
    fixed, place = bytearray(data), 8
    while place + 12 <= len(fixed):
        end = place + 8 + int.from_bytes(fixed[place : place + 4], "big")
        if end + 4 > len(fixed):
            break
        fixed[end : end + 4] = struct.pack(">I", zlib.crc32(fixed[place + 4 : end]))
        place = end + 4
    return bytes(fixed)


def damaged(seeds: list[tuple[str, bytes]], draw: random.Random) -> tuple[str, bytes]:
    """Return the suffix and the bytes of a good file after one to three kinds of damage."""
    suffix, data = draw.choice(seeds)
    for _ in range(draw.randint(1, 3)):
        data = (
            draw.choice([_changed, _changed, _cut_out, _inserted, _truncated])(data, draw) if data else data
        )
    if draw.randrange(8) == 0:
        _, other = draw.choice(seeds)
        data = data[: draw.randint(0, len(data))] + other[draw.randrange(len(other)) :]
    return suffix, repaired(data) if draw.random() < 0.5 else data
