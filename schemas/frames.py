"""The frame of a record in a TFRecord file: its header, and the checksums of records as frames have them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import google_crc32c
import numpy as np
import numpy.typing as npt

from tfshards.schemas.digests import MASK_DELTA, masked


def masked_crc32c(*parts: bytes) -> int:
    """Return the CRC-32C of the concatenated parts, rotated and offset as TFRecord files store it."""
    crc = 0
    for part in parts:
        crc = google_crc32c.extend(crc, part)
    return int((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


def masked_crc32c_of(records: Iterable[bytes]) -> npt.NDArray[np.uint32]:
    """Return the masked CRC-32C of each record's data."""
    return masked(np.fromiter(map(google_crc32c.value, records), np.uint32))


@lru_cache(maxsize=1 << 16)
def header_of(length: int) -> bytes:
    """Return the header of the frame of a record: the length of its data, and the checksum of that."""
    data = length.to_bytes(8, "little")
    return data + masked_crc32c(data).to_bytes(4, "little")
