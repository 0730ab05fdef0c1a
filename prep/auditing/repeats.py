"""Examples that a dataset holds twice: across splits, inside one, or under two labels.

All stays linear in the number of examples: an example is not paired with all that are like it, but with the
first of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tfshards.prep.auditing.similar import Hashes, Integers, Pairs, near_pairs
from tfshards.prep.auditing.survey import Survey

_SAME_BYTES = -1
_NONE = -1


@dataclass(frozen=True)
class Partners:
    """For each example an earlier one that is like it.

    Attributes:
        partner: int64 of shape ``(examples,)``, the place of the other; -1 where there is none.
        distance: int64 of shape ``(examples,)``, in how many bits of their hashes the two differ; -1 where
            their bytes are the same.
    """

    partner: Integers
    distance: Integers


@dataclass(frozen=True)
class Repeats:
    """What occurs more than once.

    Attributes:
        leaks: partners in a larger split.
        duplicates: partners in the same split.
        conflicts: partners of another label, anywhere.
        is_complete: False if the search for near ones was cut short.
    """

    leaks: Partners
    duplicates: Partners
    conflicts: Partners
    is_complete: bool = True


def find_repeats(survey: Survey, distance: int | None) -> Repeats:
    """Return what occurs more than once, near ones by ``distance`` bits unless that is None."""
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


def _same(survey: Survey, groups: Integers, places: Integers, distance: int) -> Repeats:
    """Return the repeats among the examples at ``places``, where those of one group are alike.

    Examples are numbered by split, the largest first: the first of a group stands in its largest split.
    """
    split, label = survey.split[places], survey.label[places]
    first = _firsts(groups)
    own = np.arange(len(places))
    first_in_split = _firsts(_groups(np.stack([groups, split], axis=1)))

    def partners(is_one: npt.NDArray[np.bool_], partner: Integers) -> Partners:
        of_all = np.full(len(survey.keys), _NONE)
        of_all[places[is_one]] = places[partner[is_one]]
        return Partners(of_all, np.full(len(survey.keys), distance))

    return Repeats(
        partners(split != split[first], first),
        partners(first_in_split != own, first_in_split),
        partners(label != label[first], first),
    )


def _with_near(survey: Survey, found: Repeats, groups: Integers, places: Integers, pairs: Pairs) -> Repeats:
    """Add, for those without a partner in their own group, the first of the nearest other group."""
    # a group's first example, and its first one in each split
    _, place_of_group = np.unique(groups, return_index=True)
    head = places[place_of_group]
    one, other = head[pairs.first], head[pairs.second]
    later, earlier = np.maximum(one, other), np.minimum(one, other)
    leaks = survey.split[later] != survey.split[earlier]
    conflicts = survey.label[later] != survey.label[earlier]
    # whoever shares its group's head's split, or label, has no partner there
    head_of = np.full(len(survey.keys), _NONE)
    head_of[places] = head[groups]
    return replace(
        found,
        leaks=_add(found.leaks, head_of, later[leaks], earlier[leaks], pairs.distance[leaks]),
        conflicts=_add(
            found.conflicts, head_of, later[conflicts], earlier[conflicts], pairs.distance[conflicts]
        ),
        duplicates=_add_duplicates(survey, found.duplicates, groups, places, pairs),
    )


def _add_duplicates(
    survey: Survey, found: Partners, groups: Integers, places: Integers, pairs: Pairs
) -> Partners:
    itself = np.arange(len(survey.keys))
    for split in range(len(survey.splits)):
        inside = np.flatnonzero(survey.split[places] == split)
        head = np.full(int(groups.max()) + 1, _NONE)
        present, first = np.unique(groups[inside], return_index=True)
        head[present] = places[inside[first]]
        one, other = head[pairs.first], head[pairs.second]
        both = (one != _NONE) & (other != _NONE)
        later, earlier = np.maximum(one, other)[both], np.minimum(one, other)[both]
        found = _add(found, itself, later, earlier, pairs.distance[both])
    return found


def _add(found: Partners, head: Integers, later: Integers, earlier: Integers, distance: Integers) -> Partners:
    """Give the nearest ``earlier`` to all whose head is ``later`` and who have no partner."""
    order = np.lexsort((earlier, distance, later))
    targets, first = np.unique(later[order], return_index=True)
    best = order[first]
    partner, bits = np.full(len(head), _NONE), np.zeros(len(head), np.int64)
    partner[targets], bits[targets] = earlier[best], distance[best]
    open_ = (found.partner == _NONE) & (head != _NONE)
    open_[open_] = partner[head[open_]] != _NONE
    return Partners(
        np.where(open_, partner[head], found.partner), np.where(open_, bits[head], found.distance)
    )


def _first_of(same: Partners, near: Partners) -> Partners:
    """Return the partners of equal bytes, and the near ones of those who have none."""
    has_same = same.partner != _NONE
    return Partners(
        np.where(has_same, same.partner, near.partner), np.where(has_same, same.distance, near.distance)
    )


def _groups(values: npt.NDArray[np.void] | Integers | Hashes) -> Integers:
    """Return a number for each row, the same for equal rows."""
    if values.ndim == 1:
        return np.unique(values, return_inverse=True)[1].reshape(-1)
    return np.unique(values, axis=0, return_inverse=True)[1].reshape(-1)


def _firsts(groups: Integers) -> Integers:
    """Return for each element the place of the first one of its group."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    return first[inverse.reshape(-1)]
