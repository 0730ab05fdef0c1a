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
    """The blocks of all shards, numbered from 0: ``shards.unit`` records each, fewer at the end of one."""

    shards: Shards
    listed: Sequence[Shard]

    @cached_property
    def firsts(self) -> IntArray:
        """The number of the first block of each shard, and the number of all blocks: ``(shards + 1,)``."""
        return np.append(0, np.cumsum(-(-self.shards.sizes // self.shards.unit)))

    @cached_property
    def offsets(self) -> list[IntArray]:
        """The known offsets of each shard, and its end."""
        known = np.split(self.shards.offsets, self.shards.first_offsets[1:])
        return [np.append(each, listed.record_bytes) for each, listed in zip(known, self.listed, strict=True)]

    @cached_property
    def sizes(self) -> IntArray:
        """The bytes of each block."""
        found = [np.zeros(0, np.int64)]
        for offsets, count in zip(self.offsets, np.diff(self.firsts), strict=True):
            rows = np.arange(count) * self.shards.unit // self.shards.stride
            found.append(np.diff(offsets[np.append(rows, -1)]))
        return np.concatenate(found)

    def most_bytes(self, count: int) -> int:
        """Return the most bytes that consecutive records have, with those that ``piece`` adds to them."""
        rows = -(-count // self.shards.stride) + (self.shards.stride > 1)
        widths = [min(rows, len(offsets) - 1) for offsets in self.offsets]
        pairs = zip(self.offsets, widths, strict=True)
        return max(
            (int((each[width:] - each[: len(each) - width]).max()) for each, width in pairs), default=0
        )

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
        stride, offsets = self.shards.stride, self.offsets[shard]
        low, high = first // stride, min(-(-end // stride), len(offsets) - 1)
        start = int(offsets[low])
        return Piece(shard, low * stride, start, int(offsets[high]), offsets[low:high] - start)

    def name(self, piece: Piece) -> str:
        """Return the file name of a piece."""
        return block_name(self.listed[piece.shard].path, piece.start, piece.end)

    def find(self, name: str) -> int | None:
        """Return the block whose file name is ``name``, or None."""
        path, _, interval = name.rpartition("@")
        shard = self._by_path.get(path)
        if shard is None:
            return None
        row = int(np.searchsorted(self.offsets[shard], int(interval.partition("-")[0])))
        number = int(self.firsts[shard]) + row * self.shards.stride // self.shards.unit
        return number if number < self.firsts[shard + 1] and self.name(self.block(number)) == name else None

    @cached_property
    def _by_path(self) -> dict[str, int]:
        return {block_name(each.path, 0, 0).rpartition("@")[0]: i for i, each in enumerate(self.listed)}
