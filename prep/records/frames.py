"""Write and parse the frames of a TFRecord file.

Format: tensorflow/core/lib/io/record_writer.h. A frame is the length of the data (uint64, little-endian), the
masked CRC-32C of those 8 bytes, the data, and the masked CRC-32C of the data.
"""

from __future__ import annotations

import struct
from functools import lru_cache

import google_crc32c

from tfshards.schemas import InputError
from tfshards.schemas.crc32c import MASK_DELTA
from tfshards.schemas.index import MAX_RECORD_BYTES

FOOTER = struct.Struct("<I")

_HEADER = struct.Struct("<QI")
_LENGTH = struct.Struct("<Q")


def frame(*record: bytes) -> tuple[bytes, ...]:
    """Return the frame of a record in parts: the header, the parts of the record, the footer.

    Raises:
        InputError: the record is longer than protobuf can parse.
    """
    return _header(sum(map(len, record))), *record, FOOTER.pack(masked_crc32c(*record))


def masked_crc32c(*parts: bytes) -> int:
    """Return the CRC-32C of the concatenated parts, rotated and offset as TFRecord files store it."""
    crc = 0
    for part in parts:
        crc = google_crc32c.extend(crc, part)
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


def parse_header(header: bytes) -> int | None:
    """Return the data length that a header of 12 bytes states; None if its checksum does not match."""
    length, crc = _HEADER.unpack(header)
    return length if crc == masked_crc32c(header[:8]) else None


@lru_cache(maxsize=1024)
def _header(length: int) -> bytes:
    if length > MAX_RECORD_BYTES:
        raise InputError("record-too-large", length=length, max_record_bytes=MAX_RECORD_BYTES)
    packed = _LENGTH.pack(length)
    return packed + FOOTER.pack(masked_crc32c(packed))
