"""Find names in different splits that look like copies, or parts, of one image.

Two rules, chosen to be silent about files that are only numbered:

- copies: ``NAME (1).jpg``, ``NAME - Copy.jpg`` or ``NAME copy.jpg``, if ``NAME.jpg`` is in another split
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

# With more examples, only blocks of neighbors in the order of keys are examined.
_MAX_LOOKED, _BLOCK = 100_000, 1_000
_COPY = re.compile(rb"(?: ?\(\d+\)| - [Cc]opy(?: \(\d+\))?|[ _][Cc]opy ?\d*)((?:\.[^./]*)?)\Z")
_WORDS = ("frame", "frm", "slice", "tile", "patch", "crop", "aug", "clip")
_PART_WORDS = tuple(word.encode() for word in (*_WORDS, ".rf."))
_NUMBERED = rf"(?:{'|'.join(_WORDS)})s?[ ._-]*\d+"
_AUGMENTED = r"\.rf\.[0-9a-f]{16,}"
# Names are searched with the slash before them.
_PART = re.compile(rf"(?:[ ._/-]{_NUMBERED}|{_AUGMENTED})(?:\.[^./]*)?\Z".encode())
# Groups that these keys make: what the names have in common; other keys are groups of their own.
_GROUPS = {
    "copies": r"(?i)^(.*?)(?: ?\(\d+\)| - copy(?: \(\d+\))?|[ _]copy ?\d*)?(?:\.[^./]*)?$",
    "parts": rf"(?i)^(.*?)(?:(?:(?:^|[ ._/-]){_NUMBERED}|{_AUGMENTED}))?(?:\.[^./]*)?$",
}

# What some of the keys have in common with others, by index of the key, in ascending order.
_Groups: TypeAlias = Mapping[int, bytes]


def leak_warnings(
    listing: Listing, splits: Mapping[str, IntArray], *, by_ratio: bool, limit: int = _MAX_LOOKED
) -> Iterator[str]:
    """Yield a warning for each rule by which examples in different splits belong together.

    ``by_ratio``: whether the splits were made by ratio, so that groups can be kept together. With more
    examples than ``limit``, only some are looked at.
    """
    if len(splits) < 2 or isinstance(listing.keys, RowKeys):
        return
    names, numbers = [*splits], _looked_at(listing.num_examples, limit)
    split_of = np.empty(listing.num_examples, np.int64)
    for index, examples in enumerate(splits.values()):
        split_of[examples] = index
    keys = [listing.keys[number] for number in numbers.tolist()]
    owners = split_of[numbers].tolist()
    # splits of the source are folders
    bare = keys if by_ratio else [key.partition(b"/")[2] or key for key in keys]
    of = "" if len(numbers) == listing.num_examples else f" of {len(numbers):,} looked at"
    rules = (
        ("copies", "look like copies of an image in another split", _copies(bare)),
        ("parts", "are named as parts of one whose other parts are in another split", _parts(bare, by_ratio)),
    )
    for rule, text, groups in rules:
        first_of: dict[bytes, dict[int, int]] = {}
        for index, group in groups.items():
            first_of.setdefault(group, {}).setdefault(owners[index], index)
        found = [group for group in groups.values() if len(first_of[group]) > 1]
        if not found:
            continue
        pair = sorted(first_of[found[0]].values())[:2]
        where = " and ".join(f"{os.fsdecode(keys[each])!r} in {names[owners[each]]!r}" for each in pair)
        remedy = f"group_by={_GROUPS[rule]!r} keeps them together" if by_ratio else "move them into one split"
        yield f"{len(found):,} examples{of} {text}, such as {where}; {remedy}"


def _looked_at(count: int, limit: int) -> IntArray:
    if count <= limit:
        return np.arange(count)
    starts = np.linspace(0, count - _BLOCK, max(1, limit // _BLOCK)).astype(np.int64)
    return np.unique((starts[:, None] + np.arange(_BLOCK)).ravel())


def _copies(keys: Sequence[bytes]) -> _Groups:
    """Return the original of each key that is a copy, and each key that is the original of one."""
    copies = {}
    for index, key in enumerate(keys):
        # a search takes several times as long
        match = _COPY.search(key) if b")" in key or b"opy" in key else None
        if match:
            copies[index] = key[: match.start()] + match[1]
    originals = set(copies.values()).intersection(keys)
    if not originals:
        return {}
    found = {index: key for index, key in enumerate(keys) if key in originals}
    # a copy may be the original of another one
    found |= {index: original for index, original in copies.items() if original in originals}
    return dict(sorted(found.items()))


def _parts(keys: Sequence[bytes], by_ratio: bool) -> _Groups:
    """Return what a key has in common with other parts, if it is one.

    In splits of the source, parts without their own name may belong to different videos.
    """
    groups: dict[int, bytes] = {}
    lowered = [b"/" + key.lower() for key in keys]
    # few datasets have such names, and a search of each key takes several times as long
    joined = b"\0".join(lowered)
    if not any(word in joined for word in _PART_WORDS):
        return groups
    for index, key in enumerate(lowered):
        if match := _PART.search(key, key.rfind(b"/")):
            before = keys[index][: max(0, match.start() - 1)]
            if by_ratio or (before and not match[0].startswith(b"/")):
                groups[index] = before
    return groups
