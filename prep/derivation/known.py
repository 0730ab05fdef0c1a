"""The examples of a dataset that new inputs are compared with: keys, checksums, labels and splits."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tfshards.prep.derivation.keys import read_shards
from tfshards.prep.derivation.origin import Origin
from tfshards.prep.records.example import decode_key
from tfshards.prep.records.frames import masked_crc32c
from tfshards.prep.sources.base import Listing
from tfshards.prep.sources.keys import hash_array, hash_key, to_text
from tfshards.schemas.index import FOOTER_BYTES, HEADER_BYTES, IntArray

_PACKED = struct.Struct("<16sI")
# S compares as V, since all hashes have the same length, and can be searched
_DTYPE = np.dtype([("key", "S16"), ("checksum", "<u4")])


@dataclass(frozen=True, eq=False)
class KnownExamples:
    """The examples of a dataset, numbered in the order of its shards.

    Attributes:
        origin: the dataset.
        keys: shape ``(num_examples,)``, hash of each key.
        checksums: shape ``(num_examples,)``, masked CRC-32C of each record.
    """

    origin: Origin
    keys: npt.NDArray[np.bytes_]
    checksums: npt.NDArray[np.uint32]

    @cached_property
    def ends(self) -> IntArray:
        """Shape ``(num_shards,)``, the number of the example after the last one of each shard."""
        return np.cumsum([shard.num_examples for shard in self.origin.manifest.shards], dtype=np.int64)

    def find(self, listing: Listing) -> IntArray:
        """Return the number of the example that has the key of each input, or -1."""
        return self.find_keys(listing.keys)

    def find_keys(self, keys: Iterable[bytes]) -> IntArray:
        """Return the number of the example that has each key, or -1."""
        wanted = hash_array(map(hash_key, keys)).view("S16")
        order = np.argsort(self.keys)
        at = np.minimum(np.searchsorted(self.keys, wanted, sorter=order), len(order) - 1)
        found = order[at].astype(np.int64)
        return np.where(self.keys[found] == wanted, found, -1)

    def shard_of(self, numbers: IntArray) -> IntArray:
        """Return the index of the shard that holds each example."""
        return np.searchsorted(self.ends, numbers, side="right").astype(np.int64)

    def read(self, number: int) -> bytes:
        """Return the record of an example."""
        index = int(self.shard_of(np.array([number]))[0])
        shard = self.origin.manifest.shards[index]
        frames = self.origin.frames(shard)
        found, _ = frames.read(number - int(self.ends[index]) + shard.num_examples)
        frames.close()
        return found[HEADER_BYTES:-FOOTER_BYTES]

    def key(self, number: int) -> str:
        """Return the key of an example as text."""
        return to_text(decode_key(self.read(number)) or b"")

    def labels(self) -> IntArray | None:
        """Return the label of each example; None if the examples have no labels."""
        found = [self.origin.labels(shard) for shard in self.origin.manifest.shards]
        labels = [of_shard for of_shard in found if of_shard is not None]
        return np.concatenate(labels) if labels else None

    def splits(self) -> npt.NDArray[np.str_]:
        """Return the split of each example."""
        splits = self.origin.manifest.splits
        return np.repeat([*splits], [split.num_examples for split in splits.values()])


def read_known(origin: Origin) -> KnownExamples:
    """Read all records of a dataset.

    Raises:
        BuildError: a record is damaged, or has no key.
    """

    def pack(data: bytes) -> bytes:
        key = decode_key(data)
        if key is None:
            raise ValueError("has no key")
        return _PACKED.pack(hash_key(key), masked_crc32c(data))

    packed = b"".join(read_shards(origin, f"keys of {origin.manifest.name}", pack))
    found = np.frombuffer(packed, _DTYPE)
    columns = (np.ascontiguousarray(found[name]) for name in ("key", "checksum"))
    return KnownExamples(origin, *columns)
