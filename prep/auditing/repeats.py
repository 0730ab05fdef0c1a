"""Find examples that a dataset holds twice: in two splits, in one split, or with two labels.

Results are linear in the number of examples: an example is paired only with the first of all that are equal
or similar to it, in the order of the survey.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.prep.auditing.similar import NO_PAIRS, Integers, Pairs, near_pairs
from tfshards.prep.auditing.survey import Examples

SAME_BYTES = -1
_NONE = -1
# Returns pairs of a later and an earlier example of a part of the dataset that differ in their classes, with
# the number of bits that differ, which is SAME_BYTES where bytes are equal.
Relation: TypeAlias = Callable[[npt.NDArray[np.bool_], Integers], Pairs]


def relation_of(examples: Examples, distance: int | None) -> tuple[Relation, bool]:
    """Return what finds examples that are equal or similar, and whether it finds all that are similar.

    Of similar images at most ``distance`` bits of their hashes differ.
    """
    hashed = np.flatnonzero(examples["is_hashed"] & (distance is not None))
    hashes, by_hash = np.unique(examples["hash"][hashed], axis=0, return_inverse=True)
    _, by_bytes = np.unique(examples["digest"], return_inverse=True)
    near, is_complete = near_pairs(hashes, distance or 0)
    # examples with the group of each, groups that are similar, and how many bits differ inside of a group
    equal = (np.arange(len(examples)), by_bytes.reshape(-1), NO_PAIRS, SAME_BYTES)
    similar = (hashed, by_hash.reshape(-1), near, 0)

    def pairs(is_inside: npt.NDArray[np.bool_], classes: Integers) -> Pairs:
        # equal bytes come first
        found = np.concatenate(
            [
                _with_partners(members[is_inside[members]], groups[is_inside[members]], near, bits, classes)
                for members, groups, near, bits in (equal, similar)
            ]
        )
        return found[np.unique(found[:, 0], return_index=True)[1]]

    return pairs, is_complete


def _with_partners(members: Integers, groups: Integers, near: Pairs, bits: int, classes: Integers) -> Pairs:
    """Pair each example with the first one of its group, or else of the nearest group before it.

    Args:
        members: the examples that are compared, ascending.
        groups: for each of them the number of its group, in which all are equal.
        near: pairs of groups that are similar.
        bits: distance of the examples of a group.
        classes: an example and its partner must differ in these.
    """
    present, first, unit = np.unique(groups, return_index=True, return_inverse=True)
    head = np.full(max(groups.max(initial=0), near[:, :2].max(initial=0)) + 1, _NONE)
    head[present] = members[first]
    later, earlier = head[near[:, :2]].max(axis=1), head[near[:, :2]].min(axis=1)
    fits = (earlier != _NONE) & (classes[later] != classes[earlier])
    later, earlier, distance = later[fits], earlier[fits], near[fits, 2]
    order = np.lexsort((earlier, distance, later))
    later, best = np.unique(later[order], return_index=True)
    partner, differing = np.full(len(classes), _NONE), np.full(len(classes), bits)
    partner[later], differing[later] = earlier[order][best], distance[order][best]
    own = members[first][unit.reshape(-1)]
    # an example of the same class as its group's head has no partner in the group
    is_alike = classes[members] == classes[own]
    found, bits_of = np.where(is_alike, partner[own], own), np.where(is_alike, differing[own], bits)
    pairs: Pairs = np.stack([members, found, bits_of], axis=1)[found != _NONE]
    return pairs
