"""Files whose content does not match their suffix, and files that are not images."""

import io
import random
import struct
import zipfile

from .kind import Kind, converted, encoded, kept, rejected, skipped
from .modes import PALETTE, RGB, RGBA

_TIFF = encoded(RGB, "TIFF")
_BMP = encoded(RGB, "BMP")
_NAMED = "known by content"


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
    "PNG as .jpg": kept(".jpg", encoded(RGB, "PNG", compress_level=1), _NAMED),
    "JPEG as .png": kept(".png", encoded(RGB, "JPEG", quality=91), _NAMED),
    "WebP as .jpg": converted(".jpg", encoded(RGB, "WEBP", lossless=True), _NAMED),
    "GIF as .png": converted(".png", encoded(PALETTE, "GIF"), _NAMED, "palette to RGB"),
    "BMP as .jpg": converted(".jpg", _BMP, _NAMED),
    "TIFF as .png": converted(".png", _TIFF, _NAMED),
    "AVIF as .jpg": converted(".jpg", encoded(RGB, "AVIF"), _NAMED),
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
