"""GIF, WebP, AVIF and HEIC: formats that hold one frame or many, opaque or not."""

import io
import itertools
import struct
from pathlib import Path

import numpy as np
from PIL import Image

from tests.pixels.corpus.kind import GRAY, HEIGHT, OTHER, PALETTE, RGB, RGBA, WIDTH, noise
from tests.pixels.corpus.tiffs import DEEP

from .kind import Kind, converted, encoded, exif, rejected

try:
    import pillow_heif
except ImportError:
    pillow_heif, HEIF_BITS = None, ()
else:
    HEIF_BITS = (10, 12)
    pillow_heif.register_heif_opener()

GIF = encoded(PALETTE, "GIF")
_STILL = encoded(Image.fromarray(noise()), "WEBP", lossless=True)


_AVIF = encoded(RGB, "AVIF")
# Written by imagecodecs 2026.3.6, since Pillow writes 8 bits only.
DEEP_AVIF = Path(__file__).parent / "avif"
_REDUCED = "16 bits of color to 8"


def _one_frame() -> bytes:
    """Return a WebP marked as animated with one frame."""
    still = encoded(RGB, "WEBP")
    sizes = struct.pack("<I", 32)[:3] + struct.pack("<I", 24)[:3]
    frame = bytes(6) + sizes + bytes(3) + b"\0" + still[12:]
    chunks = b"VP8X" + struct.pack("<II", 10, 2) + sizes + b"ANIM" + struct.pack("<I", 6) + bytes(6)
    chunks += b"ANMF" + struct.pack("<I", len(frame)) + frame
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WEBP" + chunks


def _two(image: Image.Image, file_format: str, other: Image.Image = OTHER, **options: object) -> bytes:
    return encoded(image, file_format, save_all=True, append_images=[other], **options)


def gif(frame=(0, 0, 4, 4), *, colors=True, local=False) -> bytes:
    """Return an uncompressed 4 x 4 GIF of four colors with one frame at (left, top, width, height)."""
    table = bytes([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255])
    bits = _packed(_codes(min(30, frame[2] * frame[3])))
    return b"".join(
        (
            b"GIF89a\4\0\4\0" + bytes([0x81 if colors else 0, 0, 0]),
            table if colors else b"",
            b"," + struct.pack("<4H", *frame) + bytes([0x81 if local else 0]),
            table[::-1] if local else b"",
            b"\2" + bytes([len(bits)]) + bits + b"\0;",
        )
    )


def _codes(number: int) -> list[int]:
    """Encode pixels as LZW; the table is cleared before every second pixel, so codes keep three bits."""
    codes: list[int] = []
    for place in range(number):
        codes += [4, place * 7 // 3 % 4] if place % 2 == 0 else [place * 7 // 3 % 4]
    return [*codes, 5]


def _packed(codes: list[int]) -> bytes:
    value = sum(code << 3 * place for place, code in enumerate(codes))
    return value.to_bytes(-(-3 * len(codes) // 8), "little")


KINDS: dict[str, Kind] = {
    "GIF, of 1987": converted(".gif", GIF.replace(b"GIF89a", b"GIF87a", 1), "palette to RGB"),
    "GIF, of 1989": converted(".gif", GIF.replace(b"GIF87a", b"GIF89a", 1), "palette to RGB"),
    "GIF, grey": converted(".gif", encoded(GRAY, "GIF"), "palette to RGB"),
    "GIF, not interlaced": converted(".gif", encoded(PALETTE, "GIF", interlace=False), "palette to RGB"),
    "GIF, transparent": converted(
        ".gif", encoded(PALETTE, "GIF", transparency=2), "palette to RGB", "alpha over white"
    ),
    "GIF, local palette": converted(".gif", gif(local=True), "palette to RGB"),
    "GIF, no palette": converted(".gif", gif(colors=False)),
    "GIF, a frame smaller than its screen": converted(".gif", gif((1, 1, 2, 2)), "palette to RGB"),
    "GIF, a frame larger than its screen": converted(".gif", gif((0, 0, 6, 5)), "palette to RGB"),
    "GIF, a frame outside of its screen": converted(".gif", gif((9, 9, 2, 2)), "palette to RGB"),
    "GIF, a frame of no width": rejected(".gif", gif((0, 0, 0, 4)), "damaged"),
    "GIF, animated": rejected(".gif", _two(PALETTE, "GIF", OTHER.quantize(16)), "animated"),
    "GIF, animated, transparent": rejected(
        ".gif", _two(PALETTE, "GIF", OTHER.quantize(16), transparency=2, disposal=2), "animated"
    ),
    "GIF, a thousand frames": rejected(".gif", GIF[:-1] + GIF[GIF.index(b",") : -1] * 999 + b";", "animated"),
    "GIF, comment": converted(".gif", encoded(PALETTE, "GIF", comment=b"hello"), "palette to RGB"),
    "GIF, no end": converted(".gif", GIF[:-1], "palette to RGB"),
    "GIF, cut": rejected(".gif", GIF[: len(GIF) // 2], "damaged"),
    "GIF, header alone": rejected(".gif", GIF[:13], "unreadable"),
    "GIF, bytes behind its end": converted(".gif", GIF + b"junk", "palette to RGB"),
    "GIF, 60,000 x 60,000 in a hundred bytes": rejected(
        ".gif", gif().replace(b"\4\0\4\0", b"\x60\xea\x60\xea", 2), "too large"
    ),
    "WebP, lossy": converted(".webp", encoded(RGB, "WEBP")),
    "WebP, lossless": converted(".webp", _STILL),
    "WebP, grey": converted(".webp", encoded(GRAY, "WEBP")),
    "WebP, lossy, alpha": converted(".webp", encoded(RGBA, "WEBP"), "alpha over white"),
    "WebP, lossless, alpha": converted(".webp", encoded(RGBA, "WEBP", lossless=True), "alpha over white"),
    "WebP, turned": converted(".webp", encoded(RGB, "WEBP", exif=exif(6)), orientation=6),
    "WebP, color profile": converted(
        ".webp", encoded(RGB, "WEBP", icc_profile=b"junk" * 99), "color profile ignored"
    ),
    "WebP, animated": rejected(".webp", _two(RGB, "WEBP"), "animated"),
    "WebP, animated, alpha": rejected(".webp", _two(RGBA, "WEBP", RGBA.rotate(180)), "animated"),
    "WebP, an animation of one frame": converted(".webp", _one_frame()),
    "WebP, cut": rejected(".webp", _STILL[:-100], "damaged"),
    "WebP, header alone": rejected(".webp", _STILL[:12], "unreadable"),
    "WebP, bytes behind its end": converted(".webp", _STILL + b"junk"),
    "WebP, 16,383 x 16,383 in a kilobyte": rejected(
        ".webp",
        _STILL.replace(_STILL[20:25], b"\x2f" + struct.pack("<I", 16_382 << 14 | 16_382), 1),
        "too large",
    ),
    "WebP, 9,000 x 9,000 in a kilobyte": rejected(
        ".webp", _STILL.replace(_STILL[20:25], b"\x2f" + struct.pack("<I", 8_999 << 14 | 8_999), 1), "damaged"
    ),
    "GIF, 9,000 x 9,000 in a hundred bytes": rejected(
        ".gif", gif((0, 0, 9_000, 9_000)).replace(b"\4\0\4\0", b"\x28\x23\x28\x23", 1), "damaged"
    ),
    "AVIF, 60,000 x 60,000 in a kilobyte": rejected(
        ".avif",
        _AVIF.replace(struct.pack(">II", WIDTH, HEIGHT), struct.pack(">II", 60_000, 60_000)),
        "unreadable",
    ),
    **{
        f"AVIF, {colors}, {bits} bits": converted(
            ".avif",
            (DEEP_AVIF / f"{colors}-{bits}.avif").read_bytes(),
            _REDUCED,
            *(["alpha over white"] if colors == "rgba" else []),
        )
        for colors, bits in itertools.product(("gray", "rgb", "rgba"), (10, 12))
    },
    "AVIF, still": converted(".avif", encoded(RGB, "AVIF")),
    "AVIF, grey": converted(".avif", encoded(GRAY, "AVIF")),
    "AVIF, alpha": converted(".avif", encoded(RGBA, "AVIF"), "alpha over white"),
    "AVIF, turned": converted(".avif", encoded(RGB, "AVIF", exif=exif(6)), orientation=6),
    "AVIF, mirrored": converted(".avif", encoded(RGB, "AVIF", exif=exif(5)), orientation=5),
    "AVIF, animated": rejected(".avif", _two(RGB, "AVIF"), "animated"),
    "AVIF, cut": rejected(".avif", encoded(RGB, "AVIF")[:-100], "damaged"),
    "AVIF, header alone": rejected(".avif", encoded(RGB, "AVIF")[:40], "unreadable"),
}


def _heif(image: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    pillow_heif.from_pillow(image).save(file, quality=-1, **options)
    return file.getvalue()


def deep_heif(mode: str, bits: int) -> bytes:
    """Return a HEIC of 10 or 12 bits, whose 16-bit samples in ``DEEP`` lose their lower ones."""
    file, data = io.BytesIO(), np.dstack([DEEP] * {"I;16": 1, "RGB;16": 3, "RGBA;16": 4}[mode])
    pillow_heif.options.SAVE_HDR_TO_12_BIT = bits == 12
    try:
        image = pillow_heif.from_bytes(mode=mode, size=DEEP.shape[::-1], data=data.tobytes())
        image.save(file, quality=-1, chroma=444)
    finally:
        pillow_heif.options.SAVE_HDR_TO_12_BIT = False
    return file.getvalue()


_HEIC_HEADER = b"\0\0\0\x18ftypheic" + bytes(99)

if pillow_heif is None:
    KINDS["HEIC, header alone"] = rejected(".heic", _HEIC_HEADER, "unsupported")
else:
    KINDS |= {
        "HEIC, header alone": rejected(".heic", _HEIC_HEADER, "unreadable"),
        **{
            f"HEIC, {mode}, {bits} bits": converted(".heic", deep_heif(mode, bits), *notes)
            for (mode, notes), bits in itertools.product(
                {
                    "I;16": ["16 bits to 8"],
                    "RGB;16": [_REDUCED],
                    "RGBA;16": [_REDUCED, "alpha over white"],
                }.items(),
                HEIF_BITS,
            )
        },
        "HEIC, still": converted(".heic", _heif(RGB)),
        "HEIC, alpha": converted(".heif", _heif(RGBA), "alpha over white"),
        # the decoder rotates it and then reports it as upright
        "HEIC, turned": converted(".heic", _heif(RGB, exif=exif(6).tobytes())),
        "HEIC, cut": rejected(".heic", _heif(RGB)[:-300], "damaged"),
        "HEIC, size in the header": rejected(
            ".heic", _heif(RGB).replace(b"clap\0\0\0", b"clap\0\0\1"), "damaged"
        ),
        "HEIC as .jpg": converted(".jpg", _heif(RGB)),
    }
