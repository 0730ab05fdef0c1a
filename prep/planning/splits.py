"""Assign examples to splits by ratio, such that data that are added later never move an old key.

Keys are sorted by a keyed hash and cut exactly at the ratios; the hash values at the cuts are kept. The split
of a key then depends only on its hash and the cuts: it is the number of cuts that are not above the hash.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import cast

import numpy as np

from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import name_fault

# Not below any hash: the cut of a split that has no example of a class.
_END = "f" * 32
_HASH_BYTES = 16


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


def parse_ratios(texts: Sequence[str]) -> dict[str, Fraction]:
    """Return the ratios in texts such as ``train=0.9`` or ``val=10%``, exactly."""
    ratios: dict[str, Fraction] = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            ratio = Fraction(number[:-1]) / 100 if number.endswith("%") else Fraction(number)
        except (ValueError, ZeroDivisionError):
            raise OptionsError("ratio-form", text=text) from None
        if name in ratios:
            raise OptionsError("ratio-repeated", text=text, name=name)
        ratios[name] = ratio
    check_ratios(ratios)
    return ratios


def check_ratios(ratios: Mapping[str, Fraction]) -> None:
    """Raise OptionsError if a name or ratio is not allowed, or the ratios do not add up to 1."""
    for name, ratio in ratios.items():
        if fault := name_fault(name):
            raise OptionsError("split-name", fault=fault)
        if not 0 < ratio <= 1:
            raise OptionsError("ratio-range", name=name, ratio=_ratio_text(ratio))
    total = sum(ratios.values())
    if ratios and total != 1:
        listed = " + ".join(f"{name}={_ratio_text(ratio)}" for name, ratio in ratios.items())
        raise OptionsError("ratios-sum", listed=listed, total=_ratio_text(total))


def _ratio_text(ratio: Fraction | int) -> str:
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
    """Return the splits of ``keys`` by ``ratios``, which add up to 1; other seeds give other splits.

    The examples of each value of ``strata`` are split separately, with sizes by largest remainder. Examples
    of one of the ``groups`` stay together, so that sizes are only as close to the ratios as whole groups
    allow. For both, see ``group_splits``. A split that would be empty raises InputError.
    """
    names = list(ratios)
    cuts: dict[str, Json] = {}
    parts: list[list[IntArray]] = [[] for _ in names]
    everyone = np.arange(len(keys), dtype=np.int64)
    for stratum in [None] if strata is None else np.unique(strata).tolist():
        members = everyone if stratum is None else np.flatnonzero(strata == stratum)
        hashes = _hashes(groups or keys, members, seed)
        order = np.argsort(hashes, kind="stable")
        bounds = cut_groups(hashes[order], ratios) if groups else _cut(len(members), ratios)
        cuts["all" if stratum is None else str(stratum)] = [
            key_hash((groups or keys)[members[order[bound]]], seed) if bound < len(order) else _END
            for bound in bounds[1:-1]
        ]
        for part, start, end in zip(parts, bounds, bounds[1:], strict=False):
            part.append(members[order[start:end]])
    examples = {name: np.sort(np.concatenate(part)) for name, part in zip(names, parts, strict=True)}
    require_examples(examples, ratios, f"{len(set(groups))} groups" if groups else f"{len(keys)} examples")
    return Membership(examples, {"splits": list(names), "seed": seed, "cuts": cuts})


def require_examples(examples: Mapping[str, IntArray], ratios: Mapping[str, Fraction], what: str) -> None:
    """Raise InputError if a split is empty; ``what`` was divided by the ratios, such as ``3 groups``."""
    for name, members in examples.items():
        if not len(members):
            share = f"{float(ratios[name]):.3g} of {what}"
            raise InputError("split-empty", name=name, share=share)


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
    names, seed = cast("list[str]", split_cuts["splits"]), cast("int", split_cuts["seed"])
    cuts = dict(cast("Mapping[str, list[str]]", split_cuts["cuts"]))
    moved = cast("Mapping[str, str]", split_cuts.get("moved", {}))
    is_stratified = "all" not in cuts
    # of strata without examples before, the range of all hashes is cut
    by_ratio = [f"{int(share * (1 << 128)):032x}" for share in [*accumulate(ratios.values())][:-1]]
    split_of = np.zeros(len(keys), dtype=np.int64)
    for number, key in enumerate(groups or keys):
        stratum = str(int(strata[number])) if is_stratified and strata is not None else "all"
        bounds = cuts.setdefault(stratum, by_ratio)
        own = key_hash(key, seed)
        split_of[number] = names.index(moved[own]) if own in moved else bisect_right(bounds, own)
    examples = {name: np.flatnonzero(split_of == index) for index, name in enumerate(names)}
    found = {name: members for name, members in examples.items() if len(members)}
    return Membership(found, {**split_cuts, "cuts": {name: [*bounds] for name, bounds in cuts.items()}})


def key_hash(key: bytes, seed: int) -> str:
    """Return the keyed hash by which keys are sorted, as 32 hex digits (docs/format.md)."""
    return _hasher(seed)(key).hex()


def _hasher(seed: int) -> Callable[[bytes], bytes]:
    seeded = hashlib.blake2b(digest_size=_HASH_BYTES, key=str(seed).encode(), person=b"tfshards-split")

    def digest(key: bytes) -> bytes:
        hasher = seeded.copy()
        hasher.update(key)
        return hasher.digest()

    return digest


def _hashes(keys: Sequence[bytes], numbers: IntArray, seed: int) -> np.typing.NDArray[np.bytes_]:
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


def cut_groups(
    ranks: np.typing.NDArray[np.str_] | np.typing.NDArray[np.bytes_], ratios: Mapping[str, Fraction]
) -> list[int]:
    """Return the bounds between groups that are nearest to the ratios; ``ranks`` is sorted."""
    edges = np.concatenate([[0], np.flatnonzero(ranks[1:] != ranks[:-1]) + 1, [len(ranks)]])
    bounds, wanted = [0], Fraction(0)
    for ratio in ratios.values():
        wanted += ratio * len(ranks)
        bounds.append(int(edges[np.argmin(np.abs(edges - float(wanted)))]))
    return bounds
