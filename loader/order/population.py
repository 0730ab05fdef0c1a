"""The examples of an epoch, and how often each occurs: the members of a population, in stored order.

``Ranges`` are intervals of the split and ``Members`` single examples, each once. ``Groups`` have a quota
each, filled by their examples in turn, epoch after epoch: classes in given ratios, or mixed datasets.

``numbers`` gives the examples of members; ``members_of``, in NumPy only, the members of examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from tfshards.loader.options.selection import Part
from tfshards.loader.order.ops import NUMPY, Array, Ints, Ops

# What ``members_of`` returns: the indices of the numbers asked for, and a member for each.
Found: TypeAlias = "tuple[Ints, Ints]"


@dataclass(frozen=True, eq=False)
class Ranges:
    """All examples of some intervals of the split.

    Attributes:
        starts: shape ``(ranges,)`` int64: the number of the first example of each interval.
        sizes: shape ``(ranges,)`` int64.
    """

    starts: Ints
    sizes: Ints

    @property
    def num_positions(self) -> int:
        """The number of positions of an epoch."""
        return int(self.sizes.sum())

    def numbers(self, ops: Ops, epoch: Array, members: Array) -> Array:
        """Return the examples' numbers in the split, for an int64 vector of members."""
        del epoch  # every epoch has the same examples
        ends = np.cumsum(self.sizes)
        row = ops.first_after(ends, members)
        return members + ops.gather(self.starts - (ends - self.sizes), row)

    def members_of(self, epoch: int, numbers: Ints) -> Found:
        """Return the members that are the examples ``numbers``, an int64 vector."""
        del epoch
        column = numbers[:, None]
        asked, row = np.nonzero((self.starts <= column) & (column < self.starts + self.sizes))
        return asked, numbers[asked] - (self.starts - (np.cumsum(self.sizes) - self.sizes))[row]


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups with a quota each, evenly spread over an epoch.

    Each group continues in an epoch where the previous one ended, so that after any number of epochs the
    numbers of times that examples of a group have been used differ by at most one.

    Attributes:
        members: int64: the numbers of each group's examples, group after group, each in stored order.
        firsts: shape ``(groups,)`` int64: where each group begins in ``members``.
        sizes: shape ``(groups,)`` int64: the examples of each group.
        quotas: shape ``(groups,)`` int64: the positions of each group in an epoch.
        pattern: shape ``(num_positions,)`` int32: the group of each position in stored order.
        turns: shape ``(num_positions,)`` int64: the number of positions of its group before it.
    """

    # tensors in the graph, which holds them once
    members: Array
    firsts: Array
    sizes: Array
    quotas: Array
    pattern: Array
    turns: Array

    @property
    def num_positions(self) -> int:
        """The number of positions of an epoch."""
        return int(self.pattern.shape[0])

    def numbers(self, ops: Ops, epoch: Array, members: Array) -> Array:
        """Return the examples' numbers in the split, for an int64 vector of members, of an epoch."""
        group = ops.gather(self.pattern, members)
        turn = ops.gather(self.turns, members) + epoch * ops.gather(self.quotas, group)
        turn %= ops.gather(self.sizes, group)
        return ops.gather(self.members, ops.gather(self.firsts, group) + turn)

    def members_of(self, epoch: int, numbers: Ints) -> Found:
        """Return the members that are the examples ``numbers``, an int64 vector; of any, none or several."""
        asked, order = _found(self.members, numbers, self._ascending)
        group = np.searchsorted(self.firsts, order, side="right") - 1
        size, quota = self.sizes[group], self.quotas[group]
        # the turns of an example in this epoch are `first`, `first + size`, ... below the quota
        first = (order - self.firsts[group] - epoch * quota) % size
        row, times = NUMPY.repeated(np.maximum(0, -((first - quota) // size)))
        begin = (np.cumsum(self.quotas) - self.quotas)[group]
        return asked[row], self._by_group[(begin + first)[row] + times * size[row]]

    @cached_property
    def _ascending(self) -> Ints:
        return np.argsort(self.members, kind="stable")

    @cached_property
    def _by_group(self) -> Ints:
        """The members of each group in the order of their turns, group after group."""
        return np.argsort(self.pattern, kind="stable")


@dataclass(frozen=True, eq=False)
class Members:
    """Some examples, each once.

    Attributes:
        members: their numbers in ascending order, an int64 vector; in the graph a tensor, held once.
    """

    members: Array

    @property
    def num_positions(self) -> int:
        """The number of positions of an epoch."""
        return int(self.members.shape[0])

    def numbers(self, ops: Ops, epoch: Array, members: Array) -> Array:
        """Return the examples' numbers in the split, for an int64 vector of members."""
        del epoch  # every epoch has the same examples
        return ops.gather(self.members, members)

    def members_of(self, epoch: int, numbers: Ints) -> Found:
        """Return the members that are the examples ``numbers``, an int64 vector."""
        del epoch
        return _found(self.members, numbers)


def _found(values: Ints, wanted: Ints, order: Ints | None = None) -> Found:
    """Return where each wanted value occurs in ``values``, which are ascending or ascend in ``order``."""
    low, high = (np.searchsorted(values, wanted, side, order) for side in ("left", "right"))
    asked, within = NUMPY.repeated(high - low)
    places = low[asked] + within
    return asked, places if order is None else order[places]


Population: TypeAlias = "Ranges | Members | Groups"


def ranges_of(num_examples: int, take: int | Part | None) -> Ranges:
    """Return the first ``take`` of ``num_examples`` examples, or a part of them; None for all."""
    if isinstance(take, Part):
        low, high = (index * num_examples // take.count for index in (take.index, take.index + 1))
        if take.rest:
            return Ranges(np.array([0, high], np.int64), np.array([low, num_examples - high], np.int64))
    else:
        low, high = 0, num_examples if take is None else take
    return Ranges(np.array([low], np.int64), np.array([high - low], np.int64))


def taken(members: Ints, take: int | Part | None) -> Ints:
    """Return the first ``take`` of ``members``, or a part of them; None for all."""
    ranges = ranges_of(len(members), take)
    pairs = zip(ranges.starts.tolist(), ranges.sizes.tolist(), strict=True)
    return np.concatenate([members[start : start + size] for start, size in pairs])


def grouped(members: Sequence[Ints], quotas: Sequence[int]) -> Groups:
    """Return groups with these members, none of them empty, each of which fills its quota."""
    sizes = np.array([len(numbers) for numbers in members], np.int64)
    counts = np.array(quotas, np.int64)
    group = np.repeat(np.arange(len(counts)), counts)
    turn = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    # the positions of each group are evenly spaced in the epoch
    order = np.argsort((turn + 0.5) / counts[group], kind="stable")
    return Groups(
        members=np.concatenate(members),
        firsts=np.cumsum(sizes) - sizes,
        sizes=sizes,
        quotas=counts,
        pattern=group[order].astype(np.int32),
        turns=turn[order],
    )


def quotas_of(weights: Sequence[float], num_positions: int) -> list[int]:
    """Return integers that add up to ``num_positions``, in the ratios of ``weights`` as closely as possible.

    Uses the method of largest remainders; of equal remainders, the first is rounded up.
    """
    exact = np.array(weights, np.float64) / sum(weights) * num_positions
    quotas = np.floor(exact).astype(np.int64)
    missing = num_positions - int(quotas.sum())
    largest = np.argsort(quotas - exact, kind="stable")[:missing]
    quotas[largest] += 1
    return [int(quota) for quota in quotas]
