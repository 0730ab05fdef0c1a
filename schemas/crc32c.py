"""CRC-32C of many short byte strings at once, in NumPy: what the frames' headers hold of their lengths.

Of the data itself it would be slow; there ``prep`` and TensorFlow have compiled code.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# Castagnoli's polynomial, reflected.
_POLYNOMIAL = np.uint32(0x82F63B78)
_MASK_DELTA = np.uint32(0xA282EAD8)


def masked_crc32c(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the CRC-32C of each row, rotated and offset as TFRecord files hold it.

    Args:
        rows: shape ``(n, num_bytes)``.

    Returns:
        Shape ``(n,)``.
    """
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        crc = _TABLE[(crc ^ column) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    crc = ~crc
    masked: npt.NDArray[np.uint32] = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + _MASK_DELTA
    return masked


def _table() -> npt.NDArray[np.uint32]:
    entries = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        entries = np.where(entries & np.uint32(1), _POLYNOMIAL, np.uint32(0)) ^ (entries >> np.uint32(1))
    return entries


_TABLE = _table()
