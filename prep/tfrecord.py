"""The TFRecord file format: frames around records, and a reader that checks every one of them.

Format: tensorflow/core/lib/io/record_writer.h. A frame is the data's length (uint64, little-endian), the
masked CRC-32C of those 8 bytes, the data, the masked CRC-32C of the data.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import google_crc32c

from tfshards.schemas import TfshardsError
from tfshards.schemas.index import FRAME_OVERHEAD
from tfshards.schemas.manifest import Compression

_HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
_BUFFER_BYTES = 1 << 20
_PART_BYTES = 1 << 26


class RecordError(TfshardsError):
    """A shard's bytes are not what they were when it was written.

    Attributes:
        path: the shard.
        record: the number of the first record that cannot be trusted.
        offset: the byte at which its frame starts.
    """

    def __init__(self, path: Path, record: int, offset: int, fault: str) -> None:
        self.path, self.record, self.offset, self.fault = path, record, offset, fault
        super().__init__(f"{path}: record {record} at byte {offset}: {fault}")


def frame(*record: bytes) -> tuple[bytes, ...]:
    """Return the frame of a record in parts, in order: header, the record's own parts, footer."""
    return _header(sum(map(len, record))), *record, FOOTER.pack(masked_crc32c(*record))


def masked_crc32c(*parts: bytes) -> int:
    """Return the CRC-32C of the parts together, rotated and offset as TFRecord files hold it."""
    crc = 0
    for part in parts:
        crc = google_crc32c.extend(crc, part)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_records(path: Path, compression: Compression = "none") -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the data of each record, with both checksums of every frame compared.

    Offsets count the bytes of the frames, uncompressed.

    Raises:
        RecordError: a frame is cut, a checksum does not hold, or the compressed data are damaged. No memory
            is taken for a length that the file does not have.
    """
    offset = number = 0
    with open_shard(path, compression) as file:
        try:
            while header := file.read(_HEADER.size):
                data = _read_frame(file, header, RecordPlace(path, number, offset))
                yield offset, data
                offset += len(data) + FRAME_OVERHEAD
                number += 1
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise RecordError(path, number, offset, f"the compressed data are damaged: {error}") from None


class RecordPlace(NamedTuple):
    """Where a frame stands: its file, its number there, and the byte at which it starts."""

    path: Path
    record: int
    offset: int


def open_shard(path: Path, compression: Compression) -> AbstractContextManager[BinaryIO]:
    """Return a shard's file, open for reading its frames; positions in it count uncompressed bytes."""
    if compression == "gzip":
        return cast("AbstractContextManager[BinaryIO]", gzip.open(path))
    return path.open("rb", buffering=_BUFFER_BYTES)


def _read_frame(file: BinaryIO, header: bytes, place: RecordPlace) -> bytes:
    if len(header) < _HEADER.size:
        raise RecordError(*place, f"the file ends {len(header)} bytes into the frame's header")
    length, crc = _HEADER.unpack(header)
    if crc != masked_crc32c(header[:8]):
        raise RecordError(*place, "the checksum of the record's length does not hold")
    data = read_exactly(file, length)
    footer = file.read(FOOTER.size) if len(data) == length else b""
    if len(footer) < FOOTER.size:
        raise RecordError(*place, f"says {length} bytes of data; the file ends before")
    if FOOTER.unpack(footer)[0] != masked_crc32c(data):
        raise RecordError(*place, "the checksum of the record's data does not hold")
    return data


def read_exactly(file: BinaryIO, length: int) -> bytes:
    """Return so many bytes, or all that are left; in parts, since a length may be anything."""
    if length <= _BUFFER_BYTES:
        return file.read(length)
    parts, missing = [], length
    while missing and (part := file.read(min(missing, _PART_BYTES))):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _header(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + FOOTER.pack(masked_crc32c(packed))
