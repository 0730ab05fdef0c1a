"""Check that a fax-compressed TIFF holds all of its rows; libtiff leaves missing ones uninitialized.

Format: ITU-T T.4 and T.6 inside TIFF 6.0, sections 10 and 11. No pixels are decoded here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from tfshards.prep.imaging.whitelist import ImageError

# By the value of the tag: Pillow's names for the compressions of black and white pages.
COMPRESSIONS = {2: "tiff_ccitt", 3: "group3", 4: "group4", 32771: "tiff_raw_16"}
COMPRESSION, T4_OPTIONS, STRIP_OFFSETS, STRIP_SIZES = 259, 292, 273, 279
_WIDTH, _HEIGHT, _BITS, _WHITE_IS, _SAMPLES, _ROWS, _TILE_OFFSETS = 256, 257, 258, 262, 277, 278, 324
_FILL_ORDER, _T6_OPTIONS = 266, 293
_WORD_ALIGNED = 32771
_SHORT, _LONG = 3, 4
_ALL_ROWS = 0xFFFFFFFF
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))

Tags = Mapping[int, object]


def check_rows(
    tags: Tags,
    data: bytes,
    encode: Callable[[bool, tuple[int, int]], bytes],
    decode: Callable[[bytes], bytes],
) -> None:
    """Raise ImageError unless every pixel of a fax-compressed page comes from the file.

    libtiff decodes the strips of a page into the same memory, one after another. If a strip ends early, the
    remaining rows keep the pixels of the previous strip. Therefore each strip is decoded once after a white
    strip and once after a black one: pixels that differ are not in the file.

    Args:
        tags: the tags of the page.
        data: the whole file.
        encode: returns an all-white (True) or all-black page of this width and height in one strip, with the
            page's compression and options; the first pixel is the highest bit of a byte.
        decode: returns the pixels of a TIFF, one byte for eight pixels of a row.
    """
    if _TILE_OFFSETS in tags:
        raise ImageError("unsupported", "fax-compressed tiles")
    if _number(tags, COMPRESSION) == _WORD_ALIGNED:
        # libtiff cannot read its own files of this compression
        raise ImageError("unsupported", f"compression {_WORD_ALIGNED}, which libtiff decodes to other pixels")
    width, height = _number(tags, _WIDTH), _number(tags, _HEIGHT)
    rows = min(_number(tags, _ROWS, _ALL_ROWS) or _ALL_ROWS, height)
    strips = [
        data[offset : offset + size]
        for offset, size in zip(_numbers(tags, STRIP_OFFSETS), _numbers(tags, STRIP_SIZES), strict=True)
    ]
    if len(strips) != -(-height // rows):
        raise ImageError("damaged", f"{len(strips)} strips of {rows} rows, where the page has {height}")
    seen = []
    for is_white in (True, False):
        filler = encode(is_white, (width, rows))
        if _number(tags, _FILL_ORDER, 1) == 2:
            filler = filler.translate(_REVERSED)
        pixels = decode(_between(filler, strips, tags, rows))
        stride = -(-width // 8) * rows
        seen.append([pixels[start : start + stride] for start in range(stride, len(pixels), 2 * stride)])
    for index, (one, other) in enumerate(zip(*seen, strict=True)):
        if one != other:
            raise ImageError("damaged", f"strip {index} of {len(strips)} ends before its last row")


def _between(filler: bytes, strips: Sequence[bytes], tags: Tags, rows: int) -> bytes:
    """Return a page with the filler before each of the strips."""
    header = 8
    offsets, sizes, end = [], [], header + len(filler)
    for strip in strips:
        offsets += [header, end]
        sizes += [len(filler), len(strip)]
        end += len(strip)
    width, height = _number(tags, _WIDTH), _number(tags, _HEIGHT)
    entries = {
        _WIDTH: (_LONG, [width]),
        _HEIGHT: (_LONG, [height + rows * len(strips)]),
        _BITS: (_SHORT, [1]),
        COMPRESSION: (_SHORT, [_number(tags, COMPRESSION)]),
        _WHITE_IS: (_SHORT, [1]),
        _FILL_ORDER: (_SHORT, [_number(tags, _FILL_ORDER, 1)]),
        STRIP_OFFSETS: (_LONG, offsets),
        _SAMPLES: (_SHORT, [1]),
        _ROWS: (_LONG, [rows]),
        STRIP_SIZES: (_LONG, sizes),
        **{tag: (_LONG, [_number(tags, tag)]) for tag in (T4_OPTIONS, _T6_OPTIONS) if tag in tags},
    }
    directory = end + end % 2
    more = directory + 2 + 12 * len(entries) + 4
    body, longer = struct.pack("<H", len(entries)), b""
    for tag, (kind, values) in sorted(entries.items()):
        packed = struct.pack(f"<{len(values)}{'H' if kind == _SHORT else 'I'}", *values)
        if len(packed) > 4:
            packed, longer = struct.pack("<I", more + len(longer)), longer + packed
        body += struct.pack("<HHI", tag, kind, len(values)) + packed.ljust(4, b"\0")
    start = b"II*\0" + struct.pack("<I", directory)
    return b"".join([start, filler, *strips, bytes(end % 2), body, bytes(4), longer])


def _number(tags: Tags, tag: int, default: int | None = None) -> int:
    return _numbers(tags, tag, default)[0]


def _numbers(tags: Tags, tag: int, default: int | None = None) -> Sequence[int]:
    found = tags[tag] if default is None else tags.get(tag, default)
    return cast("Sequence[int]", found if isinstance(found, tuple) else (found,))
