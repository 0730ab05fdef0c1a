"""The compressions of shards: one table, from which all else is derived."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Literal, TypeAlias, cast

Compression: TypeAlias = Literal["none", "gzip"]

_GZIP_LEVEL = 6


@dataclass(frozen=True)
class Codec:
    """How records are compressed.

    Attributes:
        tensorflow: what ``tf.data.TFRecordDataset`` calls it.
        release: version of the library; another one may write different bytes.
        max_ratio: the most bytes that one compressed byte can hold.
        compress: returns the compressed bytes of some frames; a shard holds them one after the other.
        unpack: returns a file of the uncompressed bytes of a file, which it closes.
        errors: raised when damaged compressed data are read.
    """

    tensorflow: str
    release: str
    max_ratio: int
    compress: Callable[[Iterable[bytes]], bytes]
    unpack: Callable[[BinaryIO], BinaryIO]
    errors: tuple[type[Exception], ...]


def _gzip(buffers: Iterable[bytes]) -> bytes:
    # 16 selects the header of gzip (RFC 1952), in which zlib sets the time to 0. Each call writes one member,
    # so that threads can compress several in parallel.
    compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return b"".join([*map(compressor.compress, buffers), compressor.flush()])


def _gunzip(file: BinaryIO) -> BinaryIO:
    unpacked = gzip.GzipFile(fileobj=file, mode="rb")
    # as for a file that it opens itself: it closes this one
    unpacked.myfileobj = cast("io.FileIO", file)
    return cast("BinaryIO", unpacked)


# Every compression except "none".
CODECS: Mapping[str, Codec] = {
    "gzip": Codec(
        tensorflow="GZIP",
        release=zlib.ZLIB_RUNTIME_VERSION,
        # zlib.net/zlib_tech.html
        max_ratio=1032,
        compress=_gzip,
        unpack=_gunzip,
        errors=(EOFError, gzip.BadGzipFile, zlib.error),
    ),
}
COMPRESSIONS = ("none", *CODECS)
# Raised when damaged compressed data are read.
CODEC_ERRORS = tuple(dict.fromkeys(error for codec in CODECS.values() for error in codec.errors))


def tensorflow_name(compression: str) -> str:
    """Return what ``tf.data.TFRecordDataset`` calls a compression."""
    return CODECS[compression].tensorflow if compression in CODECS else ""


def recorded_release(compression: str) -> dict[str, str]:
    """Return a compression with the release of its library, as the options in a manifest have it."""
    return {compression: CODECS[compression].release}
