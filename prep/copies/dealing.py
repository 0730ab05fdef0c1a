"""How the records of datasets are dealt to new shards. Pure: nothing is read or written.

Records are numbered through a split's shards in their order. They were permuted when they were built, so
that cutting them where they stand keeps their order a permutation, and lets each new shard be read in one go.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from tfshards.prep.forecast import too_many_shards
from tfshards.prep.options import Balance
from tfshards.prep.plan import IntArray, pack
from tfshards.schemas import InputError, OptionsError, Split
from tfshards.schemas.manifest import Compression
from tfshards.schemas.reading import Json


@dataclass(frozen=True)
class Dealing:
    """What new shards are asked for; each default keeps what there is.

    Attributes:
        shards: number of shards of every split; by default as many as there were.
        shards_by_split: of single splits.
        shard_size: bytes of records a shard, if the number of shards is not given.
        balance: ``count``: shards differ by at most one example; ``bytes``: by as few bytes of records as
            longest-first packing gives.
        compression: of the new shards; by default as before.

    Raises:
        OptionsError: an option is not allowed, or two exclude each other.
    """

    shards: int | None = None
    shards_by_split: Mapping[str, int] = field(default_factory=dict)
    shard_size: int | None = None
    balance: Balance = "count"
    compression: Compression | None = None

    def __post_init__(self) -> None:
        asked = {"": self.shards, **{f"{split}=": count for split, count in self.shards_by_split.items()}}
        for split, count in asked.items():
            if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
                raise OptionsError(f"--shards {split}{count}: must be an integer of at least 1")
        if self.shards is not None and self.shard_size is not None:
            raise OptionsError("--shards and --shard-size exclude each other: give one")
        if self.shard_size is not None and self.shard_size < 1:
            raise OptionsError(f"--shard-size {self.shard_size}: must be at least one byte")
        if self.balance not in get_args(Balance):
            raise OptionsError(f"--balance {self.balance}: must be one of {', '.join(get_args(Balance))}")
        if self.compression not in (None, *get_args(Compression)):
            allowed = " or ".join(get_args(Compression))
            raise OptionsError(f"--compression {self.compression}: must be {allowed}")

    def num_shards(self, splits: Mapping[str, Split]) -> dict[str, int]:
        """Return the number of new shards of each split.

        Raises:
            InputError: there is no such split, or it has fewer examples than shards are asked for.
        """
        unknown = sorted(set(self.shards_by_split) - set(splits))
        if unknown:
            asked = f"--shards {unknown[0]}={self.shards_by_split[unknown[0]]}"
            raise InputError(f"{asked}: there is no such split; the splits are {', '.join(splits)}")
        if self.shard_size is not None and set(self.shards_by_split) == set(splits):
            raise InputError(
                "--shard-size has no effect, since each split has its --shards; leave out one of them"
            )
        counts = {}
        for name, split in splits.items():
            by_size = math.ceil(split.record_bytes / self.shard_size) if self.shard_size else 0
            at_most = max(1, min(by_size or len(split.shards), split.num_examples))
            counts[name] = self.shards_by_split.get(name, self.shards or at_most)
            if counts[name] > max(1, split.num_examples):
                raise InputError(too_many_shards(name, counts[name], split.num_examples))
        return counts

    def to_json(self, counts: Mapping[str, int], compression: Compression) -> dict[str, Json]:
        """Return what the manifest says of shards of these numbers in each split, and of this compression."""
        # another release of zlib may make other bytes
        zlib_of: dict[str, Json] = {"gzip": zlib.ZLIB_RUNTIME_VERSION}
        options: dict[str, Json] = {"shards": dict(counts), "balance": self.balance}
        return options if compression == "none" else {**options, "compression": zlib_of}


def deal(num_examples: int, num_shards: int, sizes: IntArray | None = None) -> list[IntArray]:
    """Return the places of a sequence of records that go into each new shard, ascending.

    Args:
        num_examples: the length of the sequence.
        num_shards: from 1 to ``num_examples``, or 1 if there are none.
        sizes: shape ``(num_examples,)``, bytes of each record in the sequence's order. If given, shards are
            balanced by bytes, else by count: the sequence is cut into runs that differ by at most one.
    """
    everything = np.arange(num_examples, dtype=np.int64)
    return np.array_split(everything, num_shards) if sizes is None else pack(everything, num_shards, sizes)


def mix(counts: Sequence[int]) -> IntArray:
    """Return an order of several sequences' records in which each is spread evenly and keeps its own order.

    So no part of the new shards is of one sequence alone, as it would be if they followed on one another.

    Args:
        counts: the number of records of each sequence; they are numbered through all sequences.
    """
    places = [(np.arange(count) + 0.5) / count for count in counts]
    return np.argsort(np.concatenate(places), kind="stable").astype(np.int64)
