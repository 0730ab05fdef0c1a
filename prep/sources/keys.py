"""Keys of examples: as bytes, as text, as a feature and as hashes; and row numbers as keys."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TypeAlias, overload

import numpy as np
import numpy.typing as npt

from tfshards.schemas import Feature

KEY_FEATURE = Feature("key", "bytes", "bytes")

# A hash of 16 bytes per key: collisions are negligible, and long keys need no more memory than short ones.
KeyHashes: TypeAlias = npt.NDArray[np.void]
_HASH_BYTES = 16


def hash_key(key: bytes) -> bytes:
    """Return the hash of a key."""
    return hashlib.blake2b(key, digest_size=_HASH_BYTES).digest()


def hash_array(hashes: Iterable[bytes]) -> KeyHashes:
    """Return hashes of keys as an array of shape ``(n,)``, which NumPy can sort and search."""
    return np.frombuffer(b"".join(hashes), dtype=f"V{_HASH_BYTES}")


def to_text(name: bytes) -> str:
    """Return a key or file name as plans and manifests store it, independently of the locale's encoding."""
    return name.decode("utf-8", "surrogateescape")


def to_bytes(name: str) -> bytes:
    """Return the bytes of a key or file name in a plan or manifest."""
    return name.encode("utf-8", "surrogateescape")


class RowKeys(Sequence[bytes]):
    """The keys of arrays: row numbers in decimal digits, created on demand."""

    def __init__(self, count: int) -> None:
        self._range = range(count)

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [b"%d" % number for number in self._range[index]]
        return b"%d" % self._range[index]
