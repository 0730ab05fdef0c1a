"""BMP, and bitmaps that are not read."""

import struct

import numpy as np
from PIL import Image

from tests.pixels.corpus.kind import (
    BILEVEL,
    GRAY,
    GRAY_16,
    HEIGHT,
    PALETTE,
    RGB,
    RGBA,
    WIDTH,
    Kind,
    converted,
    encoded,
    noise,
    rejected,
)

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


# PPM and its relatives, JPEG 2000, and formats that are not read


_JP2 = encoded(RGB, "JPEG2000")


_ASCII = " ".join(map(str, noise().ravel())).encode()


_GRAYS = " ".join(map(str, noise()[..., 0].ravel())).encode()


_SIZE = f"{WIDTH} {HEIGHT}".encode()


_FLOATS = (noise()[..., 0] / np.float32(255)).astype("<f4").tobytes()


def _codestream(width: int, height: int) -> bytes:
    """Return the raw codestream of a JPEG 2000 file with another size in the header."""
    stream = encoded(RGB, "JPEG2000", no_jp2=True)
    sides, declared = struct.pack(">II", WIDTH, HEIGHT), struct.pack(">II", width, height)
    return stream.replace(sides, declared)


KINDS |= {
    "PPM, binary": converted(".ppm", encoded(RGB, "PPM")),
    "PPM, text": converted(".ppm", b"P3\n" + _SIZE + b"\n255\n" + _ASCII),
    "PPM, comments": converted(".pnm", b"P6 # hello\n#\n" + _SIZE + b" 255\n" + noise().tobytes()),
    "PPM, white is 100": converted(".ppm", b"P6 " + _SIZE + b" 100\n" + (noise() % 101).tobytes()),
    "PPM, 16 bits": converted(
        ".ppm", b"P6 " + _SIZE + b" 65535\n" + noise().astype(">u2").tobytes(), "16 bits of color to 8"
    ),
    "PPM, a number that is none": rejected(".ppm", b"P3\n2 2\n255\n1 2 3 4 5 6 7 8 9 x y z", "damaged"),
    "PPM, a value above white": rejected(".ppm", b"P3\n1 1\n255\n256 0 0", "damaged"),
    "PPM, too few numbers": rejected(".ppm", b"P3\n" + _SIZE + b"\n255\n" + _ASCII[:99], "damaged"),
    "PPM, cut": rejected(".ppm", encoded(RGB, "PPM")[:-100], "damaged"),
    "PPM, no height": rejected(".ppm", b"P6 33", "damaged"),
    "PPM, white is 0": rejected(".ppm", b"P6 2 2 0\n" + bytes(12), "damaged"),
    "PPM, a size of a hundred digits": rejected(".ppm", b"P6 " + b"9" * 100 + b" 1 255\n", "damaged"),
    "PPM, 60,000 x 60,000 in twenty bytes": rejected(".ppm", b"P6 60000 60000 255\n", "too large"),
    "PPM, 9,000 x 9,000 in twenty bytes": rejected(".ppm", b"P6 9000 9000 255\n", "damaged"),
    "PPM, text, 9,000 x 9,000 in twenty bytes": rejected(".ppm", b"P3 9000 9000 255\n1 2 3", "damaged"),
    "PGM, binary": converted(".pgm", encoded(GRAY, "PPM")),
    "PGM, text": converted(".pgm", b"P2\n" + _SIZE + b"\n255\n" + _GRAYS),
    "PGM, 16 bits": converted(".pgm", encoded(GRAY_16, "PPM"), "16 bits to 8"),
    "PBM, binary": converted(".pbm", encoded(BILEVEL, "PPM"), "1 bit to 8"),
    "PBM, text": converted(".pbm", b"P1\n3 2\n1 0 1\n011", "1 bit to 8"),
    "PFM, little-endian": rejected(".pfm", b"Pf\n" + _SIZE + b"\n-1.0\n" + _FLOATS, "unsupported"),
    "PFM, a scale that is no number": rejected(".pfm", b"Pf\n" + _SIZE + b"\nnan\n" + _FLOATS, "damaged"),
    "JPEG 2000, RGB": converted(".jp2", _JP2),
    "JPEG 2000, lossy": converted(".jpx", encoded(RGB, "JPEG2000", irreversible=True, quality_layers=[20])),
    "JPEG 2000, grey": converted(".jp2", encoded(GRAY, "JPEG2000")),
    "JPEG 2000, alpha": converted(".jp2", encoded(RGBA, "JPEG2000"), "alpha over white"),
    "JPEG 2000, 16 bits": converted(".jp2", encoded(GRAY_16, "JPEG2000"), "16 bits to 8"),
    "JPEG 2000, tiles": converted(".jp2", encoded(RGB, "JPEG2000", tile_size=(16, 16))),
    "JPEG 2000, codestream": converted(".j2k", encoded(RGB, "JPEG2000", no_jp2=True)),
    "JPEG 2000, cut": rejected(".jp2", encoded(Image.fromarray(noise()), "JPEG2000")[:-300], "damaged"),
    "JPEG 2000, header alone": rejected(".jp2", _JP2[:60], "damaged"),
    "JPEG 2000, 60,000 x 60,000 in a kilobyte": rejected(".j2k", _codestream(60_000, 60_000), "too large"),
    "JPEG 2000, 9,000 x 9,000 in a kilobyte": rejected(".j2k", _codestream(9_000, 9_000), "damaged"),
}
