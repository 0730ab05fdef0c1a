"""Find names in different splits that look like copies, or parts, of one image: from keys and sizes alone.

Three rules, chosen to be silent about files that are only numbered:

- copies: ``NAME (1).jpg``, ``NAME - Copy.jpg`` or ``NAME copy.jpg``, if ``NAME.jpg`` is in another split
- the same file name and size in two folders, more often than images with other names have the same size
- parts: ``NAME_frame_0001.jpg``, with one of a few words before the number, or ``NAME.rf.HASH.jpg``
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tfshards.prep.sources.base import Listing
from tfshards.prep.sources.keys import RowKeys
from tfshards.schemas.index import IntArray

# Of more examples, blocks of neighbors in the order of keys are looked at.
_MAX_LOOKED, _BLOCK = 100_000, 1_000
# All names are searched at once, joined by a byte that none of them has, if they have one of some words.
_END = b"\0"
_COPY_WORDS = (b"opy", b")")
_COPY = re.compile(
    rb"(?: \(\d+\)|\(\d+\)| - [Cc]opy(?: \(\d+\))?|[ _][Cc]opy ?\d*)((?:\.[^./\0]*)?)(?=\0)",
)
_WORDS = ("frame", "frm", "slice", "tile", "patch", "crop", "aug", "clip")
_PART_WORDS = tuple(word.encode() for word in (*_WORDS, ".rf."))
_NUMBERED = rf"(?:{'|'.join(_WORDS)})s?[ ._-]*\d+"
_AUGMENTED = r"\.rf\.[0-9a-f]{16,}"
_PART = re.compile(rf"(?:[\0 ._/-]{_NUMBERED}|{_AUGMENTED})(?:\.[^./\0]*)?(?=\0)".encode())
# Equal sizes are by chance unless there are more of them than this many, and than this multiple of what
# chance gives.
_FEW, _TIMES = 2, 4
# Groups that these keys make: what the names have in common; other keys are groups of their own.
_GROUPS = {
    "copies": r"(?i)^(.*?)(?: ?\(\d+\)| - copy(?: \(\d+\))?|[ _]copy ?\d*)?(?:\.[^./]*)?$",
    "names": r"([^/]+)$",
    "parts": rf"(?i)^(.*?)(?:(?:(?:^|[ ._/-]){_NUMBERED}|{_AUGMENTED}))?(?:\.[^./]*)?$",
}

# What some of the keys have in common with others, by index of the key, in ascending order.
_Groups: TypeAlias = Mapping[int, Hashable]


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
    split_of = np.empty(listing.num_examples, np.int64)
    for index, examples in enumerate(splits.values()):
        split_of[examples] = index
    keys = [listing.keys[number] for number in numbers.tolist()]
    owners, sizes = split_of[numbers], listing.sizes[numbers]
    # splits of the source are folders
    bare = keys if by_ratio else [key.partition(b"/")[2] or key for key in keys]
    files = [key.rpartition(b"/")[2] for key in keys]
    rules = (
        ("copies", "look like copies of an image in another split", _copies(bare, files)),
        ("names", "have the name and size of one in another split", _names(files, owners, sizes)),
        (
            "parts",
            "are named as parts of one whose other parts are in another split",
            _parts(bare, files, by_ratio),
        ),
    )
    for rule, text, groups in rules:
        count, some = _across(groups, owners)
        if count:
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


def _copies(keys: Sequence[bytes], names: Sequence[bytes]) -> _Groups:
    """Return the original of each key that is a copy, and each key that is the original of one."""
    copies = {index: before + match[1] for index, before, match in _matches(_COPY, _COPY_WORDS, keys, names)}
    originals = set(copies.values()).intersection(keys) if copies else set()
    if not originals:
        return {}
    found = {index: key for index, key in enumerate(keys) if key in originals}
    # a copy may be the original of another one
    found |= {index: original for index, original in copies.items() if original in originals}
    return dict(sorted(found.items()))


def _names(names: Sequence[bytes], owners: IntArray, sizes: IntArray) -> _Groups:
    """Return name and size of files, unless as many agree as by chance."""
    counts = Counter(names)
    if len(counts) == len(names):
        return {}
    known = (sizes > 0).tolist()
    shared = {index: name for index, name in enumerate(names) if counts[name] > 1 and known[index]}
    found = dict(zip(shared, zip(shared.values(), sizes[[*shared]].tolist(), strict=True), strict=True))
    _, equal = np.unique(sizes, return_counts=True)
    by_chance = float(((equal / len(sizes)) ** 2).sum()) * _across(shared, owners)[0]
    return found if _across(found, owners)[0] > _FEW + _TIMES * by_chance else {}


def _parts(keys: Sequence[bytes], names: Sequence[bytes], by_ratio: bool) -> _Groups:
    """Return what a key has in common with other parts, if it is one.

    In splits of the source, parts without a name of their own may be those of different videos.
    """
    lowered = [name.lower() for name in names]
    return {
        index: before
        for index, before, match in _matches(_PART, _PART_WORDS, keys, lowered)
        if by_ratio or (before and not match[0].startswith(_END))
    }


def _matches(
    pattern: re.Pattern[bytes], words: Sequence[bytes], keys: Sequence[bytes], names: Sequence[bytes]
) -> Iterator[tuple[int, bytes, re.Match[bytes]]]:
    """Yield the index of each key whose name matches, what the key has before the match, and the match.

    Args:
        pattern: a pattern that each name matches once at most.
        words: one of them is in each match.
        keys: paths.
        names: their last parts.
    """
    joined = b"".join((_END, _END.join(names), _END))
    if not any(word in joined for word in words):
        return
    matches = [*pattern.finditer(joined)]
    starts = np.cumsum([1, *(len(name) + 1 for name in names)])
    found = np.array([match.start() for match in matches], np.int64)
    # a match may begin with the byte before its name
    indices = np.searchsorted(starts, found + 1, side="right") - 1
    for index, start, match in zip(
        indices.tolist(), (found - starts[indices]).tolist(), matches, strict=True
    ):
        key = keys[index]
        yield index, key[: max(0, len(key) - len(names[index]) + start)], match


def _across(groups: _Groups, owners: IntArray) -> tuple[int, list[int]]:
    """Return the number of keys of groups in several splits, and the members of the first such group.

    Args:
        groups: of keys.
        owners: shape ``(num_keys,)``, the number of the split of each key.
    """
    numbers: dict[Hashable, int] = {}
    group_of = np.array([numbers.setdefault(group, len(numbers)) for group in groups.values()], np.int64)
    members = np.array([*groups], np.int64)
    if not len(members):
        return 0, []
    # groups are numbered in the order of their first members
    order = np.argsort(group_of, kind="stable")
    starts = np.flatnonzero(np.diff(group_of[order], prepend=-1))
    owned = owners[members[order]]
    is_across = np.minimum.reduceat(owned, starts) < np.maximum.reduceat(owned, starts)
    if not is_across.any():
        return 0, []
    lengths = np.diff(starts, append=len(members))
    return int(lengths[is_across].sum()), members[group_of == np.flatnonzero(is_across)[0]].tolist()
