"""BMP, DIB, ICO, TGA and PCX."""

import struct

from PIL import Image

from .kind import Kind, converted, encoded, rejected
from .modes import BILEVEL, GRAY, GRAY_ALPHA, HEIGHT, PALETTE, RGB, RGBA, WIDTH, noise
from .pngs import header, pixels, png, rows

BMP = encoded(RGB, "BMP")
_COLORS = noise().tobytes()


def bmp(depth, pixels, *, size=(8, 4), compression=0, masks=b"", colors=0) -> bytes:
    """Return a BMP with a header of 40 bytes, followed by masks and a palette."""
    palette = b"".join(_COLORS[3 * place : 3 * place + 3] + b"\0" for place in range(colors))
    start = 14 + 40 + len(masks) + len(palette)
    header = struct.pack("<IiiHHIIiiII", 40, *size, 1, depth, compression, len(pixels), 0, 0, colors, 0)
    return b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + header + masks + palette + pixels


def _alpha_bmp() -> bytes:
    """Return a BMP with a header of 108 bytes, which has a mask for alpha."""
    masks = struct.pack("<4I", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    header = struct.pack("<IiiHHIIiiII", 108, 8, 4, 1, 32, 3, 128, 0, 0, 0, 0) + masks + b"BGRs" + bytes(48)
    return b"BM" + struct.pack("<IHHI", 14 + 108 + 128, 0, 0, 122) + header + _COLORS[:128]


def icon(data: bytes, size: tuple[int, int] = (WIDTH, HEIGHT), depth: int = 32) -> bytes:
    """Return an icon of one picture, with this size in its directory."""
    entry = struct.pack("<4B2H2I", *size, 0, 0, 1, depth, len(data), 22)
    return struct.pack("<3H", 0, 1, 1) + entry + data


def _icon_bmp() -> bytes:
    """Return pixels of 24 bits and the mask of an icon, whose header holds twice the height."""
    header = struct.pack("<IiiHHIIiiII", 40, 16, 32, 1, 24, 0, 0, 0, 0, 0, 0)
    return header + _COLORS[: 16 * 16 * 3] + b"\xf0\x0f\0\0" * 16


def tga(kind, depth, pixels, *, size=(8, 4), flags=0, palette=b"", palette_depth=16) -> bytes:
    """Return a TGA; ``palette`` holds colors of the given number of bits."""
    colors = struct.pack("<HHB", 0, len(palette) * 8 // palette_depth, palette_depth if palette else 0)
    screen = struct.pack("<4H2B", 0, 0, *size, depth, flags)
    return bytes([0, bool(palette), kind]) + colors + screen + palette + pixels


_RLE_8 = bytes([8, 1, 0, 0, 8, 2, 0, 0, 0, 8, 1, 2, 3, 0, 1, 2, 3, 0, 0, 0, 8, 3, 0, 0, 0, 1])
_BITFIELDS = struct.pack("<3I", 0xF800, 0x07E0, 0x001F)

KINDS: dict[str, Kind] = {
    "BMP, 24 bits": converted(".bmp", BMP),
    "BMP, 1 bit": converted(".bmp", encoded(BILEVEL, "BMP"), "1 bit to 8"),
    "BMP, 1 bit, two colors": converted(".bmp", bmp(1, _COLORS[:16], colors=2), "palette to RGB"),
    "BMP, 4 bits": converted(".bmp", bmp(4, _COLORS[:16], colors=16), "palette to RGB"),
    "BMP, 8 bits": converted(".bmp", encoded(PALETTE, "BMP"), "palette to RGB"),
    "BMP, grey": converted(".bmp", encoded(GRAY, "BMP")),
    "BMP, 16 bits": converted(".bmp", bmp(16, _COLORS[:64])),
    "BMP, 16 bits, masks of 5, 6 and 5": converted(
        ".bmp", bmp(16, _COLORS[:64], compression=3, masks=_BITFIELDS)
    ),
    "BMP, masks that are none": rejected(
        ".bmp", bmp(16, _COLORS[:64], compression=3, masks=struct.pack("<3I", 1, 2, 3)), "damaged"
    ),
    "BMP, 32 bits": converted(".bmp", bmp(32, _COLORS[:128])),
    # without masks, the fourth byte has no meaning
    "BMP, 32 bits, of four channels": converted(".bmp", encoded(RGBA, "BMP")),
    "BMP, 32 bits, alpha": converted(".bmp", _alpha_bmp(), "alpha over white"),
    "BMP, run lengths": converted(".bmp", bmp(8, _RLE_8, compression=1, colors=4), "palette to RGB"),
    "BMP, run lengths that are cut": rejected(".bmp", bmp(8, _RLE_8[:8], compression=1, colors=4), "damaged"),
    "BMP, top first": converted(".bmp", bmp(24, _COLORS[:96], size=(8, -4))),
    "BMP, an index beyond the palette": converted(
        ".bmp", bmp(8, bytes(range(32)), colors=4), "palette to RGB"
    ),
    "BMP, a header of 1987": converted(
        ".bmp",
        b"BM"
        + struct.pack("<IHHI", 26 + 96, 0, 0, 26)
        + struct.pack("<IHHHH", 12, 8, 4, 1, 24)
        + _COLORS[:96],
    ),
    "BMP, cut": rejected(".bmp", BMP[:-100], "damaged"),
    "BMP, header alone": rejected(".bmp", BMP[:54], "damaged"),
    "BMP, bytes behind its end": converted(".bmp", BMP + b"junk"),
    "BMP, 60,000 x 60,000 in a hundred bytes": rejected(
        ".bmp", bmp(24, b"", size=(60_000, 60_000)), "too large"
    ),
    "BMP, 9,000 x 9,000 in a hundred bytes": rejected(".bmp", bmp(24, b"", size=(9_000, 9_000)), "damaged"),
    "BMP, a height of minus two billion": rejected(".bmp", bmp(24, b"", size=(1, -0x80000000)), "too large"),
    "DIB": converted(".dib", encoded(RGB, "DIB")),
    "DIB that is a BMP": converted(".dib", BMP),
    "ICO, a PNG inside": converted(
        ".ico", encoded(RGBA.resize((32, 32)), "ICO", sizes=[(32, 32)]), "alpha over white"
    ),
    "ICO, a BMP inside": converted(
        ".ico",
        encoded(RGBA.resize((32, 32)), "ICO", sizes=[(32, 32)], bitmap_format="bmp"),
        "alpha over white",
    ),
    "ICO, a BMP of 24 bits inside": converted(".ico", icon(_icon_bmp(), (16, 16), 24), "alpha over white"),
    "ICO, sizes": converted(
        ".ico",
        encoded(RGBA.resize((64, 64)), "ICO", sizes=[(16, 16), (32, 32), (64, 64)]),
        "alpha over white",
    ),
    "ICO, larger than it says": converted(".ico", icon(encoded(RGB, "PNG"), (16, 16))),
    "ICO, a large PNG inside": rejected(
        ".ico", icon(encoded(Image.new("1", (9_500, 9_500)), "PNG"), (16, 16)), "too large"
    ),
    "ICO, a cut PNG inside": rejected(".ico", icon(encoded(RGB, "PNG")[:-90]), "unreadable"),
    "ICO, a PNG with too few rows inside": rejected(
        ".ico", icon(png(header(), pixels(rows()[:-300]))), "damaged"
    ),
    "ICO, nothing inside": rejected(".ico", struct.pack("<3H", 0, 1, 0), "unreadable"),
    "ICO, header alone": rejected(".ico", icon(encoded(RGB, "PNG"))[:22], "unreadable"),
    "TGA, 24 bits": converted(".tga", encoded(RGB, "TGA")),
    "TGA, run lengths": converted(".tga", encoded(RGB, "TGA", compression="tga_rle")),
    "TGA, alpha": converted(".tga", encoded(RGBA, "TGA"), "alpha over white"),
    "TGA, grey and alpha": converted(".tga", encoded(GRAY_ALPHA, "TGA"), "alpha over white"),
    "TGA, grey": converted(".tga", encoded(GRAY, "TGA")),
    "TGA, palette": converted(".tga", encoded(PALETTE, "TGA"), "palette to RGB"),
    "TGA, palette of 16 bits": converted(
        ".tga",
        tga(1, 8, bytes(place % 6 for place in range(32)), palette=bytes(range(0, 240, 19))[:12]),
        "palette to RGB",
        "alpha over white",
    ),
    "TGA, palette of 32 bits": rejected(
        ".tga", tga(1, 8, bytes(32), palette=bytes(range(0, 255, 16)), palette_depth=32), "damaged"
    ),
    "TGA, 16 bits": converted(".tga", tga(2, 16, _COLORS[:64]), "alpha over white"),
    "TGA, top first": converted(".tga", tga(2, 24, _COLORS[:96], flags=0x20)),
    "TGA, right first": converted(".tga", tga(2, 24, _COLORS[:96], flags=0x10)),
    "TGA, cut": rejected(".tga", tga(2, 24, _COLORS[:50]), "damaged"),
    "TGA, run lengths that are cut": rejected(
        ".tga", encoded(RGB, "TGA", compression="tga_rle")[:300], "damaged"
    ),
    "TGA, 60,000 x 60,000 in twenty bytes": rejected(
        ".tga", tga(2, 24, b"", size=(60_000, 60_000)), "too large"
    ),
    "TGA, 9,000 x 9,000 in twenty bytes": rejected(".tga", tga(10, 24, b"", size=(9_000, 9_000)), "damaged"),
    "PCX, RGB": converted(".pcx", encoded(RGB, "PCX")),
    "PCX, palette": converted(".pcx", encoded(PALETTE, "PCX"), "palette to RGB"),
    "PCX, 1 bit": converted(".pcx", encoded(BILEVEL, "PCX"), "1 bit to 8"),
    "PCX, cut": rejected(".pcx", encoded(RGB, "PCX")[:300], "damaged"),
}
