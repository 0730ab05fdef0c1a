"""Check the frames of the records in a block against their checksums and the index."""

from __future__ import annotations

import struct

import google_crc32c
import numpy as np
import numpy.typing as npt

from tfshards.schemas.crc32c import MASK_DELTA, masked_crc32c_of_rows
from tfshards.schemas.index import FOOTER_BYTES, HEADER_BYTES

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")


def sound_records(data: bytes, known: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Return how many records are sound at the start of ``data``, and their bytes; all bytes if all are.

    Args:
        data: the frames of consecutive records.
        known: int64, ascending: offsets in ``data`` at which records must start.
    """
    starts, at, is_sound = [], 0, True
    while is_sound and at + HEADER_BYTES + FOOTER_BYTES <= len(data):
        end = at + HEADER_BYTES + _LENGTH.unpack_from(data, at)[0]
        if end + FOOTER_BYTES > len(data):
            break
        crc = google_crc32c.value(data[at + HEADER_BYTES : end])
        is_sound = ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF == _CHECKSUM.unpack_from(data, end)[0]
        starts.append(at)
        at = end + FOOTER_BYTES
    found = np.array(starts, np.int64)
    num_sound = len(starts) - (not is_sound)
    # A wrong length leads to a wrong place, from which nothing is read.
    rows = np.frombuffer(data, np.uint8)[found[:, np.newaxis] + np.arange(HEADER_BYTES)]
    stated = np.ascontiguousarray(rows[:, 8:]).view("<u4")[:, 0]
    wrong = np.flatnonzero(stated != masked_crc32c_of_rows(rows[:, :8]))
    num_sound = min(num_sound, int(wrong[0])) if len(wrong) else num_sound
    # The record before a known offset at which none starts has a length that differs from the index.
    reached = known[known < at]
    missed = reached[found[np.searchsorted(found, reached, side="right") - 1] != reached]
    if len(missed):
        num_sound = min(num_sound, max(0, int(np.searchsorted(found, missed[0])) - 1))
    if num_sound == len(starts):
        return num_sound, at
    return num_sound, int(found[num_sound])
