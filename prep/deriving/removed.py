"""The keys that were removed from a dataset, as hashes in a file of the generation: append leaves them out.

A line of ``removed.txt`` is the hash of a key in hex; after a space follows what ``merge --as-splits`` has
put before the keys since. The lines are sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tfshards.prep.planning.balance import BoolArray
from tfshards.schemas import InputError, Manifest
from tfshards.schemas.digests import bytes_digest
from tfshards.schemas.keys import hash_key
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import LISTS, read_whole

# The lines of the file.
Removed: TypeAlias = frozenset[bytes]


def removed_line(key: bytes, prefix: bytes = b"") -> bytes:
    """Return the line about a key that was removed before all keys got a prefix."""
    return hash_key(key).hex().encode("ascii") + (b" " + prefix if prefix else b"")


def with_prefix(removed: Removed, prefix: bytes) -> Removed:
    """Return the lines after all keys of the dataset got a prefix, in addition to an earlier one."""
    parts = (line.partition(b" ") for line in removed)
    return frozenset(hashed + b" " + prefix + before for hashed, _, before in parts) if prefix else removed


def removed_text(removed: Removed) -> bytes:
    """Return the content of the file."""
    return b"".join(line + b"\n" for line in sorted(removed))


def read_removed(dataset: AnyPath, manifest: Manifest) -> Removed:
    """Return the keys that were removed from a dataset, or from those that it was made from.

    Raises:
        InputError: the file that lists them is missing or damaged.
    """
    if not manifest.removed_digest:
        return frozenset()
    path = dataset / manifest.removed_path
    try:
        content = read_whole(path, LISTS)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", code="unreadable") from None
    if bytes_digest(content) != manifest.removed_digest:
        raise InputError(f"{path}: its digest differs from the manifest's; restore the file")
    return frozenset(content.splitlines())


def are_removed(keys: Sequence[bytes], removed: Removed) -> BoolArray:
    """Return for each key whether its example was removed, also before the dataset became a split."""
    prefixes = sorted({line.partition(b" ")[2] for line in removed})

    def is_removed(key: bytes) -> bool:
        return any(
            key.startswith(prefix) and removed_line(key[len(prefix) :], prefix) in removed
            for prefix in prefixes
        )

    return np.fromiter(map(is_removed, keys), np.bool_, len(keys))
