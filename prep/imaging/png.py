"""Parse the structure of a PNG file; Pillow checks less of it than libpng, which TensorFlow uses.

Format: www.w3.org/TR/png-3. Pixels are not decoded here.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Width, height, depth, color type, compression, filter, interlacing.
_HEADER = struct.Struct(">II5B")
_PALETTE = 3
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# Each pass of an interlaced image: its first column and row, and the steps between them (section 8.1).
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
# zlib expands a byte to at most 1,032 bytes, so this bounds the memory.
_INFLATE_BYTES = 1 << 14


class _Chunk(NamedTuple):
    name: bytes
    body: memoryview
    checksum: int


def is_plain(data: bytes) -> bool:
    """Return whether all chunks are complete, in order and undamaged, without tRNS.

    The only critical chunks of such a file are the header, the pixels and the end.
    """
    chunks = list(_chunks(data))
    names = [chunk.name for chunk in chunks]
    # pixels may be in several chunks, which must be consecutive
    runs = [
        name for name, before in zip(names, [b"", *names], strict=False) if name != b"IDAT" or before != name
    ]
    return (
        names[:1] == [b"IHDR"]
        # an uppercase first letter marks a critical chunk
        and [name for name in runs if name[:1].isupper()] == [b"IHDR", b"IDAT", b"IEND"]
        and all(name.isalpha() and name not in (b"tRNS", b"acTL") for name in names)
        and all(zlib.crc32(chunk.body, zlib.crc32(chunk.name)) == chunk.checksum for chunk in chunks)
        and len(SIGNATURE) + sum(12 + len(chunk.body) for chunk in chunks) == len(data)
        # compression, filter, interlacing
        and _HEADER.unpack_from(chunks[0].body)[4:] in ((0, 0, 0), (0, 0, 1))
    )


def pixel_fault(data: bytes) -> str | None:
    """Return how the pixels contradict the header, or None.

    Pillow fills in missing rows with black, and a missing palette with shades of gray; libpng fails.

    Raises:
        zlib.error: the pixels are damaged in another way.
    """
    chunks = list(_chunks(data))
    header = _HEADER.unpack_from(next(chunk.body for chunk in chunks if chunk.name == b"IHDR"))
    expected = _num_pixel_bytes(*header)
    before = takewhile(lambda chunk: chunk.name != b"IDAT", chunks)
    if header[3] == _PALETTE and not any(chunk.name == b"PLTE" and len(chunk.body) for chunk in before):
        return "no palette before the pixels"
    compressed = b"".join(chunk.body for chunk in chunks if chunk.name == b"IDAT")
    stream = zlib.decompressobj()
    found = 0
    for start in range(0, len(compressed), _INFLATE_BYTES):
        found += len(stream.decompress(compressed[start : start + _INFLATE_BYTES]))
        if stream.eof or found > expected:
            break
    if found > expected:
        return f"there are more pixels than their {expected} bytes"
    if found < expected:
        return f"the pixels end after {found} of {expected} bytes"
    return None if stream.eof else "the checksum of the pixels is cut"


def _num_pixel_bytes(
    width: int, height: int, depth: int, color: int, _compression: int, _filtering: int, interlaced: int
) -> int:
    total = 0
    for left, top, step_x, step_y in _PASSES if interlaced else ((0, 0, 1, 1),):
        columns, rows = -(-(width - left) // step_x), -(-(height - top) // step_y)
        if columns > 0 and rows > 0:
            # a byte before each row states its filter
            total += rows * (1 + (columns * depth * _CHANNELS[color] + 7) // 8)
    return total


def _chunks(data: bytes) -> Iterator[_Chunk]:
    """Yield each complete chunk, up to the end marker."""
    view, offset, name = memoryview(data), len(SIGNATURE), b""
    while offset + 12 <= len(data) and name != b"IEND":
        length, name = int.from_bytes(view[offset : offset + 4], "big"), data[offset + 4 : offset + 8]
        end = offset + 12 + length
        if end > len(data):
            return
        yield _Chunk(name, view[offset + 8 : end - 4], int.from_bytes(view[end - 4 : end], "big"))
        offset = end
