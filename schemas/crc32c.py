"""CRC-32C of many short byte strings at once, in NumPy: the checksums of the lengths in frame headers.

For 400,000 lengths this takes a twelfth of the time of calling a compiled function for each one. For the data
of records it would be slow; there, ``prep`` and TensorFlow use compiled code.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# TFRecord files store a checksum rotated by 15 bits, plus this constant.
MASK_DELTA = 0xA282EAD8

# Castagnoli's polynomial, reflected.
_POLYNOMIAL = np.uint32(0x82F63B78)


def masked_crc32c_of_rows(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the CRC-32C of each row, masked as in TFRecord files: rotated, plus a constant.

    Args:
        rows: uint8 of shape ``(n, num_bytes)``.

    Returns:
        uint32 of shape ``(n,)``.
    """
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        crc = _TABLE[(crc ^ column) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    crc = ~crc
    masked: npt.NDArray[np.uint32] = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(MASK_DELTA)
    return masked


def _table() -> npt.NDArray[np.uint32]:
    entries = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        entries = np.where(entries & np.uint32(1), _POLYNOMIAL, np.uint32(0)) ^ (entries >> np.uint32(1))
    return entries


_TABLE = _table()
