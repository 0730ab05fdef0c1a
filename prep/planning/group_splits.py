"""Assign whole groups to splits by ratio, such that each class is divided evenly: a local search.

Groups are first cut by their hashes, as without classes. Then single groups are moved, and pairs exchanged,
as long as that makes the classes more even. The same is done from other starts, for which the groups are cut
by other hashes, and the most even result is used; the hashes of groups that end in another split than the
cuts give are kept. The result depends on the groups, classes, ratios and seed, but not on the order of the
examples.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np
import numpy.typing as npt

from tfshards.prep.planning.splits import Membership, cut_groups, key_hash, require_examples
from tfshards.schemas.index import IntArray

FloatArray = npt.NDArray[np.float64]

# Smaller changes of the sum of squares are rounding errors.
_LEAST = 1e-9
_DIGITS = 9
# Pairs of groups are compared if there are at most so many groups.
_MOST_FOR_PAIRS = 512
# Limits the time: number of terms that are evaluated.
_MAX_TERMS = 300_000_000
_MIN_STEPS = 100
# Number of starts of the search: fewer for many groups and classes, of which a step takes longer.
_MAX_STARTS = 32
_MAX_START_TERMS = 2_000_000


def split_groups_by_class(
    groups: Sequence[bytes], ratios: Mapping[str, Fraction], seed: int, classes: IntArray
) -> Membership:
    """Return the splits of whole groups by ``ratios``, with similar shares of each class.

    The sum, over splits and classes, of the squared difference between the number of examples and the one
    that the ratio gives, divided by the size of the class, is as low as moves of single groups make it; with
    at most 512 groups, also as exchanges of two make it. The best of up to 32 starts is used, which
    is nearly always the lowest possible one for a dozen groups, but need not be for many.
    """
    hash_of = {group: key_hash(group, seed) for group in set(groups)}
    names, members = np.unique([hash_of[group] for group in groups], return_inverse=True)
    ranks = np.sort(members)
    bounds = cut_groups(names[ranks], ratios)
    cuts = [str(names[ranks[bound]]) if bound < len(ranks) else "f" * 32 for bound in bounds[1:-1]]
    by_hash = np.array([bisect_right(cuts, str(name)) for name in names], dtype=np.int64)
    table = _table(members, classes)
    split_of = _most_even(table, by_hash, names[ranks], ratios)
    splits = [*ratios]
    examples = {split: np.flatnonzero(split_of[members] == index) for index, split in enumerate(splits)}
    require_examples(examples, ratios, f"{len(names)} groups")
    moved = {
        str(names[group]): splits[int(split_of[group])]
        for group in np.flatnonzero(split_of != by_hash).tolist()
    }
    return Membership(
        examples, {"splits": [*splits], "seed": seed, "cuts": {"all": [*cuts]}, "moved": {**moved}}
    )


@dataclass(frozen=True, eq=False)
class _Table:
    """The number of examples of each class in each group, ascending: one entry for each pair that occurs."""

    group: IntArray
    kind: IntArray
    count: FloatArray
    total: FloatArray
    num_groups: int


def _table(members: IntArray, classes: IntArray) -> _Table:
    kinds, kind = np.unique(classes, return_inverse=True)
    pairs, counts = np.unique(members * len(kinds) + kind, return_counts=True)
    return _Table(
        group=pairs // len(kinds),
        kind=pairs % len(kinds),
        count=counts.astype(np.float64),
        total=np.bincount(kind, minlength=len(kinds)).astype(np.float64),
        num_groups=int(members.max()) + 1,
    )


def _most_even(
    table: _Table, by_hash: IntArray, ranks: npt.NDArray[np.str_], ratios: Mapping[str, Fraction]
) -> IntArray:
    """Return the split of each group that is best after a search from each start; of equal ones the first.

    ``by_hash`` is the first start; ``ranks`` holds the sorted hash of the group of each example.
    """
    shares = [float(ratio) for ratio in ratios.values()]
    terms = table.num_groups**2 * len(table.total)
    best, least = by_hash, (len(shares), np.inf)
    for start in range(max(1, min(_MAX_STARTS, _MAX_START_TERMS // terms))):
        found = _evened(table, _start(ranks, ratios, start) if start else by_hash, shares)
        # a split without groups is worse than any unevenness
        squares = _excess(table, found, shares) ** 2 / table.total
        cost = len(shares) - len(np.unique(found)), round(float(squares.sum()), _DIGITS)
        if cost < least:
            best, least = found, cost
    return best


def _start(ranks: npt.NDArray[np.str_], ratios: Mapping[str, Fraction], number: int) -> IntArray:
    """Return the split of each group if the groups are cut by other hashes, which the number gives."""
    names, members = np.unique(ranks, return_inverse=True)
    hashes = np.array([key_hash(name.encode("ascii"), number) for name in names.tolist()])
    # the bounds are positions in the sorted hashes of the examples
    bounds = cut_groups(np.sort(hashes[members]), ratios)
    order, sizes = np.argsort(hashes), np.bincount(members)
    starts = np.cumsum(sizes[order]) - sizes[order]
    split_of = np.empty(len(names), dtype=np.int64)
    split_of[order] = np.searchsorted(bounds[1:-1], starts, side="right")
    return split_of


def _excess(table: _Table, split_of: IntArray, ratios: Sequence[float]) -> FloatArray:
    """Return by how much the examples of each class in each split exceed those that the ratio gives."""
    excess: FloatArray = -np.outer(ratios, table.total)
    np.add.at(excess, (split_of[table.group], table.kind), table.count)
    return excess


def _evened(table: _Table, split_of: IntArray, ratios: Sequence[float]) -> IntArray:
    """Return the split of each group after moves and exchanges that lower the sum of squares."""
    split_of = split_of.copy()
    num_splits = len(ratios)
    excess = _excess(table, split_of, ratios)
    for _ in range(max(_MIN_STEPS, _MAX_TERMS // (len(table.group) * num_splits))):
        gains = _gains_of_moves(table, split_of, excess)
        group, target = np.unravel_index(int(np.argmin(gains)), gains.shape)
        if gains[group, target] < -_LEAST:
            _move(table, split_of, excess, int(group), int(target))
            continue
        pair = _best_pair(table, split_of, excess)
        if pair is None:
            break
        one, other = pair
        splits = int(split_of[one]), int(split_of[other])
        _move(table, split_of, excess, one, splits[1])
        _move(table, split_of, excess, other, splits[0])
    return split_of


def _move(table: _Table, split_of: IntArray, excess: FloatArray, group: int, target: int) -> None:
    entries = slice(*np.searchsorted(table.group, [group, group + 1]).tolist())
    excess[split_of[group], table.kind[entries]] -= table.count[entries]
    excess[target, table.kind[entries]] += table.count[entries]
    split_of[group] = target


def _changes(table: _Table, split_of: IntArray, excess: FloatArray) -> FloatArray:
    """Return the change of the sum if a group moves to a split, shape ``(num_groups, num_splits)``."""
    own = excess[split_of[table.group], table.kind]
    changes = np.empty((table.num_groups, len(excess)))
    for split in range(len(excess)):
        change = 2 * table.count * (excess[split, table.kind] - own + table.count) / table.total[table.kind]
        changes[:, split] = np.bincount(table.group, change)
    # rounded, so that equal changes compare as equal
    changes.round(_DIGITS, out=changes)
    return changes


def _gains_of_moves(table: _Table, split_of: IntArray, excess: FloatArray) -> FloatArray:
    """Return ``_changes``; infinite for moves to the own split, and for those that empty a split."""
    changes = _changes(table, split_of, excess)
    is_alone = np.bincount(split_of, minlength=len(excess))[split_of] == 1
    changes[is_alone] = np.inf
    changes[np.arange(table.num_groups), split_of] = np.inf
    return changes


def _best_pair(table: _Table, split_of: IntArray, excess: FloatArray) -> tuple[int, int] | None:
    """Return the two groups whose exchange lowers the sum of squares most, or None."""
    if table.num_groups > _MOST_FOR_PAIRS:
        return None
    changes = _changes(table, split_of, excess)
    counts = np.zeros((table.num_groups, len(table.total)))
    counts[table.group, table.kind] = table.count
    best, found = -_LEAST, None
    for one, other in combinations(range(len(excess)), 2):
        ones, others = np.flatnonzero(split_of == one), np.flatnonzero(split_of == other)
        if not len(ones) or not len(others):
            continue
        # each move is computed as if the other group stayed
        shared = np.einsum("gc,hc->gh", counts[ones] / table.total, counts[others])
        gains = np.round(changes[ones, other][:, None] + changes[others, one] - 4 * shared, _DIGITS)
        row, column = np.unravel_index(int(np.argmin(gains)), gains.shape)
        if gains[row, column] < best:
            best, found = gains[row, column], (int(ones[row]), int(others[column]))
    return found
