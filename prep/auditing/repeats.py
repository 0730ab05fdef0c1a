"""Find examples that a dataset holds twice: in two splits, in one split, or with two labels.

Results are linear in the number of examples: an example is paired only with the first of all that are equal
or similar to it. Within a split, the examples with the largest images come first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tfshards.prep.auditing.similar import Hashes, Integers, Pairs, near_pairs
from tfshards.prep.auditing.survey import NO_LABEL, Survey

_SAME_BYTES = -1
_NONE = -1


@dataclass(frozen=True)
class Partners:
    """For each example another one that is equal or similar to it, and comes before it.

    Attributes:
        partner: int64 of shape ``(examples,)``, the index of the other example; -1 where there is none.
        distance: int64 of shape ``(examples,)``, the number of bits in which the hashes of the two differ;
            -1 where their bytes are equal.
    """

    partner: Integers
    distance: Integers


@dataclass(frozen=True)
class Repeats:
    """The examples that occur more than once.

    Attributes:
        leaks: partners in a larger split.
        duplicates: partners in the same split.
        conflicts: partners with another label, in any split.
        is_complete: False if the search for near-duplicates was cut short.
    """

    leaks: Partners
    duplicates: Partners
    conflicts: Partners
    is_complete: bool = True


def find_repeats(survey: Survey, distance: int | None) -> Repeats:
    """Return the examples that occur more than once.

    Args:
        survey: the examples.
        distance: the greatest number of differing bits of near-duplicates; None compares bytes only.
    """
    # split remains the primary key, since the largest split is the first
    order = np.lexsort((-survey.num_bytes, -survey.size.prod(axis=1), survey.split))
    found = _find(_in_order(survey, order), distance)
    return replace(
        found,
        leaks=_back(found.leaks, order),
        duplicates=_back(found.duplicates, order),
        conflicts=_back(found.conflicts, order),
    )


def _in_order(survey: Survey, order: Integers) -> Survey:
    return replace(
        survey,
        split=survey.split[order],
        label=survey.label[order],
        digest=survey.digest[order],
        hashes=survey.hashes[order],
        is_hashed=survey.is_hashed[order],
    )


def _back(partners: Partners, order: Integers) -> Partners:
    """Return the partners of examples that are in an order by the indices that they had before."""
    partner, distance = np.empty_like(partners.partner), np.empty_like(partners.distance)
    partner[order] = np.where(partners.partner == _NONE, _NONE, order[partners.partner])
    distance[order] = partners.distance
    return Partners(partner, distance)


def _find(survey: Survey, distance: int | None) -> Repeats:
    everything = np.arange(len(survey.keys))
    same = _same(survey, _groups(survey.digest), everything, _SAME_BYTES)
    if distance is None or not survey.is_hashed.any():
        return same
    hashed = np.flatnonzero(survey.is_hashed)
    hashes, groups = np.unique(survey.hashes[hashed], axis=0, return_inverse=True)
    groups = groups.reshape(-1)
    pairs = near_pairs(hashes, distance)
    near = _same(survey, groups, hashed, 0)
    near = _with_near(survey, near, groups, hashed, pairs)
    return Repeats(
        _first_of(same.leaks, near.leaks),
        _first_of(same.duplicates, near.duplicates),
        _first_of(same.conflicts, near.conflicts),
        pairs.is_complete,
    )


def _same(survey: Survey, groups: Integers, indices: Integers, distance: int) -> Repeats:
    """Return the repeats among the examples at ``indices``, where examples of one group count as equal.

    Examples are numbered by split, the largest first: the first of a group is in the largest of its splits.
    """
    split, label = survey.split[indices], survey.label[indices]
    first = _firsts(groups)
    own = np.arange(len(indices))
    # examples without a label contradict no other
    labelled = np.flatnonzero(label != NO_LABEL)
    first_labelled = own.copy()
    first_labelled[labelled] = labelled[_firsts(groups[labelled])]
    first_in_split = _firsts(_groups(np.stack([groups, split], axis=1)))

    def partners(is_one: npt.NDArray[np.bool_], partner: Integers) -> Partners:
        of_all = np.full(len(survey.keys), _NONE)
        of_all[indices[is_one]] = indices[partner[is_one]]
        return Partners(of_all, np.full(len(survey.keys), distance))

    return Repeats(
        partners(split != split[first], first),
        partners(first_in_split != own, first_in_split),
        partners(label != label[first_labelled], first_labelled),
    )


def _with_near(survey: Survey, found: Repeats, groups: Integers, indices: Integers, pairs: Pairs) -> Repeats:
    """Give examples without a partner in their own group the first example of the nearest other group."""
    # head: the first example of each group
    _, index_of_group = np.unique(groups, return_index=True)
    head = indices[index_of_group]
    one, other = head[pairs.first], head[pairs.second]
    later, earlier = np.maximum(one, other), np.minimum(one, other)
    leaks = survey.split[later] != survey.split[earlier]
    one_label, other_label = survey.label[later], survey.label[earlier]
    conflicts = (one_label != other_label) & (one_label != NO_LABEL) & (other_label != NO_LABEL)
    # an example with the split, or label, of its group's head has no partner in the group
    head_of = np.full(len(survey.keys), _NONE)
    head_of[indices] = head[groups]
    return replace(
        found,
        leaks=_add(found.leaks, head_of, later[leaks], earlier[leaks], pairs.distance[leaks]),
        conflicts=_add(
            found.conflicts, head_of, later[conflicts], earlier[conflicts], pairs.distance[conflicts]
        ),
        duplicates=_add_duplicates(survey, found.duplicates, groups, indices, pairs),
    )


def _add_duplicates(
    survey: Survey, found: Partners, groups: Integers, indices: Integers, pairs: Pairs
) -> Partners:
    itself = np.arange(len(survey.keys))
    for split in range(len(survey.splits)):
        inside = np.flatnonzero(survey.split[indices] == split)
        head = np.full(int(groups.max()) + 1, _NONE)
        present, first = np.unique(groups[inside], return_index=True)
        head[present] = indices[inside[first]]
        one, other = head[pairs.first], head[pairs.second]
        both = (one != _NONE) & (other != _NONE)
        later, earlier = np.maximum(one, other)[both], np.minimum(one, other)[both]
        found = _add(found, itself, later, earlier, pairs.distance[both])
    return found


def _add(found: Partners, head: Integers, later: Integers, earlier: Integers, distance: Integers) -> Partners:
    """Give each example without a partner whose head is in ``later`` the nearest of ``earlier``."""
    order = np.lexsort((earlier, distance, later))
    targets, first = np.unique(later[order], return_index=True)
    best = order[first]
    partner, bits = np.full(len(head), _NONE), np.zeros(len(head), np.int64)
    partner[targets], bits[targets] = earlier[best], distance[best]
    is_open = (found.partner == _NONE) & (head != _NONE)
    is_open[is_open] = partner[head[is_open]] != _NONE
    return Partners(
        np.where(is_open, partner[head], found.partner), np.where(is_open, bits[head], found.distance)
    )


def _first_of(same: Partners, near: Partners) -> Partners:
    """Return the partners with equal bytes, else the near ones."""
    has_same = same.partner != _NONE
    return Partners(
        np.where(has_same, same.partner, near.partner), np.where(has_same, same.distance, near.distance)
    )


def _groups(values: npt.NDArray[np.void] | Integers | Hashes) -> Integers:
    """Return a group number for each row; equal rows have equal numbers."""
    if values.ndim == 1:
        return np.unique(values, return_inverse=True)[1].reshape(-1)
    return np.unique(values, axis=0, return_inverse=True)[1].reshape(-1)


def _firsts(groups: Integers) -> Integers:
    """Return for each element the index of the first element of its group."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    return first[inverse.reshape(-1)]
