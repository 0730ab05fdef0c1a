"""Digests: the hash of a file with its text in manifests, and digests of records in any order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

STEP = 0x9E3779B97F4A7C15
# Each round of the finalizer is a shift and a factor; a last shift follows.
ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = 31


def mixed(states: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the states, each passed through the finalizer."""
    for shift, factor in ROUNDS:
        states = (states ^ (states >> np.uint64(shift))) * np.uint64(factor)
    found: npt.NDArray[np.uint64] = states ^ (states >> np.uint64(LAST_SHIFT))
    return found


# TFRecord files store a checksum rotated by 15 bits, plus this constant.
MASK_DELTA = 0xA282EAD8


def masked(crc: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return values of CRC-32C, rotated and offset as TFRecord files store them."""
    found: npt.NDArray[np.uint32] = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(MASK_DELTA)
    return found


# Number of a file's last bytes that the manifest holds. In a TFRecord file these are the checksum of the last
# record and four bytes of its data; in a gzip file the checksum and the length of the uncompressed data.
NUM_LAST_BYTES = 8


# The hash of a file, and the text of its digest in manifests.
HASH = hashlib.sha256
DIGEST_START = "sha256:"
DIGEST_PATTERN = f"{DIGEST_START}[0-9a-f]{{{2 * HASH().digest_size}}}"


def digest_of(content: hashlib._Hash) -> str:
    """Return the digest of what was hashed, in the form of the manifest."""
    return f"{DIGEST_START}{content.hexdigest()}"


def bytes_digest(data: bytes) -> str:
    """Return the digest of the content of a file, in the form of the manifest."""
    return digest_of(HASH(data))


def examples_digest(lengths: npt.NDArray[np.int64], checksums: npt.NDArray[np.uint32]) -> str:
    """Return the digest of some records: 16 hex digits, independent of the order of the records.

    It is the sum, modulo 2^64, of one number per record: length · 2^32 + masked CRC-32C of its data, passed
    through one step of SplitMix64.
    """
    numbers = (lengths.astype(np.uint64) << np.uint64(32)) + checksums.astype(np.uint64)
    return f"{int(mixed(numbers + np.uint64(STEP)).sum(dtype=np.uint64)):016x}"


def digest_together(digests: Iterable[str]) -> str:
    """Return the digest of a union of sets of records, from the digests of the sets."""
    return f"{sum(int(digest, 16) for digest in digests) % (1 << 64):016x}"
