"""Metrics of the quality of a shuffle, computed from the order of delivery.

An order is the stored positions of the examples in the order of delivery, shape ``(num_examples,)`` int64. A
full permutation is the ideal that each metric is compared with, not necessarily its lowest value.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

# The metrics by name, in one sentence each; a window is 16 steps.
METRICS: Mapping[str, str] = {
    "label run": "mean length of runs of equal labels in the delivered order",
    "chi-square": "Pearson's, of the label counts of a batch and of the split, per degree of freedom, mean",
    "rank correlation": "Spearman's, of stored and delivered position, absolute value, mean over epochs",
    "shards per batch": "mean number of distinct shards from which the examples of a batch come",
    "meet again, batch": "how often two examples of one batch are together in the next epoch, over chance",
    "meet again, window": "the same for windows of 16 steps",
}
WINDOW = 16


def measured(orders: Sequence[Ints], labels: Ints, batch_size: int, num_shards: int) -> dict[str, float]:
    """Return ``METRICS`` of consecutive epochs.

    Args:
        orders: the orders of at least two epochs.
        labels: labels by stored position, shape ``(num_examples,)``; every number from 0 on occurs.
        batch_size: number of examples per batch; a smaller last batch is left out.
        num_shards: number of shards, which hold the examples evenly in stored order.
    """
    pairs = list(itertools.pairwise(orders))
    again = [np.mean([meet_again(*pair, batch_size * n) for pair in pairs]) for n in (1, WINDOW)]
    values = [
        np.mean([label_run(order, labels) for order in orders]),
        np.mean([chi_square(order, labels, batch_size) for order in orders]),
        np.mean([abs(rank_correlation(order)) for order in orders]),
        np.mean([shards_per_batch(order, batch_size, num_shards) for order in orders]),
        *again,
    ]
    return {name: float(value) for name, value in zip(METRICS, values, strict=True)}


def label_run(order: Ints, labels: Ints) -> float:
    """Return the mean length of runs of equal labels."""
    return len(order) / (1 + np.count_nonzero(np.diff(labels[order])))


def chi_square(order: Ints, labels: Ints, batch_size: int) -> float:
    """Return Pearson's chi-square of the label counts of batches per degree of freedom, mean over batches.

    It is about 1 if batches are drawn at random, and below 1 if they are more even.
    """
    counts = np.bincount(labels)
    wanted = batch_size * counts / counts.sum()
    found = [np.bincount(batch, minlength=len(counts)) for batch in _batches(labels[order], batch_size)]
    return float(np.mean([((batch - wanted) ** 2 / wanted).sum() for batch in found])) / (len(counts) - 1)


def rank_correlation(order: Ints) -> float:
    """Return Spearman's rank correlation of stored and delivered position; it is 1 for stored order."""
    ranks = np.argsort(np.argsort(order))
    return float(np.corrcoef(ranks, np.arange(len(order)))[0, 1])


def shards_per_batch(order: Ints, batch_size: int, num_shards: int) -> float:
    """Return the mean number of shards from which a batch draws."""
    shards = order * num_shards // (order.max() + 1)
    return float(np.mean([len(np.unique(batch)) for batch in _batches(shards, batch_size)]))


def meet_again(order: Ints, following: Ints, size: int) -> float:
    """Return how many pairs share a window of ``size`` in both epochs, relative to full permutations."""
    total = max(order.max(), following.max()) + 1
    windows = np.full((2, total), -1)
    for row, epoch in zip(windows, (order, following), strict=True):
        kept = len(epoch) // size * size
        row[epoch[:kept]] = np.arange(kept) // size
    first, second = windows[:, (windows >= 0).all(axis=0)]
    both, one, other = (_pairs(each) for each in (first * total + second, first, second))
    return both / (one * other / (len(first) * (len(first) - 1) / 2))


def is_closer_to_full(value: float, full: float, buffer: float) -> bool:
    """Return whether the value of a metric is closer to that of the full permutation than of the buffer."""
    return abs(value - full) < abs(value - buffer)


def _batches(values: Ints, batch_size: int) -> Ints:
    return values[: len(values) // batch_size * batch_size].reshape(-1, batch_size)


def _pairs(groups: Ints) -> float:
    _, counts = np.unique(groups, return_counts=True)
    return float((counts * (counts - 1) // 2).sum())
