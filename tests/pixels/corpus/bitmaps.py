"""BMP, and bitmaps that are not read."""

import struct

from .kind import Kind, converted, encoded, rejected
from .modes import BILEVEL, GRAY, PALETTE, RGB, RGBA, noise

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
}
