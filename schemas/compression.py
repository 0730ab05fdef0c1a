"""The compressions of shards: none, or gzip, which TensorFlow reads as well."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable
from typing import BinaryIO, Literal, TypeAlias, cast

Compression: TypeAlias = Literal["none", "gzip"]
# Raised when damaged compressed data are read.
CODEC_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
# The most bytes that one compressed byte can hold: zlib.net/zlib_tech.html
MAX_RATIO = 1032
_GZIP_LEVEL = 6


def unpacked(file: BinaryIO) -> BinaryIO:
    """Return a file of the uncompressed bytes of a file, which it closes."""
    found = gzip.GzipFile(fileobj=file, mode="rb")
    # as for a file that it opens itself: it closes this one
    found.myfileobj = cast("io.FileIO", file)
    return cast("BinaryIO", found)


def packed(buffers: Iterable[bytes]) -> bytes:
    """Return the bytes of some buffers, compressed by gzip; a shard holds such parts one after the other."""
    # 16 selects the header of gzip (RFC 1952), in which zlib sets the time to 0. Each call writes one member,
    # so that threads can compress several in parallel.
    compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return b"".join([*map(compressor.compress, buffers), compressor.flush()])


def recorded_release(compression: str) -> dict[str, str]:
    """Return a compression with the release of its library, as the options in a manifest have it.

    Another release may write different bytes.
    """
    return {compression: zlib.ZLIB_RUNTIME_VERSION}
