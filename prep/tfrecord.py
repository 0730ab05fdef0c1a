"""The TFRecord file format: frames around records, and a reader that checks every one of them.

Format: tensorflow/core/lib/io/record_writer.h. A frame is the data's length (uint64, little-endian), the
masked CRC-32C of those 8 bytes, the data, the masked CRC-32C of the data.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import google_crc32c

from tfshards.schemas import TfshardsError
from tfshards.schemas.index import FRAME_OVERHEAD

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")


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
    return _header(sum(map(len, record))), *record, _FOOTER.pack(masked_crc32c(*record))


def masked_crc32c(*parts: bytes) -> int:
    """Return the CRC-32C of the parts together, rotated and offset as TFRecord files hold it."""
    crc = 0
    for part in parts:
        crc = google_crc32c.extend(crc, part)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_records(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the data of each record, with both checksums of every frame compared.

    Raises:
        RecordError: a frame is cut, or a checksum does not hold. No length is believed beyond the file's end.
    """
    with path.open("rb", buffering=1 << 20) as file:
        remaining = os.fstat(file.fileno()).st_size
        offset = 0
        number = 0
        while remaining:
            data = _read_frame(file, path, number, offset, remaining)
            yield offset, data
            offset += len(data) + FRAME_OVERHEAD
            remaining -= len(data) + FRAME_OVERHEAD
            number += 1


def _read_frame(file: BinaryIO, path: Path, number: int, offset: int, remaining: int) -> bytes:
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise RecordError(path, number, offset, f"the file ends {len(header)} bytes into the frame's header")
    length, crc = _HEADER.unpack(header)
    if crc != masked_crc32c(header[:8]):
        raise RecordError(path, number, offset, "the checksum of the record's length does not hold")
    if length > remaining - FRAME_OVERHEAD:
        raise RecordError(path, number, offset, f"says {length} bytes of data; the file ends before")
    data, footer = file.read(length), file.read(_FOOTER.size)
    if len(footer) < _FOOTER.size:
        raise RecordError(path, number, offset, "the file became shorter while it was read")
    if _FOOTER.unpack(footer)[0] != masked_crc32c(data):
        raise RecordError(path, number, offset, "the checksum of the record's data does not hold")
    return data


@lru_cache(maxsize=1024)
def _header(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + _FOOTER.pack(masked_crc32c(packed))
