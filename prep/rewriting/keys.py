"""Choose: the examples of datasets with their keys, searched, and the keys that were removed."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.rewriting.origin import Origin
from tfshards.prep.rewriting.scan import Workers, read_shards
from tfshards.prep.sources.keys import hash_array, hash_key, to_bytes, to_text
from tfshards.schemas import InputError, Manifest, Shard
from tfshards.schemas.example import decode_key
from tfshards.schemas.index import FOOTER_BYTES, HEADER_BYTES, IntArray
from tfshards.schemas.made import Made

# S compares as V, since all hashes have the same length, and can be searched
_DTYPE = np.dtype([("key", "S16"), ("length", "<u4"), ("checksum", "<u4")])
_PACKED = struct.Struct("<16sII")


@dataclass(frozen=True, eq=False)
class KnownExamples:
    """The examples of a dataset, numbered in the order of its shards.

    All arrays have the shape ``(num_examples,)``: the hash of each key, and the number of bytes and the
    masked CRC-32C of each record.
    """

    origin: Origin
    keys: npt.NDArray[np.bytes_]
    lengths: IntArray
    checksums: npt.NDArray[np.uint32]

    @cached_property
    def labels(self) -> IntArray | None:
        """The label of each example; None if the examples have no labels."""
        found = [self.origin.labels(shard) for shard in self.origin.manifest.shards]
        labels = [of_shard for of_shard in found if of_shard is not None]
        return np.concatenate(labels) if labels else None

    def find(self, keys: Iterable[bytes]) -> IntArray:
        """Return the number of the example that has each key, or -1."""
        wanted = hash_array(map(hash_key, keys)).view("S16")
        order = np.argsort(self.keys)
        at = np.minimum(np.searchsorted(self.keys, wanted, sorter=order), len(order) - 1)
        found = order[at].astype(np.int64)
        return np.where(self.keys[found] == wanted, found, -1)

    def key(self, number: int) -> str:
        """Return the key of an example as text."""
        return keys_at(self.origin, np.array([number]))[number]


def by_shard(origin: Origin, numbers: IntArray) -> Iterator[tuple[Shard, int, IntArray]]:
    """Yield each shard that holds some of these examples, its first example, and their records in it.

    The numbers are counted through all shards, and ascending.
    """
    shards = origin.manifest.shards
    ends = np.cumsum([shard.num_examples for shard in shards], dtype=np.int64)
    found, starts = np.unique(np.searchsorted(ends, numbers, side="right"), return_index=True)
    for index, some in zip(found.tolist(), np.split(numbers, starts[1:]), strict=False):
        first = int(ends[index]) - shards[index].num_examples
        yield shards[index], first, some - first


def keys_at(origin: Origin, numbers: IntArray) -> dict[int, str]:
    """Return the keys of examples by number, see ``by_shard``; only their records are read."""
    found = {}
    for shard, first, records in by_shard(origin, numbers):
        with closing(origin.frames(shard)) as frames:
            for record in records.tolist():
                data = frames.read(record)[0][HEADER_BYTES:-FOOTER_BYTES]
                found[first + record] = to_text(decode_key(data) or b"")
    return found


def _pack(data: bytes, checksum: int) -> bytes:
    key = decode_key(data)
    if key is None:
        raise ValueError("has no key")
    return _PACKED.pack(hash_key(key), len(data), checksum)


def read_known(origin: Origin, workers: Workers) -> KnownExamples:
    """Read all records of a dataset."""
    packed = read_shards(origin, f"keys of {origin.manifest.name}", _pack, workers)
    found = np.frombuffer(b"".join(packed), _DTYPE)
    keys, checksums = (np.ascontiguousarray(found[name]) for name in ("key", "checksum"))
    return KnownExamples(origin, keys, found["length"].astype(np.int64), checksums)


def numbers_of_splits(manifest: Manifest) -> dict[str, slice]:
    """Return the numbers of the examples of each split, counted through all shards."""
    ends = np.cumsum([split.num_examples for split in manifest.splits.values()]).tolist()
    return {
        name: slice(end - split.num_examples, end)
        for (name, split), end in zip(manifest.splits.items(), ends, strict=True)
    }


def check_keys_differ(origins: Sequence[Origin], workers: Workers) -> None:
    """Check that no key is in two of the datasets, among examples and rejected inputs."""
    known = [read_known(origin, workers) for origin in origins]
    rejected = [[to_bytes(reject.key) for reject in origin.rejects()] for origin in origins]
    hashes = [
        np.concatenate([held.keys, hash_array(map(hash_key, others)).view("S16")])
        for held, others in zip(known, rejected, strict=True)
    ]
    together = np.concatenate(hashes)
    order = np.argsort(together, kind="stable")
    repeated = order[1:][together[order[1:]] == together[order[:-1]]]
    if not len(repeated):
        return
    one, other = np.flatnonzero(together == together[repeated.min()])[:2].tolist()
    ends = np.cumsum([*map(len, hashes)])
    first, second = np.searchsorted(ends, [one, other], side="right").tolist()
    number = one - int(ends[first]) + len(hashes[first])
    num_known = len(known[first].keys)
    key = known[first].key(number) if number < num_known else to_text(rejected[first][number - num_known])
    in_all = "" if len(repeated) == 1 else f" ({len(repeated):,} keys in total)"
    raise InputError(
        "keys-overlap", key=key, root=origins[first].root, root2=origins[second].root, in_all=in_all
    )


# The option in which a manifest holds the hashes, in hex and sorted.
OPTION = "removed"


def are_removed(keys: Sequence[bytes], made: Made) -> BoolArray:
    """Return for each key whether its example was removed from a dataset that was made like this.

    Examples that were removed before the dataset was resharded or merged count as well.
    """
    removed = [*_found(made, b"")]
    if not removed:
        return np.zeros(len(keys), np.bool_)
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


def _found(made: Made, prefix: bytes) -> Iterator[tuple[bytes, frozenset[bytes]]]:
    """Yield hashes of removed keys, and what ``merge --as-splits`` has put before the keys since."""
    if made.removed:
        yield prefix, frozenset(map(bytes.fromhex, made.removed))
    for origin in made.origins:
        yield from _found(origin, prefix + to_bytes(f"{origin.split}/") if origin.split else prefix)
