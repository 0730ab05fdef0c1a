"""Find similar images: a perceptual hash of each, and the pairs of hashes that differ in few bits.

The hash states which of the 256 lowest frequencies of a gray copy are above their median. It changes little
when an image is re-encoded, scaled, brightened or made gray, but much when it is mirrored, rotated, or
cropped by more than a few percent. It is described in "Looks Like It" by Neal Krawetz,
https://www.hackerfactor.com/blog/index.php?/archives/432-Looks-Like-It.html; bits and order are those of
``phash`` in the package ImageHash with a side of 16.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

from tfshards.schemas import OptionsError

# In bits of a hash. Measured on 3,781 photos of clothes, 7.1 million pairs: 32 finds every copy that was
# re-encoded, scaled down to a sixth, brightened by a fifth or made gray (the farthest differs by 26 bits), a
# quarter of those cropped by 2 % on two sides, and no other pair. The first pair of other images is at 38.
DEFAULT_DISTANCE = 32
MAX_DISTANCE = 48
HASH_BITS = 256
# The side of the gray copy in pixels.
HASHED_SIDE = 64

_SIDE = 16
_COARSE_BITS = 64
# About two minutes on one core, and 300 MB for the pairs; a million random hashes take a sixth of that.
_MAX_CANDIDATES = 3_000_000_000
_MAX_PAIRS = 5_000_000
_NUM_EQUAL = 3
Hashes = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
# Indices of two things that are similar, and how many bits differ: shape ``(pairs, 3)``.
Pairs = npt.NDArray[np.int64]
NO_PAIRS: Pairs = np.zeros((0, 3), np.int64)


def check_distance(distance: int | None) -> None:
    """Raise OptionsError if ``distance`` is out of range."""
    if distance is not None and not 0 <= distance <= MAX_DISTANCE:
        raise OptionsError(
            f"distance={distance} must be from 0 to {MAX_DISTANCE} of {HASH_BITS} bits, since at more most "
            "pairs are different images; or None, to compare bytes only"
        )


@cache
def _cosines() -> npt.NDArray[np.float64]:
    """Return the lowest frequencies of the DCT-II, shape ``(16, 64)``, in units of 2 to the power of -21.

    Integers give the same bits on every machine. A sum of 64 products with them fits in a float64, for which
    multiplication is faster, and a sum of 64 x 64 of them in an int64.
    """
    angles = np.outer(np.arange(_SIDE), 2 * np.arange(HASHED_SIDE) + 1) * (np.pi / (2 * HASHED_SIDE))
    cosines: npt.NDArray[np.float64] = np.rint(np.cos(angles) * (1 << 21))
    return cosines


def perceptual_hash(gray: npt.NDArray[np.uint8]) -> Hashes:
    """Return the hash of a gray image of 64 x 64 pixels; the first of four uint64 has the coarsest bits."""
    low = (_cosines() @ gray).astype(np.int64) @ _cosines().T.astype(np.int64)
    bits = low > np.median(low)
    is_coarse = np.zeros((_SIDE, _SIDE), dtype=bool)
    is_coarse[: _SIDE // 2, : _SIDE // 2] = True
    return np.packbits(np.concatenate([bits[is_coarse], bits[~is_coarse]])).view(np.uint64)


def near_pairs(hashes: Hashes, distance: int) -> tuple[Pairs, bool]:
    """Return the pairs of unequal hashes that differ in at most ``distance`` bits, a quarter of them coarse.

    The coarse bits are divided into bands. Two hashes that differ in d coarse bits agree in all but d bands.
    Therefore, for each choice of that many bands, only hashes that are equal in them are compared.

    Returns:
        The pairs, and whether they are all: the search ends early if too many hashes are similar.
    """
    coarse_distance = distance // 4
    # of more bands fewer pairs are equal by chance, but there are more choices
    num_bands = coarse_distance + _NUM_EQUAL
    cuts = [_COARSE_BITS * band // num_bands for band in range(num_bands + 1)]
    masks = np.array([(1 << high) - (1 << low) for low, high in pairwise(cuts)], dtype=np.uint64)
    choices = list(combinations(range(num_bands), _NUM_EQUAL))
    parts, num_pairs, is_complete = [NO_PAIRS], 0, True
    for choice in choices:
        left = _MAX_CANDIDATES // len(choices)
        # a pair that is equal in another band before the last one was found by an earlier choice
        others = [masks[band] for band in range(choice[-1]) if band not in choice]
        for first, second in _of_equal(hashes[:, 0] & np.bitwise_or.reduce(masks[list(choice)])):
            if left < 0 or num_pairs > _MAX_PAIRS:
                is_complete = False
                break
            left -= len(first)
            differing = hashes[first, 0] ^ hashes[second, 0]
            is_near = _num_bits(differing) <= coarse_distance
            for other in others:
                is_near &= (differing & other) != 0
            first, second = first[is_near], second[is_near]
            bits = _num_bits(hashes[first] ^ hashes[second]).sum(axis=1, dtype=np.int64)
            parts.append(np.stack([first, second, bits], axis=1)[bits <= distance])
            num_pairs += len(parts[-1])
    return np.concatenate(parts), is_complete


def _num_bits(words: Hashes) -> npt.NDArray[np.uint8]:
    """Return the number of bits that are set in each uint64."""
    if hasattr(np, "bitwise_count"):
        found: npt.NDArray[np.uint8] = np.bitwise_count(words)
        return found
    # NumPy 1
    bits = np.unpackbits(words[..., np.newaxis].view(np.uint8), axis=-1)
    counts: npt.NDArray[np.uint8] = bits.sum(axis=-1, dtype=np.uint8)
    return counts


def _of_equal(keys: Hashes) -> Iterator[tuple[Integers, Integers]]:
    """Yield all pairs of indices with equal keys, in parts of at most ``len(keys)`` pairs."""
    order = np.argsort(keys)
    ordered, starts = keys[order], np.arange(len(keys))
    for shift in range(1, len(keys)):
        starts = starts[starts < len(keys) - shift]
        starts = starts[ordered[starts] == ordered[starts + shift]]
        if not len(starts):
            return
        yield order[starts], order[starts + shift]
