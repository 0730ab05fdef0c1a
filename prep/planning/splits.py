"""Assign examples to splits by ratio, such that data that are added later never move an old key.

Keys are sorted by a keyed hash and cut exactly at the ratios; the hash values at the cuts are kept. The split
of a key then depends only on its hash and the cuts: it is the number of cuts that are not above the hash.
Whole groups are stratified by a greedy rule instead; the hashes of groups that are in another split than the
cuts give are kept as well.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import cast

import numpy as np
import numpy.typing as npt

from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import name_fault

# Not below any hash: the cut of a split that has no example of a class.
_END = "f" * 32
_HASH_BYTES = 16
# The class that stands for all examples: labels are -1 or more.
_ALL = -2
# Quotients are compared in units of 1 / _PRECISION.
_PRECISION = 1 << 64


@dataclass(frozen=True)
class Membership:
    """The splits of a listing.

    Attributes:
        examples: example numbers of each split, ascending; no split is empty, and each example is in one.
        cuts: the manifest's ``split_cuts``: ``splits``, the names in order; ``seed``; ``cuts``, for each
            stratum (number of the class, or ``all``) one hash value per cut; and, where whole groups were
            stratified, ``moved``, the split of each hash that is in another one than the cuts give. Empty if
            no ratios were given.
    """

    examples: Mapping[str, IntArray]
    cuts: Mapping[str, Json] = field(default_factory=dict)


def exact_ratios(splits: Mapping[str, str | float | Fraction]) -> dict[str, Fraction]:
    """Return the exact ratio of each split; a float is taken as the decimal number that it prints as.

    Raises:
        OptionsError: a name or ratio is not allowed, or the ratios do not add up to 1.
    """
    ratios: dict[str, Fraction] = {}
    for name, given in splits.items():
        if fault := name_fault(name):
            raise OptionsError(f"the split name {fault}")
        ratios[name] = share_of(f"the ratio {name}", given)
    if ratios and (sum(ratios.values()) != 1 or 0 in ratios.values()):
        total = f"{float(sum(ratios.values())):g}"
        texts = " + ".join(f"{name}={given}" for name, given in splits.items())
        raise OptionsError(f"the split ratios {texts} add up to {total}; they must, without 0, add up to 1")
    return ratios


def share_of(name: str, given: str | float | Fraction) -> Fraction:
    """Return the exact value of a share such as ``0.9``, ``90%`` or ``2/3``.

    Raises:
        OptionsError: it is not from 0 to 1; ``name`` is what it is.
    """
    text, share = str(given), Fraction(-1)
    with suppress(ValueError, ZeroDivisionError):
        share = Fraction(text[:-1]) / 100 if text.endswith("%") else Fraction(text)
    if not 0 <= share <= 1:
        raise OptionsError(f"{name}={text!r} must be from 0% to 100%, such as 1% or 0.01")
    return share


def split_by_ratio(
    keys: Sequence[bytes],
    ratios: Mapping[str, Fraction],
    seed: int,
    *,
    strata: IntArray | None = None,
    groups: Sequence[bytes] | None = None,
) -> Membership:
    """Return the splits of ``keys`` by ``ratios``, which add up to 1; other seeds give other splits.

    The examples of each value of ``strata`` are split separately, with sizes by largest remainder. Examples
    of one of the ``groups`` stay together, so that sizes are only as close to the ratios as whole groups
    allow. For both, see ``_spread``. A split that would be empty raises InputError.
    """
    if groups is not None and strata is not None:
        split_of, recorded = _split_groups_by_class(groups, strata, ratios, seed)
    else:
        split_of, recorded = _split_by_hash(groups or keys, ratios, seed, strata, are_groups=bool(groups))
    examples = {name: np.flatnonzero(split_of == index) for index, name in enumerate(ratios)}
    for name, members in examples.items():
        if not len(members):
            what = f"{len(set(groups))} groups" if groups else f"{len(keys)} examples"
            raise InputError(f"split {name!r} would be empty: {float(ratios[name]):.3g} of {what}; raise it")
    return Membership(examples, {"splits": [*ratios], "seed": seed, **recorded})


def _split_by_hash(
    names: Sequence[bytes],
    ratios: Mapping[str, Fraction],
    seed: int,
    strata: IntArray | None,
    *,
    are_groups: bool,
) -> tuple[npt.NDArray[np.int32], dict[str, Json]]:
    """Return the index of each example's split, by the hash of its key or group, and the cuts."""
    split_of = np.zeros(len(names), np.int32)
    cuts: dict[str, Json] = {}
    for stratum in [None] if strata is None else np.unique(strata).tolist():
        members = np.arange(len(names)) if stratum is None else np.flatnonzero(strata == stratum)
        hashes = _hashes(names, members, seed)
        order = np.argsort(hashes, kind="stable")
        bounds = _cut_groups(hashes[order], ratios) if are_groups else _cut(len(members), ratios)
        for index, (start, end) in enumerate(pairwise(bounds)):
            split_of[members[order[start:end]]] = index
        cuts["all" if stratum is None else str(stratum)] = [
            _hasher(seed)(names[members[order[bound]]]).hex() if bound < len(order) else _END
            for bound in bounds[1:-1]
        ]
    return split_of, {"cuts": cuts}


def _split_groups_by_class(
    groups: Sequence[bytes], labels: IntArray, ratios: Mapping[str, Fraction], seed: int
) -> tuple[npt.NDArray[np.int32], dict[str, Json]]:
    """Return the index of each example's split, and the cuts with the groups that they do not place."""
    digest, splits = _hasher(seed), list(ratios)
    hash_of = {group: digest(group).hex() for group in set(groups)}
    counts: dict[str, Counter[int]] = {name: Counter() for name in hash_of.values()}
    for group, label in zip(groups, labels.tolist(), strict=True):
        counts[hash_of[group]][label] += 1
        counts[hash_of[group]][_ALL] += 1
    chosen, cuts = _spread(counts, [*ratios.values()]), _cuts_at(ratios)
    moved = {name: splits[index] for name, index in chosen.items() if index != bisect_right(cuts, name)}
    split_of = np.array([chosen[hash_of[group]] for group in groups], np.int32)
    return split_of, {"cuts": {"all": [*cuts]}, "moved": {**moved}}


def _spread(groups: Mapping[str, Mapping[int, int]], ratios: Sequence[Fraction]) -> dict[str, int]:
    """Return the index of each group's split: largest groups first, each to the split that lacks it most.

    ``groups`` has the number of examples of each class, and of all as one more class. The excess of a split
    in a class is its examples minus its share of those that were assigned so far. A group is assigned where
    it raises least the sum, over splits and classes, of the squared excess divided by the size of the class.

    At the end the sum is at most ``1 - sum(ratio ** 2)`` times the sum of ``count ** 2 / size``, over groups
    and classes. This is its average if each group were assigned at random, with the ratios as probabilities:
    the best choice raises the sum by no more than random choices do on average.
    """
    # the excess is counted in parts of an example, so that all numbers are integers, equal on all machines
    parts = math.lcm(*(ratio.denominator for ratio in ratios))
    sizes, assigned = Counter[int](), Counter[int]()
    for counts in groups.values():
        sizes.update(counts)
    held = [(int(ratio * parts), Counter[int]()) for ratio in ratios]

    def rise(counts: Mapping[int, int], share: int, own: Mapping[int, int]) -> int:
        # without what is the same for each split
        total = 0
        for label, count in counts.items():
            excess = parts * own[label] - share * assigned[label]
            total += count * (2 * excess + count * (parts - 2 * share)) * _PRECISION // sizes[label]
        return total

    split_of = {}
    for name in sorted(groups, key=lambda name: (-groups[name][_ALL], name)):
        counts = groups[name]
        rises = [rise(counts, share, own) for share, own in held]
        split_of[name] = rises.index(min(rises))
        held[split_of[name]][1].update(counts)
        assigned.update(counts)
    return split_of


def split_by_cuts(
    keys: Sequence[bytes],
    split_cuts: Mapping[str, Json],
    ratios: Mapping[str, Fraction],
    *,
    strata: IntArray | None = None,
    groups: Sequence[bytes] | None = None,
) -> Membership:
    """Return the splits of keys that were added later, by the cuts of an earlier split.

    No key, and no group, ever leaves its split. The hashes of a stratum that had no examples before are cut
    at the ratios. ``strata`` is required if the cuts are by stratum. Splits without keys are left out.
    """
    names, digest = cast("list[str]", split_cuts["splits"]), _hasher(cast("int", split_cuts["seed"]))
    cuts = dict(cast("Mapping[str, list[str]]", split_cuts["cuts"]))
    moved = cast("Mapping[str, str]", split_cuts.get("moved", {}))
    is_stratified, by_ratio = "all" not in cuts, _cuts_at(ratios)
    split_of = np.zeros(len(keys), np.int32)
    for number, key in enumerate(groups or keys):
        stratum = str(int(strata[number])) if is_stratified and strata is not None else "all"
        bounds = cuts.setdefault(stratum, by_ratio)
        own = digest(key).hex()
        split_of[number] = names.index(moved[own]) if own in moved else bisect_right(bounds, own)
    examples = {name: np.flatnonzero(split_of == index) for index, name in enumerate(names)}
    found = {name: members for name, members in examples.items() if len(members)}
    return Membership(found, {**split_cuts, "cuts": {name: [*bounds] for name, bounds in cuts.items()}})


def _cuts_at(ratios: Mapping[str, Fraction]) -> list[str]:
    """Return the cuts that divide the range of all hashes by the ratios (docs/format.md)."""
    return [f"{int(share * (1 << 8 * _HASH_BYTES)):032x}" for share in [*accumulate(ratios.values())][:-1]]


def _hasher(seed: int) -> Callable[[bytes], bytes]:
    """Return the keyed hash by which keys are sorted (docs/format.md)."""
    seeded = hashlib.blake2b(digest_size=_HASH_BYTES, key=str(seed).encode(), person=b"tfshards-split")

    def digest(key: bytes) -> bytes:
        hasher = seeded.copy()
        hasher.update(key)
        return hasher.digest()

    return digest


def _hashes(keys: Sequence[bytes], numbers: IntArray, seed: int) -> npt.NDArray[np.bytes_]:
    """Return the hashes of the keys with these numbers, as bytes, an eighth of the memory of hex digits."""
    digest = _hasher(seed)
    # the view yields one number at a time
    hashes = (digest(keys[number]) for number in numbers.data)
    return np.fromiter(hashes, dtype=f"S{_HASH_BYTES}", count=len(numbers))


def _cut(count: int, ratios: Mapping[str, Fraction]) -> list[int]:
    """Return the bounds of parts of ``count`` in the given ratios, by largest remainder."""
    shares = [ratio * count for ratio in ratios.values()]
    sizes = [int(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda index: (sizes[index] - shares[index], index))
    for index in by_remainder[: count - sum(sizes)]:
        sizes[index] += 1
    return [0, *np.cumsum(sizes).tolist()]


def _cut_groups(ranks: npt.NDArray[np.bytes_], ratios: Mapping[str, Fraction]) -> list[int]:
    """Return the bounds between groups that are nearest to the ratios; ``ranks`` is sorted."""
    edges = np.concatenate([[0], np.flatnonzero(ranks[1:] != ranks[:-1]) + 1, [len(ranks)]])
    bounds, wanted = [0], Fraction(0)
    for ratio in ratios.values():
        wanted += ratio * len(ranks)
        bounds.append(int(edges[np.argmin(np.abs(edges - float(wanted)))]))
    return bounds
