"""Digests of records, independent of their order, which the manifest holds in addition to those of files.

A record contributes the checksum and the length from its frame, so the data of the records is not needed. The
digest detects records that were lost, repeated or exchanged by accident; the digests of files also detect
deliberate changes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tfshards.schemas.splitmix import STEP, mixed

# Number of a file's last bytes that the manifest holds. In a TFRecord file these are the checksum of the last
# record and four bytes of its data; in a gzip file the checksum and the length of the uncompressed data.
NUM_LAST_BYTES = 8


def examples_digest(lengths: npt.NDArray[np.int64], checksums: npt.NDArray[np.uint32]) -> str:
    """Return the digest of some records: 16 hex digits, independent of the order of the records.

    It is the sum, modulo 2^64, of one number per record: length · 2^32 + checksum, passed through one step of
    SplitMix64.

    Args:
        lengths: shape ``(n,)``, number of bytes of each record's data.
        checksums: shape ``(n,)``, masked CRC-32C of each record's data, as in its frame.
    """
    numbers = (lengths.astype(np.uint64) << np.uint64(32)) + checksums.astype(np.uint64)
    return f"{int(mixed(numbers + np.uint64(STEP)).sum(dtype=np.uint64)):016x}"


def digest_together(digests: Iterable[str]) -> str:
    """Return the digest of a union of sets of records, from the digests of the sets."""
    return f"{sum(int(digest, 16) for digest in digests) % (1 << 64):016x}"
