"""The keys that were removed from a dataset, or from one that it is derived from: hashes in the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, cast

import numpy as np

from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.sources.keys import hash_key, to_bytes
from tfshards.schemas.json_reader import Json

# The option in which a manifest holds the hashes, in hex and sorted.
OPTION = "removed"


class _Removed(NamedTuple):
    """Hashes of removed keys, and what ``merge --as-splits`` has put before the keys since."""

    prefix: bytes
    hashes: frozenset[bytes]


def are_removed(keys: Iterable[bytes], options: Mapping[str, Json]) -> BoolArray:
    """Return for each key whether its example was removed from a dataset with these options.

    Examples that were removed before the dataset was resharded or merged count as well.
    """
    removed = [*_found(options, b"")]
    if not removed:
        return np.zeros(sum(1 for _ in keys), np.bool_)
    return np.array(
        [
            any(
                key.startswith(prefix) and hash_key(key[len(prefix) :]) in hashes
                for prefix, hashes in removed
            )
            for key in keys
        ],
        np.bool_,
    )


def with_removed(options: Mapping[str, Json], hashes: Iterable[bytes]) -> list[Json]:
    """Return the hashes of removed keys in options, in hex and sorted, together with new ones."""
    known = cast("list[str]", options.get(OPTION, []))
    return [*sorted({*known, *(one.hex() for one in hashes)})]


def _found(options: Mapping[str, Json], prefix: bytes) -> Iterator[_Removed]:
    hashes = cast("list[str]", options.get(OPTION, []))
    if hashes:
        yield _Removed(prefix, frozenset(map(bytes.fromhex, hashes)))
    origins = cast(
        "list[Mapping[str, Json]]", [options.get("origin"), *cast("list[Json]", options.get("of", []))]
    )
    for origin in filter(None, origins):
        split = cast("str", origin.get("split", ""))
        before = prefix + to_bytes(f"{split}/") if split else prefix
        yield from _found(cast("Mapping[str, Json]", origin["options"]), before)
