"""Find similar images: a perceptual hash of each, and the pairs of hashes that differ in few bits.

The hash is ImageHash's ``phash`` of 16 x 16: it states which of the 256 lowest frequencies of a gray copy are
above their median. It changes little when an image is re-encoded, scaled, brightened or made gray, but much
when it is mirrored, rotated, or cropped by more than a few percent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import comb
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tfshards.schemas import InputError, OptionsError

if TYPE_CHECKING:
    from tfshards.prep.imaging.pillow import Picture

# In bits of a hash. Measured on 3,781 photos of clothes, 7.1 million pairs: 32 finds every copy that was
# re-encoded, scaled down to a sixth, brightened by a fifth or made gray (the farthest differs by 26 bits), a
# quarter of those cropped by 2 % on two sides, and no other pair. The first pair of other images is at 38.
DEFAULT_DISTANCE = 32
MAX_DISTANCE = 48
HASH_BITS = 256
# The side of the gray copy in pixels: ImageHash takes the DCT of four times the hash's side.
HASHED_SIDE = 64

_SIDE = 16
_COARSE_BITS = 64
# About two minutes on one core, and 300 MB for the pairs; a million random hashes take a sixth of that.
_MAX_CANDIDATES = 3_000_000_000
_MAX_PAIRS = 5_000_000
# The number of bits set in each uint16.
_BITS_SET = np.unpackbits(np.arange(1 << 16, dtype=np.uint16)[:, np.newaxis].view(np.uint8), axis=1).sum(
    axis=1, dtype=np.uint8
)

Hashes = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Indices of pairs of similar hashes, and how many bits differ, unless too many are similar."""

    first: Integers
    second: Integers
    distance: Integers
    is_complete: bool = True


def check_distance(distance: int | None) -> None:
    """Raise OptionsError if ``distance`` is out of range."""
    if distance is not None and not 0 <= distance <= MAX_DISTANCE:
        raise OptionsError(
            "distance-range", distance=distance, max_distance=MAX_DISTANCE, hash_bits=HASH_BITS
        )


def require_imagehash() -> None:
    """Raise InputError if ImageHash is not installed."""
    try:
        import imagehash  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError("audit-extra-missing", name=error.name) from None


def perceptual_hash(image: Picture) -> Hashes:
    """Return the hash of an image as uint64 of shape ``(4,)``; the first holds the 64 coarsest bits."""
    import imagehash

    bits = np.asarray(imagehash.phash(image, _SIDE).hash, dtype=bool)
    half = _SIDE // 2
    is_coarse = np.zeros((_SIDE, _SIDE), dtype=bool)
    is_coarse[:half, :half] = True
    return np.packbits(np.concatenate([bits[is_coarse], bits[~is_coarse]])).view(np.uint64)


def near_pairs(hashes: Hashes, distance: int) -> Pairs:
    """Return the pairs of unequal hashes that differ in at most ``distance`` bits, at most a quarter coarse.

    The coarse bits are divided into bands. Two hashes that differ in d coarse bits agree in all but d bands.
    Therefore, for each choice of that many bands, only hashes that are equal in them are compared.
    """
    coarse_distance = distance // 4
    num_bands, num_equal = _bands(len(hashes), coarse_distance)
    cuts = [_COARSE_BITS * band // num_bands for band in range(num_bands + 1)]
    masks = np.array([(1 << high) - (1 << low) for low, high in pairwise(cuts)], dtype=np.uint64)
    choices = list(combinations(range(num_bands), num_equal))
    parts: list[tuple[Integers, Integers, Integers]] = []
    num_pairs = 0
    is_complete = True
    for choice in choices:
        left = _MAX_CANDIDATES // len(choices)
        chosen = np.bitwise_or.reduce(masks[list(choice)])
        others = [masks[band] for band in range(choice[-1]) if band not in choice]
        for first, second in _of_equal(hashes[:, 0] & chosen):
            differing = hashes[first, 0] ^ hashes[second, 0]
            is_near = _num_bits(differing) <= coarse_distance
            for other in others:
                # otherwise an earlier choice has found the pair
                is_near &= (differing & other) != 0
            first, second = first[is_near], second[is_near]
            bits = _num_bits(hashes[first] ^ hashes[second]).sum(axis=1, dtype=np.int64)
            kept = bits <= distance
            parts.append((first[kept], second[kept], bits[kept]))
            num_pairs += int(kept.sum())
            left -= len(is_near)
            if left < 0 or num_pairs > _MAX_PAIRS:
                is_complete = False
                break
        if num_pairs > _MAX_PAIRS:
            break
    empty = np.zeros(0, np.int64)
    joined = [np.concatenate([empty, *column]) for column in zip(*parts, strict=True)] or [empty] * 3
    return Pairs(joined[0], joined[1], joined[2], is_complete)


def _num_bits(words: Hashes) -> npt.NDArray[np.uint8]:
    """Return the number of bits that are set in each uint64."""
    if hasattr(np, "bitwise_count"):
        found: npt.NDArray[np.uint8] = np.bitwise_count(words)
        return found
    # NumPy 1
    parts: npt.NDArray[np.uint8] = _BITS_SET[words[..., np.newaxis].view(np.uint16)]
    counts: npt.NDArray[np.uint8] = parts.sum(axis=-1, dtype=np.uint8)
    return counts


def _of_equal(keys: Hashes) -> Iterator[tuple[Integers, Integers]]:
    """Yield all pairs of indices with equal keys, in parts of at most ``len(keys)`` pairs."""
    order = np.argsort(keys)
    ordered = keys[order]
    starts = np.arange(len(keys))
    for shift in range(1, len(keys)):
        starts = starts[starts < len(keys) - shift]
        starts = starts[ordered[starts] == ordered[starts + shift]]
        if not len(starts):
            return
        yield order[starts], order[starts + shift]


def _bands(num_hashes: int, differing: int) -> tuple[int, int]:
    """Return the number of bands, and how many of them must be equal, that require the least work."""

    def work(num_equal: int) -> float:
        num_bands = differing + num_equal
        candidates = num_hashes**2 / 2 ** (1 + _COARSE_BITS * num_equal / num_bands)
        # sorting costs about as much as ten comparisons per hash
        return comb(num_bands, num_equal) * (10 * num_hashes + 1000 + candidates)

    num_equal = min(range(1, 5), key=work)
    return differing + num_equal, num_equal
