"""Find examples that a dataset holds twice: in two splits, in one split, or with two labels.

Results are linear in the number of examples: an example is paired only with the first of all that are equal
or similar to it. Within a split, the examples with the largest images come first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfshards.prep.auditing.similar import Integers, Pairs, near_pairs
from tfshards.prep.auditing.survey import NO_LABEL, Survey

_SAME_BYTES = -1
_NONE = -1


@dataclass(frozen=True)
class Partners:
    """For each example another one that is equal or similar to it, and comes before it."""

    # index of the other example; -1 where there is none
    partner: Integers
    # number of bits in which the hashes of the two differ; -1 where their bytes are equal
    distance: Integers


@dataclass(frozen=True)
class Repeats:
    """The partners of examples in a larger split, in the same split, and with another label in any split.

    The search for near-duplicates may have been cut short.
    """

    leaks: Partners
    duplicates: Partners
    conflicts: Partners
    is_complete: bool = True


def find_repeats(survey: Survey, distance: int | None) -> Repeats:
    """Return the examples that occur more than once; near-duplicates differ by at most ``distance`` bits."""
    number = len(survey.keys)
    # split remains the primary key, since the largest split is the first
    order = np.lexsort((-survey.num_bytes, -survey.size.prod(axis=1), survey.split))
    split, label = survey.split[order], survey.label[order]
    empty = np.zeros(0, np.int64)
    hashed = np.flatnonzero(survey.is_hashed[order]) if distance is not None else empty
    hashes, hash_groups = np.unique(survey.hashes[order][hashed], axis=0, return_inverse=True)
    pairs = near_pairs(hashes, distance or 0)
    _, digest_groups = np.unique(survey.digest[order], return_inverse=True)
    none = Pairs(empty, empty, empty)
    leaks, duplicates, conflicts = (
        Partners(np.full(number, _NONE), np.full(number, _SAME_BYTES)) for _ in range(3)
    )
    # equal bytes before equal and similar hashes
    for indices, groups, near, bits in (
        (np.arange(number), digest_groups.reshape(-1), none, _SAME_BYTES),
        (hashed, hash_groups.reshape(-1), pairs, 0),
    ):
        _fill(leaks, split, indices, groups, near, bits)
        # examples without a label contradict no other
        is_labelled = label[indices] != NO_LABEL
        _fill(conflicts, label, indices[is_labelled], groups[is_labelled], near, bits)
        for one in range(len(survey.splits)):
            is_inside = split[indices] == one
            _fill(duplicates, np.arange(number), indices[is_inside], groups[is_inside], near, bits)
    return Repeats(_back(leaks, order), _back(duplicates, order), _back(conflicts, order), pairs.is_complete)


def _fill(
    found: Partners, classes: Integers, indices: Integers, groups: Integers, pairs: Pairs, bits: int
) -> None:
    """Give examples without a partner the first one of their group, or else of the nearest group before it.

    Args:
        found: receives the partners.
        classes: an example and its partner must differ in these.
        indices: the examples that are compared.
        groups: for each of them the number of its group, in which all are equal.
        pairs: pairs of groups that are similar.
        bits: distance of the examples of a group.
    """
    if not len(indices):
        return
    present, first, unit = np.unique(groups, return_index=True, return_inverse=True)
    # the first example of each group, which is in the largest of its splits
    head = np.full(max(present.max(), pairs.first.max(initial=0), pairs.second.max(initial=0)) + 1, _NONE)
    head[present] = indices[first]
    one, other = head[pairs.first], head[pairs.second]
    later, earlier = np.maximum(one, other), np.minimum(one, other)
    fits = (earlier != _NONE) & (classes[later] != classes[earlier])
    later, earlier, distance = later[fits], earlier[fits], pairs.distance[fits]
    nearest = np.lexsort((earlier, distance, later))
    targets, best = np.unique(later[nearest], return_index=True)
    near, near_bits = np.full(len(classes), _NONE), np.zeros(len(classes), np.int64)
    near[targets], near_bits[targets] = earlier[nearest[best]], distance[nearest[best]]
    own = indices[first][unit.reshape(-1)]
    # an example of the same class as its group's head has no partner in the group
    is_alike = classes[indices] == classes[own]
    is_open = found.partner[indices] == _NONE
    open_ones = indices[is_open]
    found.partner[open_ones] = np.where(is_alike, near[own], own)[is_open]
    found.distance[open_ones] = np.where(is_alike, near_bits[own], bits)[is_open]


def _back(partners: Partners, order: Integers) -> Partners:
    """Return the partners of examples that are in an order by the indices that they had before."""
    partner, distance = np.empty_like(partners.partner), np.empty_like(partners.distance)
    partner[order] = np.where(partners.partner == _NONE, _NONE, order[partners.partner])
    distance[order] = partners.distance
    return Partners(partner, distance)
