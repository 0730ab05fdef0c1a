"""Keys of the examples of a dataset: read from its files of keys, found by number, and searched."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.schemas.companions import read_keys
from tfshards.schemas.errors import FormatError
from tfshards.schemas.index import IntArray
from tfshards.schemas.split import Shard, rows_by_shard
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.reader import in_flight

# A hash of 16 bytes per key: collisions are negligible, and long keys need no more memory than short ones.
KeyHashes: TypeAlias = npt.NDArray[np.void]
_HASH_BYTES = 16
# Shards whose keys are read ahead: they are in memory together.
_AHEAD = 4
# Keys that are looked for in the bytes of a file, one after another.
_FEW = 8


def hash_key(key: bytes) -> bytes:
    """Return the hash of a key."""
    return hashlib.blake2b(key, digest_size=_HASH_BYTES).digest()


def hash_array(hashes: Iterable[bytes]) -> KeyHashes:
    """Return hashes of keys as an array of shape ``(n,)``, which NumPy can sort and search."""
    return np.frombuffer(b"".join(hashes), dtype=f"V{_HASH_BYTES}")


def each_shard(
    root: AnyPath, shards: Sequence[Shard], few: Collection[bytes] = ()
) -> Iterator[tuple[Shard, list[bytes]]]:
    """Yield each shard of a dataset with keys, and the keys of its records in order; see ``read_keys``.

    The keys of five shards are in memory at a time: some 70 bytes for a key of 30 bytes.

    Raises:
        FormatError: a file of keys is missing or damaged.
    """
    read = in_flight(lambda shard: read_keys(root, shard, few), shards, _AHEAD)
    for shard, (keys, problems) in zip(shards, read, strict=True):
        if keys is None:
            verb = f"tfshards verify {root} --repair"
            raise FormatError(f"{root}: the keys of the shards (`{verb}` rebuilds them)", problems)
        yield shard, keys


def occurrences(
    root: AnyPath, shards: Sequence[Shard], keys: Collection[bytes]
) -> Iterator[tuple[int, bytes]]:
    """Yield number and key of each example that has one of ``keys``; numbers are counted through the shards.

    Raises:
        FormatError: a file of keys is missing or damaged.
    """
    wanted, first = frozenset(keys), 0
    for shard, of_shard in each_shard(root, shards, wanted if len(wanted) <= _FEW else ()):
        # far faster than a loop, and most shards have none of a few keys
        if not wanted.isdisjoint(of_shard):
            yield from ((number, key) for number, key in enumerate(of_shard, first) if key in wanted)
        first += shard.num_examples


def find(root: AnyPath, shards: Sequence[Shard], keys: Sequence[bytes]) -> IntArray:
    """Return the number of the example that has each key, or -1; numbers are counted through the shards.

    It needs about 100 bytes of memory for each of ``keys``, and the keys of a few shards at a time. Shards
    after the last example that is found are not read.

    Raises:
        FormatError: a file of keys is missing or damaged.
    """
    numbers = dict.fromkeys(keys, -1)
    missing = len(numbers)
    if missing:
        for number, key in occurrences(root, shards, numbers):
            missing -= numbers[key] < 0
            numbers[key] = number
            if not missing:
                break
    return np.fromiter(map(numbers.__getitem__, keys), np.int64, len(keys))


def keys_at(root: AnyPath, shards: Sequence[Shard], numbers: IntArray) -> list[bytes]:
    """Return the key of each example with these numbers, which are counted through the shards.

    Only the keys of shards that hold one of them are read.

    Raises:
        FormatError: a file of keys is missing or damaged.
    """
    held = [*rows_by_shard(shards, numbers)]
    found = [b""] * len(numbers)
    chosen = each_shard(root, [shard for _, shard, _, _ in held])
    for (_, _, rows, records), (_, keys) in zip(held, chosen, strict=True):
        for row, record in zip(rows.tolist(), records.tolist(), strict=True):
            found[row] = keys[record]
    return found


class KeyTable:
    """The keys of shards as sorted hashes, to be searched many times: 24 bytes for each example.

    Raises:
        FormatError: a file of keys is missing or damaged.
    """

    def __init__(self, root: AnyPath, shards: Sequence[Shard]) -> None:
        hashes = [hash_array(map(hash_key, keys)) for _, keys in each_shard(root, shards)]
        # S compares as V, since all hashes have the same length, and can be searched
        together = np.concatenate([hash_array([]), *hashes]).view(f"S{_HASH_BYTES}")
        self._order = np.argsort(together, kind="stable")
        self._hashes = together[self._order]

    def find(self, key: bytes) -> int:
        """Return the number of the first example with a key, counted through the shards, or -1."""
        hashed = hash_array([hash_key(key)]).view(self._hashes.dtype)
        at = int(np.searchsorted(self._hashes, hashed)[0])
        is_found = at < len(self._hashes) and self._hashes[at] == hashed[0]
        return int(self._order[at]) if is_found else -1
