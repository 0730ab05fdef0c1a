"""The examples of an epoch, and how often each occurs: the members of a population, in stored order.

``Ranges`` are intervals of the split and ``Members`` single examples, each once. ``Groups`` have a quota
each, filled by their examples in turn, epoch after epoch: classes in given ratios, or mixed datasets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.loader.options.selection import Part
from tfshards.schemas.index import IntArray as Ints


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

    def numbers(self, epoch: int, members: Ints) -> Ints:
        """Return the examples' numbers in the split, for an int64 array of members."""
        del epoch  # every epoch has the same examples
        ends = np.cumsum(self.sizes)
        if len(ends) == 1:
            return members + int(self.starts[0])
        row = np.searchsorted(ends, members, side="right")
        found: Ints = members + (self.starts - (ends - self.sizes))[row]
        return found


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

    members: Ints
    firsts: Ints
    sizes: Ints
    quotas: Ints
    pattern: npt.NDArray[np.int32]
    turns: Ints

    @property
    def num_positions(self) -> int:
        """The number of positions of an epoch."""
        return int(self.pattern.shape[0])

    def numbers(self, epoch: int, members: Ints) -> Ints:
        """Return the examples' numbers in the split, for an int64 array of members, of an epoch."""
        group = self.pattern[members]
        turn = (self.turns[members] + epoch * self.quotas[group]) % self.sizes[group]
        return self.members[self.firsts[group] + turn]


@dataclass(frozen=True, eq=False)
class Members:
    """Some examples, each once.

    Attributes:
        members: their numbers in ascending order, an int64 vector.
    """

    members: Ints

    @property
    def num_positions(self) -> int:
        """The number of positions of an epoch."""
        return int(self.members.shape[0])

    def numbers(self, epoch: int, members: Ints) -> Ints:
        """Return the examples' numbers in the split, for an int64 array of members."""
        del epoch  # every epoch has the same examples
        return self.members[members]


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
