"""Keys of examples: as bytes, as text, as hashes, in files, and groups of them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import BinaryIO, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from tfshards.schemas import Feature, InputError, OptionsError
from tfshards.schemas.files import write_atomically
from tfshards.schemas.json_reader import shown
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.untrusted import KEYS, read_whole

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


_MARK = b'"'
_LONGEST = 1 << 16
_WRITTEN = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\.)*"\n')
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def write_keys(path: AnyPath, keys: Iterable[str]) -> None:
    """Write keys, as text, to a file: a JSON string in ASCII per line.

    Raises:
        OSError: the file cannot be written.
    """
    write_atomically(path, "".join(f"{json.dumps(key)}\n" for key in keys).encode("ascii"))


def holds_written_keys(file: BinaryIO) -> bool:
    """Return whether a file holds what ``write_keys`` writes; lists that people write may look different."""
    return all(map(_WRITTEN.fullmatch, iter(lambda: file.readline(_LONGEST), b"")))


def read_keys(path: str | os.PathLike[str]) -> list[bytes]:
    """Return the keys in a file, in its order.

    Raises:
        InputError: the file cannot be read, or a line that starts with a quotation mark is not a JSON string.
    """
    found = any_path(path)
    try:
        lines = read_whole(found, KEYS).removeprefix(_BYTE_ORDER_MARK).split(b"\n")
    except OSError as error:
        raise InputError("unreadable", path=found, why=error.strerror) from None
    # editors of Windows end lines with \r\n; a key that ends so is written as JSON
    lines = [line.removesuffix(b"\r") for line in lines]
    return [_key(line, number, found) for number, line in enumerate(lines, 1) if line]


def _key(line: bytes, number: int, path: AnyPath) -> bytes:
    if not line.startswith(_MARK):
        return line
    try:
        key = json.loads(line)
        return to_bytes(key)
    except (ValueError, AttributeError):
        raise InputError("keys-line", path=path, number=number, line=shown(to_text(line))) from None


def require_values(by: str, num_missing: int, where: str) -> None:
    """Raise InputError if rows have no value, since they would all be one group.

    Args:
        by: name of the column or the array.
        num_missing: number of rows whose value is NaN, empty or missing.
        where: "column" or "array".
    """
    if num_missing:
        rows = "1 row has" if num_missing == 1 else f"{num_missing:,} rows have"
        raise InputError("group-by-missing", by=by, rows=rows, where=where)


def groups_of_keys(by: str, keys: Sequence[bytes], allowed: str) -> list[bytes]:
    """Return what the one group of the regular expression ``by`` matches in each key.

    Args:
        by: the regular expression, which is searched for.
        keys: key of each example.
        allowed: what ``by`` may be, for messages.

    Raises:
        OptionsError: ``by`` is not a regular expression with one group.
        InputError: it does not match a key.
    """
    try:
        pattern = re.compile(os.fsencode(by))
    except (re.error, OverflowError, RecursionError) as error:
        raise OptionsError("group-by-expression", by=by, error=error) from None
    if pattern.groups != 1:
        raise OptionsError("group-by-value", by=by, allowed=allowed)
    found = [pattern.search(key) for key in keys]
    for key, match in zip(keys, found, strict=True):
        if not match or match[1] is None:
            raise InputError("group-by-no-match", by=by, key=os.fsdecode(key))
    return [match[1] for match in found if match]
