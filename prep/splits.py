"""Which example is in which split, by ratios. Pure, and stable: data added later never move an old key.

Keys are sorted by a keyed hash and cut exactly at the ratios; the hash values at the cuts are kept. A key's
split is then a function of its own hash and the cuts: the number of cuts that are not above the hash.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import cast

import numpy as np

from tfshards.prep.plan import IntArray
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.manifest import name_fault
from tfshards.schemas.reading import Json

# Above every hash: where a split of a class has no example, its cut stands here.
_END = "f" * 32


@dataclass(frozen=True)
class Membership:
    """The splits of a listing.

    Attributes:
        examples: by split, the example numbers, ascending; none is empty.
        cuts: for the manifest: the splits' names in order, and for each stratum (the class's number, or
            ``all``) one hash value a cut; empty if no ratios were given.
    """

    examples: Mapping[str, IntArray]
    cuts: Mapping[str, Json] = field(default_factory=dict)


def usual_place(split: str) -> tuple[int, str]:
    """Return what sorts splits as people list them: train…, val…, dev, test…, and others by name."""
    starts = ("tr", "va", "de", "te")
    return next((place for place, start in enumerate(starts) if split.startswith(start)), len(starts)), split


def parse_ratios(texts: Sequence[str]) -> dict[str, Fraction]:
    """Return the ratios in texts such as ``train=0.9`` or ``val=10%``, exactly.

    Raises:
        OptionsError: a text is not of that form, a name stands twice, or the ratios do not add up to 1.
    """
    ratios: dict[str, Fraction] = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            ratio = Fraction(number[:-1]) / 100 if number.endswith("%") else Fraction(number)
        except (ValueError, ZeroDivisionError):
            raise OptionsError(f"--split {text}: must be NAME=RATIO, such as train=0.9 or val=10%") from None
        if name in ratios:
            raise OptionsError(f"--split {text}: the split {name!r} stands twice")
        ratios[name] = ratio
    check_ratios(ratios)
    return ratios


def check_ratios(ratios: Mapping[str, Fraction]) -> None:
    """Raise OptionsError if a name or ratio is not allowed, or the ratios do not add up to 1."""
    for name, ratio in ratios.items():
        fault = name_fault(name)
        if fault:
            raise OptionsError(f"the split name {fault}")
        if not 0 < ratio <= 1:
            raise OptionsError(f"split {name!r}: the ratio {_shown(ratio)} must be above 0 and at most 1")
    total = sum(ratios.values())
    if ratios and total != 1:
        listed = " + ".join(f"{name}={_shown(ratio)}" for name, ratio in ratios.items())
        raise OptionsError(f"the split ratios {listed} add up to {_shown(total)}; they must add up to 1")


def _shown(ratio: Fraction | int) -> str:
    try:
        return f"{float(ratio):g}"
    except OverflowError:
        return "of more than 300 digits"


def split_by_ratio(
    keys: Sequence[bytes],
    ratios: Mapping[str, Fraction],
    seed: int,
    *,
    strata: IntArray | None = None,
    groups: Sequence[bytes] | None = None,
) -> Membership:
    """Return the splits of ``keys`` by ``ratios``, which add up to 1.

    Args:
        keys: one an example.
        ratios: by split, in order.
        seed: of the hash; another seed gives other splits.
        strata: shape ``(num_examples,)``; each value's examples are split by the ratios of their own
            (sizes by largest remainder).
        groups: one an example; those of one group stay together, so that sizes are as near to the ratios
            as whole groups allow. Not with ``strata``.

    Raises:
        InputError: a split would be empty.
    """
    names = list(ratios)
    cuts: dict[str, Json] = {}
    parts: list[list[IntArray]] = [[] for _ in names]
    everyone = np.arange(len(keys), dtype=np.int64)
    for stratum in [None] if strata is None else np.unique(strata).tolist():
        members = everyone if stratum is None else np.flatnonzero(strata == stratum)
        hashes = np.array([_hash((groups or keys)[number], seed) for number in members.tolist()])
        order = np.argsort(hashes, kind="stable")
        bounds = _cut_groups(hashes[order], ratios) if groups else _cut(len(members), ratios)
        ranks = hashes[order]
        cuts["all" if stratum is None else str(stratum)] = [
            str(ranks[bound]) if bound < len(ranks) else _END for bound in bounds[1:-1]
        ]
        for part, start, end in zip(parts, bounds, bounds[1:], strict=False):
            part.append(members[order[start:end]])
    examples = {name: np.sort(np.concatenate(part)) for name, part in zip(names, parts, strict=True)}
    for name, members in examples.items():
        if not len(members):
            what = f"{len(set(groups))} groups" if groups else f"{len(keys)} examples"
            share = f"{float(ratios[name]):.3g} of {what}"
            raise InputError(f"split {name!r} would be empty: {share}; give it a larger ratio or more data")
    return Membership(examples, {"splits": list(names), "seed": seed, "cuts": cuts})


def split_by_cuts(
    keys: Sequence[bytes],
    membership: Mapping[str, Json],
    ratios: Mapping[str, Fraction],
    *,
    strata: IntArray | None = None,
    groups: Sequence[bytes] | None = None,
) -> Membership:
    """Return the splits of keys that came later, by the cuts of an earlier ``split_by_ratio``.

    No key ever leaves its split so. Of a stratum that had no examples then, the hashes are cut at the ratios.

    Args:
        keys: one an example.
        membership: the cuts, as ``Membership`` has them.
        ratios: by which they were made.
        strata: as for ``split_by_ratio``; needed if the cuts are those of strata.
        groups: as for ``split_by_ratio``.

    Returns the splits that are not empty, and the cuts with those of new strata.
    """
    names, seed = cast("list[str]", membership["splits"]), cast("int", membership["seed"])
    cuts = dict(cast("Mapping[str, list[str]]", membership["cuts"]))
    is_stratified = "all" not in cuts
    places = np.zeros(len(keys), dtype=np.int64)
    for number, key in enumerate(groups or keys):
        stratum = str(int(strata[number])) if is_stratified and strata is not None else "all"
        bounds = cuts.setdefault(stratum, _cuts_at(ratios))
        places[number] = bisect_right(bounds, _hash(key, seed))
    examples = {name: np.flatnonzero(places == place) for place, name in enumerate(names)}
    found = {name: members for name, members in examples.items() if len(members)}
    return Membership(found, {**membership, "cuts": {name: [*bounds] for name, bounds in cuts.items()}})


def _cuts_at(ratios: Mapping[str, Fraction]) -> list[str]:
    """Return the hashes below which the share of all hashes is that of the splits up to there."""
    shares = list(accumulate(ratios.values()))[:-1]
    return [f"{min(int(share * (1 << 128)), (1 << 128) - 1):032x}" for share in shares]


def _hash(key: bytes, seed: int) -> str:
    """Return 32 hex digits: the keyed hash by which keys are sorted (docs/format.md)."""
    return hashlib.blake2b(key, digest_size=16, key=str(seed).encode(), person=b"tfshards-split").hexdigest()


def _cut(count: int, ratios: Mapping[str, Fraction]) -> list[int]:
    """Return the bounds of parts of ``count`` that add up exactly, by largest remainder."""
    shares = [ratio * count for ratio in ratios.values()]
    sizes = [int(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda index: (sizes[index] - shares[index], index))
    for index in by_remainder[: count - sum(sizes)]:
        sizes[index] += 1
    return [0, *np.cumsum(sizes).tolist()]


def _cut_groups(ranks: np.typing.NDArray[np.str_], ratios: Mapping[str, Fraction]) -> list[int]:
    """Return the bounds nearest to the ratios that fall between groups; ``ranks`` is sorted."""
    edges = np.concatenate([[0], np.flatnonzero(ranks[1:] != ranks[:-1]) + 1, [len(ranks)]])
    bounds, wanted = [0], Fraction(0)
    for ratio in ratios.values():
        wanted += ratio * len(ranks)
        nearest = int(edges[np.argmin(np.abs(edges - float(wanted)))])
        bounds.append(max(nearest, bounds[-1]))
    return bounds
