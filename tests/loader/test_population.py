"""The examples of an epoch: parts of a split, groups with quotas, and the numbers of their members."""

import numpy as np
import pytest

from tfshards.loader import Part
from tfshards.loader.order.ops import NUMPY
from tfshards.loader.order.population import Members, grouped, quotas_of, ranges_of, taken


def numbers(population, epoch=0):
    """Return the numbers of an epoch in stored order."""
    members = np.arange(population.num_positions)
    return population.numbers(NUMPY, np.int64(epoch), members).tolist()


PARTS = [
    (None, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
    (4, [0, 1, 2, 3]),
    (Part(0, 3), [0, 1, 2]),
    (Part(1, 3), [3, 4, 5]),
    (Part(2, 3), [6, 7, 8, 9]),
    (Part(0, 3, rest=True), [3, 4, 5, 6, 7, 8, 9]),
    (Part(1, 3, rest=True), [0, 1, 2, 6, 7, 8, 9]),
    (Part(2, 3, rest=True), [0, 1, 2, 3, 4, 5]),
]


@pytest.mark.parametrize(("take", "expected"), PARTS, ids=lambda value: repr(value).replace(" ", ""))
def test_a_part_has_the_same_examples_in_every_epoch(take, expected):
    ranges = ranges_of(10, take)
    assert ranges.num_positions == len(expected)
    assert numbers(ranges) == numbers(ranges, epoch=1) == expected
    # by their numbers in the chosen examples
    chosen = taken(np.arange(10) * 7, take)
    assert chosen.tolist() == [7 * number for number in expected]
    assert numbers(Members(chosen)) == chosen.tolist()


def test_each_group_fills_its_quota_evenly_and_continues_in_the_next_epoch():
    groups = grouped([np.array([10, 11, 12]), np.array([20]), np.array([30, 31])], [4, 2, 1])
    assert groups.num_positions == 7
    assert numbers(groups, 0) == [10, 20, 11, 30, 12, 20, 10]
    assert numbers(groups, 1) == [11, 20, 12, 31, 10, 20, 11]
    assert numbers(groups, 2) == [12, 20, 10, 30, 11, 20, 12]


@pytest.mark.parametrize(
    ("weights", "num_positions", "quotas", "reason"),
    [
        ([1, 1, 2], 8, [2, 2, 4], "the ratios are exact"),
        ([1, 1, 1], 8, [3, 3, 2], "of equal remainders, the first are rounded up"),
        ([1, 2, 4], 10, [1, 3, 6], "the largest remainder is rounded up"),
        ([5], 3, [3], "one group"),
        ([1, 9], 4, [0, 4], "a share below a half"),
        ([1, 1], 0, [0, 0], "no positions"),
    ],
)
def test_quotas_are_rounded_by_largest_remainder(weights, num_positions, quotas, reason):
    assert quotas_of(weights, num_positions) == quotas, reason
