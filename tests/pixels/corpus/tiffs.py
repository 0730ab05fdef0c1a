"""TIFF files: any layout, written by hand, and any kind of pixels in any kind of compression."""

import itertools
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, TiffImagePlugin

from tests.pixels.corpus.kind import (
    BILEVEL,
    CMYK,
    GRAY,
    GRAY_16,
    GRAY_ALPHA,
    HEIGHT,
    OTHER,
    PALETTE,
    RGB,
    RGBA,
    WIDTH,
    Kind,
    converted,
    encoded,
    exif,
    noise,
    rejected,
    shows,
)

# Long: kind of page, width, height, offset, rows, bytes. All others are short.
_LONG = (254, 256, 257, 273, 278, 279)


class Page(NamedTuple):
    """A page: its numbers, of shape (height, width) or (height, width, bands), and tags."""

    numbers: np.ndarray
    photometric: int = 1
    extra: Sequence[int] = ()
    bits: int | None = None
    kind: int = 0
    more: Mapping[int, Sequence[int]] = {}


def tiff(*pages: Page, order: str = "<") -> bytes:
    """Return an uncompressed TIFF of one strip a page."""
    made, link = bytearray((b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, 0)), 4
    for page in pages:
        numbers = page.numbers if page.numbers.ndim == 3 else page.numbers[..., None]
        high, wide, bands = numbers.shape
        bits = page.bits or 8 * numbers.dtype.itemsize
        data = numbers.astype(numbers.dtype.newbyteorder(order)).tobytes()
        if bits < 8:
            each = numbers.astype(np.uint8) >> np.arange(bits - 1, -1, -1, dtype=np.uint8) & 1
            data = np.packbits(each.reshape(high, -1), axis=1).tobytes()
        tags = {
            254: [page.kind],
            256: [wide],
            257: [high],
            258: [bits] * bands,
            259: [1],
            262: [page.photometric],
        }
        tags |= {273: [len(made)], 277: [bands], 278: [high], 279: [len(data)], 284: [1]}
        tags |= {338: page.extra} if page.extra else {}
        tags |= {339: ["?uif".index(numbers.dtype.kind)] * bands, **page.more}
        made += data + bytes(len(data) % 2)
        entries = b""
        for tag, values in sorted(tags.items()):
            raw = struct.pack(f"{order}{len(values)}{'I' if tag in _LONG else 'H'}", *values)
            if len(raw) > 4:
                raw, made = struct.pack(f"{order}I", len(made)), made + raw
            kind = 4 if tag in _LONG else 3
            entries += struct.pack(f"{order}HHI", tag, kind, len(values)) + raw.ljust(4, b"\0")
        struct.pack_into(f"{order}I", made, link, len(made))
        made += struct.pack(f"{order}H", len(tags)) + entries
        made, link = made + bytes(4), len(made)
    return bytes(made)


SHADES = noise()[..., 0]
DEEP = SHADES.astype(np.uint16) * 256 + noise(seed=8)[..., 0]
SMALL = (SHADES >> 1).astype(np.int8)
FLOATS = SHADES / np.float32(255)
_EIGHT = noise(8)
_ORDERS = {"little-endian": "<", "big-endian": ">"}
_RAMP = [*range(0, 65536, 256)] * 3


def _of_bands(bands: int, photometric: int, extra: int, bits: int, order: str) -> bytes:
    numbers = _EIGHT[..., :bands].astype(np.uint16 if bits == 16 else np.uint8)
    return tiff(Page(numbers, photometric, [extra] * (bands - (3 if photometric == 2 else 1))), order=order)


BANDS = {
    f"TIFF, {bands} bands of {bits} bits, photometric {photometric}, {name}": _of_bands(
        bands, photometric, 0, bits, order
    )
    for (photometric, bands), bits, (name, order) in itertools.product(
        [(1, 2), (1, 4), (1, 5), (1, 8), (2, 4), (2, 5), (2, 6), (2, 8)], (8, 16), _ORDERS.items()
    )
}
_OTHER_BANDS = {
    "TIFF, RGBA and a band": Page(_EIGHT[..., :5], 2, [2, 0]),
    "TIFF, CMYK and a band": Page(_EIGHT[..., :5], 5, [0]),
    "TIFF, a palette and a band": Page(_EIGHT[..., :2], 3, [0], more={320: _RAMP}),
    "TIFF, two bands without their kind": Page(_EIGHT[..., :2]),
    "TIFF, planes of RGB and a band": Page(_EIGHT[..., :4], 2, [0], more={284: [2]}),
}
_FULL, _SECOND = Page(SHADES), Page(SHADES[::-1].copy())
_SMALLER, _TINY = Page(SHADES[::2, ::2].copy(), kind=1), Page(SHADES[::4, ::4].copy(), kind=1)
_PLAIN = np.dstack([SHADES] * 3)

KINDS: dict[str, Kind] = {
    **{name: rejected(".tif", data, "unsupported") for name, data in BANDS.items()},
    **{name: rejected(".tif", tiff(page), "unsupported") for name, page in _OTHER_BANDS.items()},
    **{
        f"TIFF, 0 is white, {bits} bits, {name}": shows(
            converted(".tif", tiff(Page(SHADES >> 8 - bits, 0, bits=bits), order=order), *notes),
            255 - np.dstack([(SHADES >> 8 - bits).astype(int) * (255 // (2**bits - 1))] * 3),
        )
        for (bits, notes), (name, order) in itertools.product(
            {1: ["1 bit to 8"], 2: [], 4: [], 8: []}.items(), _ORDERS.items()
        )
    },
    "TIFF, 0 is white, 16 bits, little-endian": shows(
        converted(".tif", tiff(Page(DEEP, 0)), "16 bits to 8"), np.dstack([(0xFFFF - DEEP) >> 8] * 3)
    ),
    "TIFF, nothing is white, 16 bits": shows(
        converted(".tif", tiff(Page(DEEP)).replace(b"\6\1\3\0", b"\7\1\3\0"), "16 bits to 8"),
        np.dstack([DEEP >> 8] * 3),
    ),
    # Pillow does not open it
    "TIFF, 0 is white, 16 bits, big-endian": rejected(".tif", tiff(Page(DEEP, 0), order=">"), "unsupported"),
    **{
        f"TIFF, signed {numbers.dtype.itemsize * 8} bits, {what}, {name}": shows(
            converted(".tif", tiff(Page(numbers), order=order), *notes), np.dstack([picture] * 3)
        )
        if picture is not None
        else rejected(".tif", tiff(Page(numbers), order=order), "unsupported")
        for (what, numbers, picture, notes), (name, order) in itertools.product(
            [
                ("positive", SMALL, SMALL, []),
                ("positive", DEEP.astype(np.int16) & 0x7FFF, (DEEP & 0x7FFF) >> 8, ["16 bits to 8"]),
                ("negative", SMALL - np.int8(1), None, []),
                ("negative", SMALL.astype(np.int16) - np.int16(1), None, []),
            ],
            _ORDERS.items(),
        )
    },
    "TIFF, signed, three bands": rejected(
        ".tif", tiff(Page(_EIGHT[..., :3].view(np.int8), 2)), "unsupported"
    ),
    "TIFF, signed, 0 is white": rejected(".tif", tiff(Page(SMALL, 0)), "unsupported"),
    **{
        f"TIFF, {name}": shows(converted(".tif", tiff(*pages)), _PLAIN)
        for name, pages in {
            "overviews": [_FULL, _SMALLER, _TINY],
            "a thumbnail before it": [_TINY, _FULL],
            "an overview of the old kind": [_FULL, _SECOND._replace(more={255: [2]})],
            "only an overview": [_FULL._replace(kind=1)],
        }.items()
    },
    "TIFF, a thumbnail before a page whose kind is text": shows(
        converted(".tif", tiff(_TINY, _FULL).replace(b"\xfe\0\4\0\1\0\0\0\0", b"\xfe\0\2\0\1\0\0\0\0")),
        _PLAIN,
    ),
    "TIFF, overviews, big-endian": shows(converted(".tif", tiff(_FULL, _SMALLER, order=">")), _PLAIN),
    "TIFF, overviews and a page": rejected(".tif", tiff(_FULL, _SMALLER, _SECOND), "animated"),
    "TIFF, a mask of its pixels": rejected(".tif", tiff(_FULL, _FULL._replace(kind=4)), "animated"),
    "TIFF, a page of many bands": rejected(".tif", tiff(_FULL, Page(_EIGHT)), "animated"),
}


# TIFF: any kind of pixels in any kind of compression


PLAIN = encoded(RGB, "TIFF")


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


KINDS |= {
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
    "TIFF, 32 bits": rejected(".tif", encoded(Image.new("I", (3, 3), 7), "TIFF"), "unsupported"),
    "TIFF, floats": rejected(".tif", encoded(Image.new("F", (3, 3), 0.5), "TIFF"), "unsupported"),
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
