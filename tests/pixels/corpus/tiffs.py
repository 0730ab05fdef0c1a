"""TIFF: any kind of pixels in any kind of compression."""

import struct

import numpy as np
from PIL import Image, TiffImagePlugin

from .kind import Kind, converted, encoded, exif, rejected
from .modes import BILEVEL, CMYK, GRAY, GRAY_16, GRAY_ALPHA, HEIGHT, OTHER, PALETTE, RGB, RGBA, WIDTH, noise

PLAIN = encoded(RGB, "TIFF")
_FLOATS = Image.fromarray(noise()[..., 0].astype(np.float32) / np.float32(255))


def _tags(**tags: object) -> TiffImagePlugin.ImageFileDirectory_v2:
    found = TiffImagePlugin.ImageFileDirectory_v2()
    for tag, value in tags.items():
        found[int(tag[1:])] = value
    return found


def by_hand(*entries, order="<", data=b"", more=bytes(4)) -> bytes:
    """Return a TIFF of (tag, type, value) entries with pixels after its directory; fill in their offset."""
    start = 8 + 2 + 12 * len(entries) + 4
    body = struct.pack(order + "H", len(entries))
    for tag, kind, value in entries:
        value = start if tag == 273 else value
        # a short is stored in the first two of the four bytes
        body += struct.pack(order + "HHI", tag, kind, 1) + (
            struct.pack(order + "HH", value, 0) if kind == 3 else struct.pack(order + "I", value)
        )
    mark = b"II" if order == "<" else b"MM"
    return mark + struct.pack(order + "HI", 42, 8) + body + more + data


def gray(depth=8, compression=1, size=(WIDTH, HEIGHT), **rest) -> bytes:
    """Return a gray TIFF of one strip."""
    data = (noise().tobytes() * 2)[: (size[0] * depth + 7) // 8 * size[1]]
    entries = [(256, 4, size[0]), (257, 4, size[1]), (258, 3, depth), (259, 3, compression), (262, 3, 1)]
    entries += [(273, 4, 0), (277, 3, 1), (278, 4, size[1]), (279, 4, len(data))]
    return by_hand(*entries, data=data, **rest)


def tiled() -> bytes:
    """Return a gray TIFF in tiles of 16 x 16, of which the right and lower ones extend beyond the image."""
    across, down = -(-WIDTH // 16), -(-HEIGHT // 16)
    number = across * down
    entries = [(256, 3, 1, WIDTH), (257, 3, 1, HEIGHT), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    start = 8 + 2 + 12 * 9 + 4
    entries += [(277, 3, 1, 1), (322, 3, 1, 16), (323, 3, 1, 16), (324, 4, number, start)]
    body = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    places = struct.pack(f"<{number}I", *(start + 4 * number + 256 * tile for tile in range(number)))
    pixels = (noise().tobytes() * 2)[: 256 * number]
    return b"II*\0\x08\0\0\0" + body + bytes(4) + places + pixels


KINDS: dict[str, Kind] = {
    "TIFF, plain": converted(".tif", PLAIN),
    **{
        f"TIFF, {name}": converted(".tiff", encoded(RGB, "TIFF", compression=name))
        for name in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "zstd", "lzma")
    },
    "TIFF, jpeg": rejected(".tif", encoded(RGB, "TIFF", compression="jpeg"), "unsupported"),
    **{
        f"TIFF, {name}": converted(".tif", encoded(BILEVEL, "TIFF", compression=name), "1 bit to 8")
        for name in ("raw",)
    },
    **{
        f"TIFF, {name}": rejected(".tif", encoded(BILEVEL, "TIFF", compression=name), "unsupported")
        for name in ("group3", "group4", "tiff_ccitt")
    },
    "TIFF, word-aligned fax": rejected(
        ".tif", encoded(BILEVEL, "TIFF", compression="tiff_raw_16"), "unsupported"
    ),
    "TIFF, fax, eight bits": rejected(".tif", gray(8, 4), "unsupported"),
    "TIFF, grey": converted(".tif", encoded(GRAY, "TIFF")),
    "TIFF, grey, white is zero": converted(".tif", encoded(GRAY, "TIFF", tiffinfo=_tags(t262=0))),
    "TIFF, grey, 4 bits": converted(".tif", gray(4)),
    "TIFF, tiles": converted(".tif", tiled()),
    "TIFF, strips": converted(".tif", encoded(RGB.resize((330, 250)), "TIFF", strip_size=3000)),
    "TIFF, palette": converted(".tif", encoded(PALETTE, "TIFF"), "palette to RGB"),
    "TIFF, 16 bits": converted(".tif", encoded(GRAY_16, "TIFF"), "16 bits to 8"),
    "TIFF, 16 bits, big-endian": converted(".tif", gray(16, order=">"), "16 bits to 8"),
    "TIFF, 12 bits": rejected(".tif", gray(12), "unsupported"),
    "TIFF, 32 bits": converted(
        ".tif", encoded(Image.fromarray(np.asarray(GRAY_16).astype(np.int32)), "TIFF"), "32 bits to 8"
    ),
    "TIFF, 32 bits above white": rejected(
        ".tif", encoded(Image.new("I", (3, 3), 65_536), "TIFF"), "unsupported"
    ),
    "TIFF, 32 bits below black": rejected(".tif", encoded(Image.new("I", (3, 3), -1), "TIFF"), "unsupported"),
    "TIFF, floats": converted(".tif", encoded(_FLOATS, "TIFF"), "float to 8 bits"),
    "TIFF, floats above white": rejected(
        ".tif", encoded(Image.new("F", (3, 3), 1.01), "TIFF"), "unsupported"
    ),
    "TIFF, no numbers": rejected(
        ".tif", encoded(Image.new("F", (3, 3), float("nan")), "TIFF"), "unsupported"
    ),
    "TIFF, alpha": converted(".tif", encoded(RGBA, "TIFF"), "alpha over white"),
    "TIFF, grey and alpha": converted(".tif", encoded(GRAY_ALPHA, "TIFF"), "alpha over white"),
    "TIFF, CMYK": converted(".tif", encoded(CMYK, "TIFF"), "CMYK to RGB"),
    "TIFF, LAB": converted(".tif", encoded(Image.fromarray(noise(), "LAB"), "TIFF"), "LAB to RGB"),
    "TIFF, BigTIFF": converted(".tif", encoded(RGB, "TIFF", big_tiff=True)),
    "TIFF, pages": rejected(".tif", encoded(RGB, "TIFF", save_all=True, append_images=[OTHER]), "animated"),
    **{
        f"TIFF, orientation {n}": converted(".tif", encoded(RGB, "TIFF", exif=exif(n)), orientation=n)
        for n in (2, 5, 6, 8)
    },
    "TIFF, orientation 6, LZW": converted(
        ".tif", encoded(RGB, "TIFF", compression="tiff_lzw", exif=exif(6)), orientation=6
    ),
    "TIFF, color profile": converted(
        ".tif", encoded(RGB, "TIFF", icc_profile=b"junk" * 99), "color profile ignored"
    ),
    "TIFF, cut": rejected(".tif", PLAIN[:-100], "damaged"),
    "TIFF, cut, LZW": rejected(".tif", encoded(RGB, "TIFF", compression="tiff_lzw")[:300], "unreadable"),
    "TIFF, header alone": rejected(".tif", PLAIN[:8], "unreadable"),
    "TIFF, a directory that comes after itself": converted(".tif", gray(more=struct.pack("<I", 8))),
    "TIFF, a directory beyond its end": rejected(".tif", b"II*\0\xff\xff\xff\x7f", "unreadable"),
    "TIFF, no directory": rejected(".tif", b"II*\0\x08\0\0\0\0\0" + bytes(4), "unreadable"),
    "TIFF, an unknown compression": rejected(".tif", gray(compression=999), "unsupported"),
    "TIFF, pixels beyond its end": rejected(".tif", gray()[:150], "damaged"),
    "TIFF, 60,000 x 60,000 in a kilobyte": rejected(".tif", gray(size=(60_000, 60_000)), "too large"),
    "TIFF, 9,000 x 9,000 in a kilobyte": rejected(".tif", gray(size=(9_000, 9_000)), "damaged"),
    "TIFF, four billion columns": rejected(".tif", gray(size=(0xFFFFFFFF, 1)), "too large"),
    "TIFF, no columns": rejected(".tif", gray(size=(0, 5)), "unreadable"),
}
