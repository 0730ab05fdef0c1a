"""The frame of a record in a TFRecord file, and the one check of frames that all readers share.

    | length, 8 bytes | its checksum, 4 | data | checksum of the data, 4 |
    |            header                 |      |         footer          |

A frame is sound if both checksums are right, and the length equals the one in the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import google_crc32c
import numpy as np
import numpy.typing as npt

from tfshards.schemas.digests import MASK_DELTA, masked
from tfshards.schemas.index import FOOTER_BYTES, FRAME_OVERHEAD, HEADER_BYTES, MAX_RECORD_BYTES


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


def footer_of(*data: bytes) -> bytes:
    """Return the footer of the frame of a record, which is given in parts."""
    return masked_crc32c(*data).to_bytes(FOOTER_BYTES, "little")


def stated_length(header: bytes) -> int | None:
    """Return the data length that a header of 12 bytes states; None if its checksum does not match."""
    length = int.from_bytes(header[:8], "little")
    return length if header == header_of(length) else None


def are_sound(
    records: Iterable[bytes],
    lengths: Sequence[int],
    headers: npt.NDArray[np.uint8],
    footers: npt.NDArray[np.uint8],
) -> npt.NDArray[np.bool_]:
    """Return which frames are sound.

    Args:
        records: the data of each frame.
        lengths: the length of each of them by the index, or one length for all.
        headers: shape ``(n, 12)``.
        footers: shape ``(n, 4)``.
    """
    right = np.ascontiguousarray(footers).view("<u4")[:, 0] == masked_crc32c_of(records)
    expected = np.frombuffer(b"".join(map(header_of, lengths)), np.uint8).reshape(-1, HEADER_BYTES)
    found: npt.NDArray[np.bool_] = right & (headers == expected).all(axis=1)
    return found


def frame_fault(frame: bytes, length: int) -> str | None:
    """Return what is wrong with the frame of a record, which has ``length`` bytes by the index; or None.

    Args:
        frame: the bytes at the place of the frame; fewer where the file ends.
        length: the length of the data.
    """
    if length > MAX_RECORD_BYTES:
        return f"states {length} bytes of data, more than a record can have"
    if len(frame) < length + FRAME_OVERHEAD:
        return f"the file ends {len(frame)} bytes into its frame, which has {length + FRAME_OVERHEAD}"
    stated = stated_length(frame[:HEADER_BYTES])
    if stated not in (None, length):
        return f"states {stated} bytes of data, not {length} as the index"
    is_sound = frame[-FOOTER_BYTES:] == footer_of(frame[HEADER_BYTES:-FOOTER_BYTES])
    if stated is None:
        return "the checksum of the record's length does not match" + "; its data are sound" * is_sound
    return None if is_sound else "the checksum of the record's data does not match"
