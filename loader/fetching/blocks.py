"""The blocks of a split: which records and which bytes of a shard each has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tfshards.loader.fetching.folder import block_name
from tfshards.loader.records.shards import Shards
from tfshards.schemas import Shard

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """Consecutive records of a shard.

    Attributes:
        shard: the index of the shard.
        first: the first record, counted in the shard.
        start: the byte of the shard at which it starts.
        end: the byte after its last one.
        known: int64: offsets, counted from ``start``, at which records start according to the index.
    """

    shard: int
    first: int
    start: int
    end: int
    known: IntArray

    @property
    def num_bytes(self) -> int:
        """The bytes of the records."""
        return self.end - self.start


@dataclass(frozen=True, eq=False)
class BlockTable:
    """The blocks of all shards, numbered from 0: ``shards.unit`` records each, fewer at the end of a shard.

    Attributes:
        shards: the shards of the split.
        listed: the same shards as in the manifest.
    """

    shards: Shards
    listed: Sequence[Shard]

    @cached_property
    def firsts(self) -> IntArray:
        """The number of the first block of each shard, and the number of all blocks: ``(shards + 1,)``."""
        return np.append(0, np.cumsum(-(-self.shards.sizes // self.shards.unit)))

    @cached_property
    def sizes(self) -> IntArray:
        """The bytes of each block."""
        found = []
        for shard, listed in enumerate(self.listed):
            count = int(self.firsts[shard + 1] - self.firsts[shard])
            rows = (
                self.shards.first_offsets[shard] + np.arange(count) * self.shards.unit // self.shards.stride
            )
            found.append(np.diff(np.append(self.shards.offsets[rows], listed.record_bytes)))
        return np.concatenate([np.zeros(0, np.int64), *found])

    def most_bytes(self, count: int) -> int:
        """Return the most bytes that consecutive records have, with those that ``piece`` adds to them."""
        rows = -(-count // self.shards.stride) + (self.shards.stride > 1)
        most = 0
        for shard, listed in enumerate(self.listed):
            base = int(self.shards.first_offsets[shard])
            num_known = -(-listed.num_examples // self.shards.stride)
            limits = np.append(self.shards.offsets[base : base + num_known], listed.record_bytes)
            width = min(rows, num_known)
            most = max(most, int((limits[width:] - limits[: len(limits) - width]).max()))
        return most

    def block_of(self, shards: IntArray, records: IntArray) -> IntArray:
        """Return the blocks of records, vectors."""
        return self.firsts[shards] + records // self.shards.unit

    def block(self, number: int) -> Piece:
        """Return the records of a block."""
        shard = int(np.searchsorted(self.firsts, number, side="right")) - 1
        first = (number - int(self.firsts[shard])) * self.shards.unit
        return self.piece(shard, first, first + self.shards.unit)

    def piece(self, shard: int, first: int, end: int) -> Piece:
        """Return these records of a shard, and as many around them as their offsets in memory require."""
        stride, listed = self.shards.stride, self.listed[shard]
        low, high = first // stride, -(-min(end, listed.num_examples) // stride)
        base = int(self.shards.first_offsets[shard])
        known = self.shards.offsets[base + low : base + high]
        num_known = -(-listed.num_examples // stride)
        stop = int(self.shards.offsets[base + high]) if high < num_known else listed.record_bytes
        return Piece(shard, low * stride, int(known[0]), stop, known - known[0])

    def name(self, piece: Piece) -> str:
        """Return the file name of a piece."""
        return block_name(self.listed[piece.shard].path, piece.start, piece.end)

    def find(self, name: str) -> int | None:
        """Return the block whose file name is ``name``, or None."""
        path, _, interval = name.rpartition("@")
        shard = self._by_path.get(path)
        if shard is None:
            return None
        base, listed = int(self.shards.first_offsets[shard]), self.listed[shard]
        known = self.shards.offsets[base : base - (-listed.num_examples // self.shards.stride)]
        row = int(np.searchsorted(known, int(interval.partition("-")[0])))
        number = int(self.firsts[shard]) + row * self.shards.stride // self.shards.unit
        return number if number < self.firsts[shard + 1] and self.name(self.block(number)) == name else None

    @cached_property
    def _by_path(self) -> dict[str, int]:
        return {block_name(each.path, 0, 0).rpartition("@")[0]: i for i, each in enumerate(self.listed)}
