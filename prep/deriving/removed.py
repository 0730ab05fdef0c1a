"""The keys that were removed from a dataset, as hashes in a file of the generation: append leaves them out.

A line of ``removed.txt`` is the hash of a key in hex; after a space follows what ``merge --as-splits`` has
put before the keys since. The lines are sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from tfshards.prep.planning.balance import BoolArray
from tfshards.schemas import InputError, Manifest
from tfshards.schemas.digests import bytes_digest
from tfshards.schemas.keys import hash_key
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import KEYS, read_whole


class RemovedKey(NamedTuple):
    """The hash of a removed key, and what is before the keys of the dataset since then."""

    hashed: bytes
    prefix: bytes = b""


Removed: TypeAlias = frozenset[RemovedKey]


def removed_text(removed: Iterable[RemovedKey]) -> bytes:
    """Return the content of the file."""
    lines = (each.hashed.hex().encode("ascii") + (b" " + each.prefix) * bool(each.prefix) for each in removed)
    return b"".join(line + b"\n" for line in sorted(lines))


def read_removed(dataset: AnyPath, manifest: Manifest) -> Removed:
    """Return the keys that were removed from a dataset, or from those that it was made from.

    Raises:
        InputError: the file that lists them is missing or damaged.
    """
    if not manifest.removed_digest:
        return frozenset()
    path = dataset / manifest.removed_path
    try:
        content = read_whole(path, KEYS)
        if bytes_digest(content) != manifest.removed_digest:
            raise InputError(f"{path}: its digest differs from the manifest's || restore the file")
        lines = (line.partition(b" ") for line in content.splitlines())
        return frozenset(RemovedKey(bytes.fromhex(text.decode("ascii")), prefix) for text, _, prefix in lines)
    except OSError as error:
        raise InputError("unreadable", path=path, why=error.strerror) from None
    except ValueError as error:
        raise InputError(f"{path}: a line is not the hash of a key: {error}") from None


def are_removed(keys: Sequence[bytes], removed: Removed) -> BoolArray:
    """Return for each key whether its example was removed, also before the dataset became a split."""
    if not removed:
        return np.zeros(len(keys), np.bool_)
    prefixes = sorted({each.prefix for each in removed})

    def is_removed(key: bytes) -> bool:
        return any(
            key.startswith(prefix) and RemovedKey(hash_key(key[len(prefix) :]), prefix) in removed
            for prefix in prefixes
        )

    return np.fromiter(map(is_removed, keys), np.bool_, len(keys))
