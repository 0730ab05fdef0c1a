"""Digests of records, independent of their order, which the manifest holds in addition to those of files.

A record contributes the checksum and the length from its frame, so the data of the records is not needed. The
digest detects records that were lost, repeated or exchanged by accident; the digests of files also detect
deliberate changes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

# Number of a file's last bytes that the manifest holds. In a TFRecord file these are the checksum of the last
# record and four bytes of its data; in a gzip file the checksum and the length of the uncompressed data.
NUM_LAST_BYTES = 8

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))


def examples_digest(lengths: npt.NDArray[np.int64], checksums: npt.NDArray[np.uint32]) -> str:
    """Return the digest of some records: 16 hex digits, independent of the order of the records.

    It is the sum, modulo 2^64, of one number per record: length · 2^32 + checksum, passed through one step of
    SplitMix64 (Steele, Lea and Flood, doi:10.1145/2660193.2660195).

    Args:
        lengths: shape ``(n,)``, number of bytes of each record's data.
        checksums: shape ``(n,)``, masked CRC-32C of each record's data, as in its frame.
    """
    state = (lengths.astype(np.uint64) << np.uint64(32)) + checksums.astype(np.uint64) + _GOLDEN
    for shift, factor in _ROUNDS:
        state = (state ^ (state >> shift)) * factor
    state ^= state >> np.uint64(31)
    return f"{int(state.sum(dtype=np.uint64)):016x}"


def digest_together(digests: Iterable[str]) -> str:
    """Return the digest of a union of sets of records, from the digests of the sets."""
    return f"{sum(int(digest, 16) for digest in digests) % (1 << 64):016x}"
