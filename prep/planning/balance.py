"""Assign examples to shards, in order: pure functions of arrays.

An example is represented by its number: its index in the listing, which is sorted by key. A layout is a list
of arrays, one per shard, of example numbers in the order of writing.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.schemas.digests import STEP, mixed
from tfshards.schemas.index import IntArray

BoolArray: TypeAlias = npt.NDArray[np.bool_]


def lay_out(
    examples: IntArray, num_shards: int, *, seed: int, split: str, sizes: IntArray | None = None
) -> list[IntArray]:
    """Return the layout of one split: a seeded permutation of ``examples``, divided into shards.

    Each split of a dataset is permuted differently. Shards differ by at most one example, larger ones first;
    if ``sizes`` has the source bytes of each example of the listing, shards are balanced by these bytes.
    """
    order = examples[permutation(len(examples), seed, split)]
    if sizes is None:
        return np.array_split(order, num_shards)
    return pack(order, num_shards, sizes)


def rebalance(
    layout: Sequence[IntArray], rejected: BoolArray, sizes: IntArray | None = None
) -> list[IntArray]:
    """Return the final layout, without the examples that are True in ``rejected``.

    By count, as few examples as possible move: each shard keeps its examples in order, and shards above their
    share pass their last examples to those below it. By bytes, if there are ``sizes``, all shards are packed
    again.
    """
    kept = [shard[~rejected[shard]] for shard in layout]
    if sizes is not None:
        unchanged = all(len(now) == len(before) for now, before in zip(kept, layout, strict=True))
        return kept if unchanged else pack(np.concatenate(kept), len(kept), sizes)
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


def pack(order: IntArray, num_shards: int, sizes: IntArray) -> list[IntArray]:
    """Assign each example, largest first, to the shard with the fewest bytes; keep ``order`` in shards."""
    # An empty file counts as one byte; otherwise one shard would collect all of them.
    weights = np.maximum(sizes[order], 1)
    shard_of = np.empty(len(order), dtype=np.int64)
    lightest = [(0, shard) for shard in range(num_shards)]
    for index in np.argsort(-weights, kind="stable").tolist():
        filled, shard = heapq.heappop(lightest)
        shard_of[index] = shard
        heapq.heappush(lightest, (filled + int(weights[index]), shard))
    ends = np.cumsum(np.bincount(shard_of, minlength=num_shards))
    return np.split(order[np.argsort(shard_of, kind="stable")], ends[:-1])
