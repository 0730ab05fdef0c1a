"""TIFF of science: any number of bands, 0 as white, signed numbers, and pages that are overviews."""

import itertools
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .kind import Kind, converted, rejected, shows
from .modes import noise

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


GRAY = noise()[..., 0]
DEEP = GRAY.astype(np.uint16) * 256 + noise(seed=8)[..., 0]
SMALL = (GRAY >> 1).astype(np.int8)
FLOATS = GRAY / np.float32(255)
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
_FULL, _SECOND = Page(GRAY), Page(GRAY[::-1].copy())
_SMALLER, _TINY = Page(GRAY[::2, ::2].copy(), kind=1), Page(GRAY[::4, ::4].copy(), kind=1)
_PLAIN = np.dstack([GRAY] * 3)

KINDS: dict[str, Kind] = {
    **{name: rejected(".tif", data, "unsupported") for name, data in BANDS.items()},
    **{name: rejected(".tif", tiff(page), "unsupported") for name, page in _OTHER_BANDS.items()},
    **{
        f"TIFF, 0 is white, {bits} bits, {name}": shows(
            converted(".tif", tiff(Page(GRAY >> 8 - bits, 0, bits=bits), order=order), *notes),
            255 - np.dstack([(GRAY >> 8 - bits).astype(int) * (255 // (2**bits - 1))] * 3),
        )
        for (bits, notes), (name, order) in itertools.product(
            {1: ["1 bit to 8"], 2: [], 4: [], 8: []}.items(), _ORDERS.items()
        )
    },
    **{
        f"TIFF, 0 is white, floats, {name}": shows(
            converted(".tif", tiff(Page(FLOATS, 0), order=order), "float to 8 bits"), 255 - _PLAIN
        )
        for name, order in _ORDERS.items()
    },
    "TIFF, 0 is white, 16 bits, little-endian": shows(
        converted(".tif", tiff(Page(DEEP, 0)), "16 bits to 8"), np.dstack([(0xFFFF - DEEP) >> 8] * 3)
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
    "TIFF, overviews, big-endian": shows(converted(".tif", tiff(_FULL, _SMALLER, order=">")), _PLAIN),
    "TIFF, overviews and a page": rejected(".tif", tiff(_FULL, _SMALLER, _SECOND), "animated"),
    "TIFF, a mask of its pixels": rejected(".tif", tiff(_FULL, _FULL._replace(kind=4)), "animated"),
    "TIFF, a page of many bands": rejected(".tif", tiff(_FULL, Page(_EIGHT)), "animated"),
}
