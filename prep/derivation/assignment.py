"""Assign records to new shards: pure functions.

Records are numbered through the shards of a split, in order. The build shuffled them, so the sequence can be
cut into runs: the order within and across shards remains random, and each new shard is read sequentially.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfshards.prep.planning.balance import pack
from tfshards.schemas.index import IntArray


def assign(num_examples: int, num_shards: int, sizes: IntArray | None = None) -> list[IntArray]:
    """Return the indices, in a sequence of records, of the records of each new shard, ascending.

    Args:
        num_examples: length of the sequence.
        num_shards: from 1 to ``num_examples``, or 1 if there are no examples.
        sizes: shape ``(num_examples,)``, bytes of each record in the order of the sequence. If given, shards
            are balanced by bytes; otherwise the sequence is cut into runs that differ by at most one record.
    """
    everything = np.arange(num_examples, dtype=np.int64)
    return np.array_split(everything, num_shards) if sizes is None else pack(everything, num_shards, sizes)


def interleave(counts: Sequence[int]) -> IntArray:
    """Return an order of the records of several sequences that spreads each evenly and keeps its own order.

    If the sequences were concatenated, most shards would hold records of only one sequence.

    Args:
        counts: number of records of each sequence.

    Returns:
        Shape ``(sum(counts),)``: record numbers, counted through all sequences.
    """
    fractions = [(np.arange(count) + 0.5) / count for count in counts]
    return np.argsort(np.concatenate(fractions), kind="stable").astype(np.int64)
