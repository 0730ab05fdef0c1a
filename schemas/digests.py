"""Digests that the manifest holds beside those of whole files: which records there are, in whatever order.

A record counts with the checksum and the length that its frame has, so that a shard's digest needs no look at
the data between the frames. That tells what was lost, repeated or exchanged by accident; against a forger
stand the digests of the files.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

# How many of a file's last bytes stand in the manifest: of a TFRecord file the checksum of the last record
# and four bytes of it, of a gzip file checksum and length of what was compressed.
NUM_LAST_BYTES = 8

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))


def examples_digest(lengths: npt.NDArray[np.int64], checksums: npt.NDArray[np.uint32]) -> str:
    """Return the digest of some records: 16 hex digits, the same in whatever order they stand.

    It is the sum, modulo 2^64, of one number a record: length · 2^32 + checksum, through one step of
    SplitMix64 (Steele, Lea and Flood, doi:10.1145/2660193.2660195).

    Args:
        lengths: shape ``(n,)``, bytes of each record's data.
        checksums: shape ``(n,)``, the masked CRC-32C of each record's data, as its frame holds it.
    """
    state = (lengths.astype(np.uint64) << np.uint64(32)) + checksums.astype(np.uint64) + _GOLDEN
    for shift, factor in _ROUNDS:
        state = (state ^ (state >> shift)) * factor
    state ^= state >> np.uint64(31)
    return f"{int(state.sum(dtype=np.uint64)):016x}"


def digest_together(digests: Iterable[str]) -> str:
    """Return the digest of all records of which ``digests`` are those of parts."""
    return f"{sum(int(digest, 16) for digest in digests) % (1 << 64):016x}"
