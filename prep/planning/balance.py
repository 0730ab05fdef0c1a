"""Assign examples to shards, in order: pure functions of arrays.

An example is represented by its number: its index in the listing, which is sorted by key. A layout is a list
of arrays, one per shard, of example numbers in the order of writing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.schemas.digests import STEP, mixed
from tfshards.schemas.index import IntArray

BoolArray: TypeAlias = npt.NDArray[np.bool_]


def lay_out(examples: IntArray, num_shards: int, *, seed: int, split: str) -> list[IntArray]:
    """Return the layout of one split: a seeded permutation of ``examples``, divided into shards.

    Each split of a dataset is permuted differently. Shards differ by at most one example, larger ones first.
    """
    return np.array_split(examples[permutation(len(examples), seed, split)], num_shards)


def rebalance(layout: Sequence[IntArray], rejected: BoolArray) -> list[IntArray]:
    """Return the final layout, without the examples that are True in ``rejected``.

    As few examples as possible move: each shard keeps its examples in order, and shards above their share
    pass their last examples to those below it.
    """
    kept = [shard[~rejected[shard]] for shard in layout]
    share, extra = divmod(sum(map(len, kept)), len(kept))
    # The fullest shards get the larger share, so that no example moves unnecessarily.
    fullest_first = sorted(range(len(kept)), key=lambda index: (-len(kept[index]), index))
    shares = {index: share + (rank < extra) for rank, index in enumerate(fullest_first)}
    spare = np.concatenate([shard[shares[index] :] for index, shard in enumerate(kept)])
    final, used = [], 0
    for index, shard in enumerate(kept):
        missing = max(0, shares[index] - len(shard))
        final.append(np.concatenate([shard[: shares[index]], spare[used : used + missing]]))
        used += missing
    return final


def permutation(count: int, seed: int, purpose: str) -> IntArray:
    """Return a permutation of ``range(count)`` that never changes for the same arguments.

    It sorts the values of SplitMix64, started from a hash of ``seed`` and ``purpose``. NumPy's generators do
    not promise the same stream in later releases.
    """
    start = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    states = np.frombuffer(start, "<u8") + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(STEP)
    return np.argsort(mixed(states), kind="stable").astype(np.int64)
