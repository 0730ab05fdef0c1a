"""Find names in different splits that look like copies, or parts, of one image: from keys and sizes alone.

Three rules, chosen to be silent about files that are only numbered:

- copies: ``NAME (1).jpg``, ``NAME - Copy.jpg`` or ``NAME copy.jpg``, if ``NAME.jpg`` is in another split
- the same file name and size in two folders, more often than images with other names have the same size
- parts: ``NAME_frame_0001.jpg``, with one of a few words before the number, or ``NAME.rf.HASH.jpg``
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tfshards.prep.sources.base import Listing
from tfshards.prep.sources.keys import RowKeys
from tfshards.schemas.index import IntArray

# Of more examples, blocks of neighbors in the order of keys are looked at.
_MAX_LOOKED, _BLOCK = 100_000, 1_000
_COPY = re.compile(rb"(.*?)(?: ?\(\d+\)| - [Cc]opy(?: \(\d+\))?|[ _][Cc]opy ?\d*)(\.[^./]*)?")
_PART = rb"(?:(?:^|[ ._/-])(?:frame|frm|slice|tile|patch|crop|aug|clip)s?[ ._-]*\d+|\.rf\.[0-9a-f]{16,})"
_PARTS = re.compile(rb"(.*?)" + _PART + rb"(?:\.[^./]*)?", re.IGNORECASE)
# Equal sizes are by chance unless there are more of them than this many, and than this multiple of what
# chance gives.
_FEW, _TIMES = 2, 4
# Groups that these keys make: what the names have in common; other keys are groups of their own.
_GROUPS = {
    "copies": r"(?i)^(.*?)(?: ?\(\d+\)| - copy(?: \(\d+\))?|[ _]copy ?\d*)?(?:\.[^./]*)?$",
    "names": r"([^/]+)$",
    "parts": "(?i)^(.*?)(?:" + _PART.decode() + r")?(?:\.[^./]*)?$",
}

_Key: TypeAlias = "tuple[bytes, ...]"


def leak_warnings(
    listing: Listing, splits: Mapping[str, IntArray], *, by_ratio: bool, limit: int = _MAX_LOOKED
) -> Iterator[str]:
    """Yield a warning for each rule by which examples in different splits belong together.

    Args:
        listing: the examples.
        splits: example numbers of each split.
        by_ratio: whether the splits were made by ratio, so that groups can be kept together.
        limit: number of examples to look at.
    """
    if len(splits) < 2 or isinstance(listing.keys, RowKeys):
        return
    names, numbers = [*splits], _looked_at(listing.num_examples, limit)
    split_of = np.full(listing.num_examples, -1, np.int8 if len(splits) < 128 else np.int64)
    for index, examples in enumerate(splits.values()):
        split_of[examples] = index
    keys = [listing.keys[number] for number in numbers.tolist()]
    owners = split_of[numbers].tolist()
    # splits of the source are folders
    bare = keys if by_ratio else [key.partition(b"/")[2] or key for key in keys]
    rules = (
        ("copies", "look like copies of an image in another split", _copies(bare)),
        ("names", "have the name and size of one in another split", _names(keys, listing.sizes[numbers])),
        ("parts", "are named as parts of one whose other parts are in another split", _parts(bare, by_ratio)),
    )
    for rule, text, groups in rules:
        found = _across(groups, owners)
        count = sum(len(members) for members in found)
        if rule == "names" and count <= _FEW + _TIMES * _by_chance(groups, owners, listing.sizes[numbers]):
            continue
        if count:
            some = found[0]
            first, second = some[0], next(each for each in some if owners[each] != owners[some[0]])
            where = " and ".join(
                f"{os.fsdecode(keys[each])!r} in {names[owners[each]]!r}" for each in (first, second)
            )
            remedy = (
                f"group_by={_GROUPS[rule]!r} keeps them together" if by_ratio else "move them into one split"
            )
            of = "" if len(numbers) == listing.num_examples else f" of {len(numbers):,} looked at"
            yield f"{count:,} examples{of} {text}, such as {where}; {remedy}"


def _looked_at(count: int, limit: int) -> IntArray:
    if count <= limit:
        return np.arange(count)
    starts = np.linspace(0, count - _BLOCK, max(1, limit // _BLOCK)).astype(np.int64)
    return np.unique((starts[:, None] + np.arange(_BLOCK)).ravel())


def _copies(keys: Sequence[bytes]) -> list[_Key | None]:
    """Return the original of each key that is a copy, and each key that is the original of one."""
    originals = [match and match[1] + (match[2] or b"") for match in map(_COPY.fullmatch, keys)]
    wanted = {original for original in originals if original} & set(keys)
    return [
        (original,) if original in wanted else ((key,) if key in wanted else None)
        for original, key in zip(originals, keys, strict=True)
    ]


def _names(keys: Sequence[bytes], sizes: IntArray) -> list[_Key | None]:
    return [
        (os.path.basename(key), b"%d" % size) if size else None
        for key, size in zip(keys, sizes.tolist(), strict=True)
    ]


def _parts(keys: Sequence[bytes], by_ratio: bool) -> list[_Key | None]:
    """Return what a key has in common with other parts, if it is one.

    In splits of the source, parts without a name of their own may be those of different videos.
    """
    matches = map(_PARTS.fullmatch, keys)
    return [
        (match[1],) if match and (by_ratio or (match[1] and key[match.end(1)] != ord("/"))) else None
        for key, match in zip(keys, matches, strict=True)
    ]


def _across(groups: Sequence[_Key | None], owners: Sequence[int]) -> list[list[int]]:
    """Return the members of each group that is in two splits at least."""
    members: dict[_Key, list[int]] = {}
    for index, group in enumerate(groups):
        if group is not None:
            members.setdefault(group, []).append(index)
    return [some for some in members.values() if len({owners[each] for each in some} - {-1}) > 1]


def _by_chance(groups: Sequence[_Key | None], owners: Sequence[int], sizes: IntArray) -> float:
    """Return the number of examples with a name of another split that have the same size by chance."""
    _, counts = np.unique(sizes, return_counts=True)
    share = float(((counts / len(sizes)) ** 2).sum())
    shared = _across([group and group[:1] for group in groups], owners)
    return share * sum(len(members) for members in shared)
