"""PNG: every color type and depth, and chunks that are odd, broken, missing or too many."""

import random
import struct
import zlib

import numpy as np

from tests.pixels.corpus.kind import GRAY, HEIGHT, OTHER, PALETTE, RGB, RGBA, WIDTH

from .kind import Kind, chunk, converted, encoded, exif, flipped, kept, rejected

_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_NAMES = {0: "grey", 2: "RGB", 3: "palette", 4: "grey and alpha", 6: "RGBA"}
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))

PLAIN = encoded(RGB, "PNG")


def header(depth=8, color=2, interlaced=0, size=(WIDTH, HEIGHT)) -> bytes:
    return chunk(b"IHDR", struct.pack(">II5B", *size, depth, color, 0, 0, interlaced))


def rows(depth: int = 8, color: int = 2, interlaced: int = 0) -> bytes:
    """Return unfiltered rows of noise, in passes if interlaced."""
    choose, made = random.Random(depth), b""
    for left, top, across, down in _PASSES if interlaced else ((0, 0, 1, 1),):
        columns, lines = -(-(WIDTH - left) // across), -(-(HEIGHT - top) // down)
        for _ in range(lines):
            made += b"\0" + choose.randbytes((columns * depth * _CHANNELS[color] + 7) // 8)
    return made


def pixels(data: bytes | None = None) -> bytes:
    return chunk(b"IDAT", zlib.compress(rows() if data is None else data))


def png(*chunks: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks) + chunk(b"IEND")


_COLORS = random.Random(3).randbytes(768)
_SQUEEZED = zlib.compress(rows())


def of_type(depth: int, color: int, interlaced: int = 0, *before_pixels: bytes) -> bytes:
    """Return a PNG of this depth and color type, with a palette if required."""
    palette = (chunk(b"PLTE", _COLORS[: 3 << depth]),) if color == 3 else ()
    return png(
        header(depth, color, interlaced), *palette, *before_pixels, pixels(rows(depth, color, interlaced))
    )


def _typed(depth: int, color: int, interlaced: int) -> Kind:
    data = of_type(depth, color, interlaced)
    if color in (0, 2) and depth <= 8:
        return kept(".png", data)
    if color == 3:
        return converted(".png", data, "palette to RGB")
    bits = ("16 bits of color to 8" if color else "16 bits to 8",) if depth == 16 else ()
    return converted(".png", data, *bits, *(("alpha over white",) if color in (4, 6) else ()))


def _animated(number: int) -> bytes:
    return encoded(RGB, "PNG", save_all=True, append_images=[OTHER] * (number - 1))


def _few_colors(number: int) -> bytes:
    """Return a PNG whose palette is too short for the pixels."""
    return png(header(color=3), chunk(b"PLTE", _COLORS[: 3 * number]), pixels(rows(color=3)))


_TYPES = [(depth, 0) for depth in (1, 2, 4, 8, 16)] + [(depth, 3) for depth in (1, 2, 4, 8)]
_TYPES += [(depth, color) for color in (2, 4, 6) for depth in (8, 16)]
_CORNER = struct.pack(">3H", *(int(value) for value in np.frombuffer(rows()[1:4], np.uint8)))

KINDS: dict[str, Kind] = {
    **{
        f"PNG, {_NAMES[color]}, {depth} bits{', interlaced' * interlaced}": _typed(depth, color, interlaced)
        for depth, color in _TYPES
        for interlaced in (0, 1)
    },
    "PNG, grey, a transparent value": converted(
        ".png", of_type(8, 0, 0, chunk(b"tRNS", b"\0" + rows(8, 0)[1:2])), "alpha over white"
    ),
    "PNG, 1 bit, a transparent value": converted(
        ".png", of_type(1, 0, 0, chunk(b"tRNS", b"\0\1")), "1 bit to 8", "alpha over white"
    ),
    "PNG, 16 bits grey, a transparent value": converted(
        ".png", of_type(16, 0, 0, chunk(b"tRNS", rows(16, 0)[1:3])), "16 bits to 8", "alpha over white"
    ),
    "PNG, RGB, a transparent color": converted(
        ".png", of_type(8, 2, 0, chunk(b"tRNS", _CORNER)), "alpha over white"
    ),
    "PNG, palette, transparent colors": converted(
        ".png",
        of_type(4, 3, 0, chunk(b"tRNS", bytes(range(0, 256, 17)))),
        "palette to RGB",
        "alpha over white",
    ),
    "PNG, palette, more transparencies than colors": converted(
        ".png", of_type(1, 3, 0, chunk(b"tRNS", b"\x80" * 9)), "palette to RGB", "alpha over white"
    ),
    "PNG, RGBA with a transparent color": converted(
        ".png", of_type(8, 6, 0, chunk(b"tRNS", _CORNER)), "alpha over white"
    ),
    "PNG, wrong checksum of its header": rejected(".png", flipped(png(header(), pixels()), 30), "unreadable"),
    "PNG, wrong checksum of its chunk of pixels": converted(".png", flipped(png(header(), pixels()), -13)),
    "PNG, wrong checksum of its pixels": rejected(
        ".png", png(header(), chunk(b"IDAT", flipped(_SQUEEZED, -1))), "damaged"
    ),
    "PNG, wrong checksum of its palette": rejected(
        ".png", flipped(of_type(8, 3), 8 + 25 + 8 + 768), "unreadable"
    ),
    "PNG, wrong checksum of its text": rejected(
        ".png", png(header(), flipped(chunk(b"tEXt", b"by\0me"), -1), pixels()), "unreadable"
    ),
    "PNG, wrong checksum of its end": converted(".png", flipped(PLAIN, -1)),
    "PNG, a flipped bit in its pixels": rejected(".png", flipped(PLAIN, 80), "damaged"),
    "PNG, no end": converted(".png", PLAIN[:-12]),
    "PNG, no pixels": rejected(".png", png(header()), "damaged"),
    "PNG, no header": rejected(".png", png(pixels()), "unreadable"),
    "PNG, no palette": rejected(".png", png(header(color=3), pixels(rows(color=3))), "damaged"),
    "PNG, an index beyond the palette": converted(".png", _few_colors(9), "palette to RGB"),
    "PNG, a palette of no colors": rejected(".png", _few_colors(0), "damaged"),
    "PNG, a palette of a color and a half": converted(
        ".png",
        png(header(color=3), chunk(b"PLTE", b"\1\2\3\4"), pixels(bytes(len(rows(color=3))))),
        "palette to RGB",
    ),
    "PNG, a palette behind its pixels": rejected(
        ".png", png(header(color=3), pixels(rows(color=3)), chunk(b"PLTE", _COLORS)), "damaged"
    ),
    "PNG, two palettes": converted(
        ".png",
        png(header(color=3), chunk(b"PLTE", _COLORS), chunk(b"PLTE", _COLORS[::-1]), pixels(rows(color=3))),
        "palette to RGB",
    ),
    "PNG, two headers": converted(".png", png(header(), header(), pixels())),
    "PNG, two headers of two sizes": rejected(
        ".png", png(header(), header(size=(9, 9)), pixels()), "damaged"
    ),
    "PNG, pixels in a hundred chunks": kept(
        ".png", png(header(), *(chunk(b"IDAT", bytes([byte])) for byte in _SQUEEZED))
    ),
    "PNG, pixels in chunks in the wrong order": rejected(
        ".png", png(header(), chunk(b"IDAT", _SQUEEZED[900:]), chunk(b"IDAT", _SQUEEZED[:900])), "damaged"
    ),
    "PNG, text between its pixels": rejected(
        ".png",
        png(
            header(),
            chunk(b"IDAT", _SQUEEZED[:900]),
            chunk(b"tEXt", b"a\0b"),
            chunk(b"IDAT", _SQUEEZED[900:]),
        ),
        "damaged",
    ),
    "PNG, an empty chunk of pixels": kept(".png", png(header(), chunk(b"IDAT"), pixels(), chunk(b"IDAT"))),
    "PNG, too few rows": rejected(".png", png(header(), pixels(rows()[:-300])), "damaged"),
    "PNG, too many rows": rejected(".png", png(header(), pixels(rows() * 2)), "damaged"),
    "PNG, an unknown filter": rejected(".png", png(header(), pixels(b"\x09" + rows()[1:])), "damaged"),
    "PNG, an unknown interlacing": rejected(".png", png(header(interlaced=7), pixels()), "damaged"),
    "PNG, a depth that is none": rejected(".png", png(header(depth=3), pixels()), "unreadable"),
    "PNG, no width": rejected(".png", png(header(size=(0, 5)), pixels()), "unreadable"),
    "PNG, a width of 31 bits": rejected(".png", png(header(size=(0x7FFFFFFF, 1)), pixels()), "too large"),
    "PNG, a chunk of 4 gigabytes": rejected(
        ".png", PLAIN[:33] + b"\xff\xff\xff\xfftEXt" + PLAIN[33:], "damaged"
    ),
    "PNG, a text bomb": rejected(
        ".png", png(header(), chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 24))), pixels()), "damaged"
    ),
    "PNG, an international text bomb": rejected(
        ".png",
        png(header(), chunk(b"iTXt", b"a\0\1\0\0\0" + zlib.compress(bytes(1 << 24))), pixels()),
        "damaged",
    ),
    "PNG, broken color profile": kept(".png", png(header(), chunk(b"iCCP", b"x\0\0junk"), pixels())),
    "PNG, color profile": kept(
        ".png", encoded(RGB, "PNG", icc_profile=b"profile" * 99), "color profile ignored"
    ),
    "PNG, gamma and colors of light": kept(
        ".png", png(header(), chunk(b"gAMA", struct.pack(">I", 22_000)), chunk(b"cHRM", bytes(32)), pixels())
    ),
    "PNG, significant bits, background, density": kept(
        ".png",
        png(
            header(), chunk(b"sBIT", b"\5\6\5"), chunk(b"bKGD", bytes(6)), chunk(b"pHYs", bytes(9)), pixels()
        ),
    ),
    "PNG, a chunk that none knows": kept(".png", png(header(), chunk(b"abCd", b"x" * 99), pixels())),
    "PNG, a chunk that a decoder must know": converted(".png", png(header(), chunk(b"ABCD", b"x"), pixels())),
    "PNG, crushed for iPhones": rejected(
        ".png", png(chunk(b"CgBI", b"P\0 \2"), header(), chunk(b"IDAT", _SQUEEZED[2:-4])), "damaged"
    ),
    "PNG, animated": rejected(".apng", _animated(3), "animated"),
    "PNG, animated, a palette": rejected(
        ".png", encoded(PALETTE, "PNG", save_all=True, append_images=[OTHER.quantize(9)]), "animated"
    ),
    "PNG, animated, RGBA": rejected(
        ".png", encoded(RGBA, "PNG", save_all=True, append_images=[RGBA.rotate(180)]), "animated"
    ),
    "PNG, animated, a picture that is no frame": rejected(
        ".png",
        encoded(RGB, "PNG", save_all=True, default_image=True, append_images=[OTHER, GRAY.convert("RGB")]),
        "animated",
    ),
    "PNG, an animation of one frame": converted(
        ".png",
        png(
            header(),
            chunk(b"acTL", struct.pack(">II", 1, 0)),
            chunk(b"fcTL", struct.pack(">5I2H2B", 0, WIDTH, HEIGHT, 0, 0, 1, 1, 0, 0)),
            pixels(),
        ),
    ),
    "PNG, an animation of four billion frames": converted(
        ".png", png(header(), chunk(b"acTL", b"\xff" * 4 + bytes(4)), pixels())
    ),
    **{
        f"PNG, orientation {number}": (
            converted(".png", encoded(RGB, "PNG", exif=exif(number)), orientation=number)
            if number in (3, 6)
            else kept(".png", encoded(RGB, "PNG", exif=exif(number)))
        )
        for number in (1, 3, 6, 9)
    },
    "PNG, orientation behind its pixels": converted(
        ".png", png(header(), pixels(), chunk(b"eXIf", exif(8).tobytes()[6:])), orientation=8
    ),
    "PNG, EXIF that is none": kept(".png", png(header(), chunk(b"eXIf", b"junk"), pixels())),
    "PNG, bytes behind its end": converted(".png", PLAIN + b"junk"),
    "PNG, another behind its end": converted(".png", PLAIN + encoded(OTHER, "PNG")),
    "PNG, line ends of another system": rejected(".png", PLAIN.replace(b"\r\n", b"\n"), "unreadable"),
    "PNG, half of it": rejected(".png", PLAIN[: len(PLAIN) // 2], "damaged"),
    "PNG, signature alone": rejected(".png", PLAIN[:8], "unreadable"),
    "PNG, cut in its header": rejected(".png", PLAIN[:20], "damaged"),
    "PNG, a bomb of pixels": rejected(
        ".png", png(header(1, 0, size=(30_000, 30_000)), pixels(bytes(1 << 20))), "too large"
    ),
    "PNG, 80 megapixels in a kilobyte": rejected(
        ".png", png(header(size=(9_000, 8_900)), pixels(bytes(1 << 10))), "damaged"
    ),
    "PNG, 1 x 1": kept(".png", encoded(RGB.crop((5, 5, 6, 6)), "PNG")),
    "PNG, 999,999 x 1": kept(".png", png(header(1, 0, size=(999_999, 1)), pixels(b"\0" + bytes(125_000)))),
    "PNG, 1,000,001 x 1": rejected(
        ".png", png(header(1, 0, size=(1_000_001, 1)), pixels(b"\0" + bytes(125_001))), "too large"
    ),
}
