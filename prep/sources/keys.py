"""Keys of examples, as bytes and as text, and row numbers as keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload


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
