"""What makes a good shuffle, as numbers: metrics of delivered orders, in NumPy.

An order is the examples' stored positions in the order of delivery, shape ``(num_examples,)`` int64. A full
permutation is the ideal that each metric is compared with, not necessarily its lowest value.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

# The metrics by name, in one sentence each; a window is 16 steps.
METRICS: Mapping[str, str] = {
    "label run": "mean length of stretches of equal labels in delivered order",
    "chi-square": "Pearson's, of a batch's label counts and the split's, per degree of freedom, mean",
    "rank correlation": "Spearman's, of stored and delivered position, absolute, mean over epochs",
    "shards a batch": "mean number of distinct shards that a batch's examples come from",
    "meet again, batch": "how often two examples of one batch share one again in the next epoch, over chance",
    "meet again, window": "the same for windows of 16 steps",
}
WINDOW = 16


def measured(orders: Sequence[Ints], labels: Ints, batch_size: int, num_shards: int) -> dict[str, float]:
    """Return ``METRICS`` of epochs that follow each other.

    Args:
        orders: of at least two epochs.
        labels: by stored position, shape ``(num_examples,)``, from 0 on, none missing.
        batch_size: a last batch that is smaller is left out.
        num_shards: that hold the examples, in stored order and evenly.
    """
    pairs = list(itertools.pairwise(orders))
    again = [np.mean([meet_again(*pair, batch_size * n) for pair in pairs]) for n in (1, WINDOW)]
    values = [
        np.mean([label_run(order, labels) for order in orders]),
        np.mean([chi_square(order, labels, batch_size) for order in orders]),
        np.mean([abs(rank_correlation(order)) for order in orders]),
        np.mean([shards_a_batch(order, batch_size, num_shards) for order in orders]),
        *again,
    ]
    return {name: float(value) for name, value in zip(METRICS, values, strict=True)}


def label_run(order: Ints, labels: Ints) -> float:
    """Return the mean length of stretches of equal labels."""
    return len(order) / (1 + np.count_nonzero(np.diff(labels[order])))


def chi_square(order: Ints, labels: Ints, batch_size: int) -> float:
    """Return Pearson's chi-square of batches' label counts per degree of freedom, mean over batches.

    It is about 1 where batches are drawn at random; below 1 they are more even than that.
    """
    counts = np.bincount(labels)
    wanted = batch_size * counts / counts.sum()
    found = [np.bincount(batch, minlength=len(counts)) for batch in _batches(labels[order], batch_size)]
    return float(np.mean([((batch - wanted) ** 2 / wanted).sum() for batch in found])) / (len(counts) - 1)


def rank_correlation(order: Ints) -> float:
    """Return Spearman's rank correlation of stored and delivered position; stored order has 1."""
    ranks = np.argsort(np.argsort(order))
    return float(np.corrcoef(ranks, np.arange(len(order)))[0, 1])


def shards_a_batch(order: Ints, batch_size: int, num_shards: int) -> float:
    """Return from how many shards a batch draws on average."""
    shards = order * num_shards // (order.max() + 1)
    return float(np.mean([len(np.unique(batch)) for batch in _batches(shards, batch_size)]))


def meet_again(order: Ints, following: Ints, size: int) -> float:
    """Return how many pairs share a stretch of ``size`` in both epochs, over what full permutations give."""
    total = max(order.max(), following.max()) + 1
    stretches = np.full((2, total), -1)
    for row, epoch in zip(stretches, (order, following), strict=True):
        kept = len(epoch) // size * size
        row[epoch[:kept]] = np.arange(kept) // size
    first, second = stretches[:, (stretches >= 0).all(axis=0)]
    both, one, other = (_pairs(each) for each in (first * total + second, first, second))
    return both / (one * other / (len(first) * (len(first) - 1) / 2))


def nearer_to_full(value: float, full: float, buffer: float) -> bool:
    """Return whether a metric's value lies nearer to the full permutation's than to the buffer's."""
    return abs(value - full) < abs(value - buffer)


def _batches(values: Ints, batch_size: int) -> Ints:
    return values[: len(values) // batch_size * batch_size].reshape(-1, batch_size)


def _pairs(groups: Ints) -> float:
    _, counts = np.unique(groups, return_counts=True)
    return float((counts * (counts - 1) // 2).sum())
