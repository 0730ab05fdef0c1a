"""What the folders say of the images in them: the split and the class of each."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tfshards.prep.classes import class_map, twins
from tfshards.prep.formats import METADATA_NAMES
from tfshards.prep.plan import IntArray
from tfshards.prep.sources.listing import Listing, to_bytes, to_text
from tfshards.prep.sources.tree import ImageFile, folders_in
from tfshards.prep.splits import usual_place
from tfshards.schemas import Feature, InputError, Schema

SPLIT_FOLDERS = frozenset(
    (b"train", b"training", b"validation", b"valid", b"val", b"dev", b"test", b"testing")
)

_LABEL = Feature("label", "label", "int64")
_KEY = Feature("key", "bytes", "bytes")


def arrange(
    root: bytes,
    found: Sequence[ImageFile],
    skipped: Counter[str],
    shape: tuple[int | None, int | None, int | None],
    *,
    class_names: Sequence[str] | None,
    follow_links: bool,
) -> Listing:
    """Return the listing of the files, with splits and classes read off their paths.

    Args:
        root: the folder.
        found: the image files in it, sorted.
        skipped: counts by reason of what is none; files beside the folders they should be in are added.
        shape: height, width and channels of the decoded images.
        class_names: the label map that the folders must keep to, or None.
        follow_links: whether links to folders are folders.

    Raises:
        InputError: the folders contradict each other or the label map, or no image lies inside them.
    """
    folders = folders_in(root, follow_links=follow_links)
    has_splits = bool(folders) and all(name in SPLIT_FOLDERS for name in folders)
    if has_splits:
        below = {name: folders_in(root, name, follow_links=follow_links) for name in folders}
    else:
        below = {b"": folders}
    _check_every_split_has_classes(root, below)
    names = class_map(
        (to_text(name) for inside in below.values() for name in inside), class_names, "there is no folder"
    )
    depth = 1 if has_splits else 0
    # a file that stands beside the folders it should be in belongs to no class or split
    least = depth + (1 if names else 0)
    inside = [file for file in found if file.key.count(b"/") >= least]
    if len(inside) < len(found):
        skipped["beside the folders"] += len(found) - len(inside)
    if not inside:
        raise InputError(
            f"{os.fsdecode(root)} holds no images inside its folders, only {len(found)} beside them"
        )
    number = {to_bytes(name): index for index, name in enumerate(names)}
    labels = _numbers(number[file.key.split(b"/", depth + 1)[depth]] for file in inside) if names else None
    keys = [file.key for file in inside]
    image = Feature("image", "image", "uint8", shape)
    return Listing(
        schema=Schema((image, _LABEL, _KEY) if names else (image, _KEY), names),
        keys=keys,
        sizes=_numbers(file.size for file in inside),
        stamps=_numbers(file.stamp for file in inside),
        labels=labels,
        splits=_split_folders(keys) if has_splits else None,
        skipped=dict(sorted(skipped.items())),
        warnings=(
            *_tables_beside(root),
            *_warnings(names, labels, folders, keys if has_splits else None),
        ),
    )


def _tables_beside(root: bytes) -> Iterator[str]:
    """Yield a line for each table of what the images are about, which is not read here."""
    for name in METADATA_NAMES:
        if os.path.isfile(os.path.join(root, os.fsencode(name))):
            yield f"{name} is not read; 'tfshards build table' stores its columns beside the images"


def _check_every_split_has_classes(root: bytes, below: Mapping[bytes, list[bytes]]) -> None:
    bare = [name for name, names in below.items() if not names]
    if bare and len(bare) < len(below):
        named = f"{os.fsdecode(root)}: the split folder {os.fsdecode(bare[0])!r}"
        raise InputError(f"{named} has no class folders, others have; give it the same ones")


def _split_folders(keys: Sequence[bytes]) -> dict[str, IntArray]:
    members: dict[bytes, list[int]] = {}
    for number, key in enumerate(keys):
        members.setdefault(key.split(b"/", 1)[0], []).append(number)
    in_order = sorted(members, key=lambda top: usual_place(top.decode()))
    return {top.decode(): _numbers(members[top]) for top in in_order}


def _warnings(
    names: Sequence[str], labels: IntArray | None, folders: Sequence[bytes], keys: Sequence[bytes] | None
) -> Iterator[str]:
    """Yield what a person may have meant otherwise; ``keys`` is None if the folders are no splits."""
    if keys is not None:
        tops = {key.split(b"/", 1)[0] for key in keys}
        for name in folders:
            if name not in tops:
                yield f"the split folder {os.fsdecode(name)!r} holds no images; there is no such split"
    else:
        other = next((os.fsdecode(name) for name in folders if name not in SPLIT_FOLDERS), "")
        for name in folders:
            if name in SPLIT_FOLDERS:
                yield f"{os.fsdecode(name)!r} is taken as a class, since {other!r} is no split's name"
    yield from twins(names)
    present = set() if labels is None else set(labels.tolist())
    for index, class_name in enumerate(names):
        if index not in present:
            yield f"the class folder {class_name!r} holds no images; it keeps its number"


def _numbers(values: Iterator[int] | list[int]) -> IntArray:
    return np.fromiter(values, dtype=np.int64)
