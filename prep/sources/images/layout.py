"""Derive the split and the class of each image from the folder structure."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

import numpy as np

from tfshards.prep.imaging.formats import METADATA_NAMES
from tfshards.prep.sources.base import Listing
from tfshards.prep.sources.classes import class_map, twins
from tfshards.prep.sources.keys import KEY_FEATURE, to_bytes, to_text
from tfshards.prep.sources.tree import ImageFile, folders_in
from tfshards.prep.sources.usual_splits import SPLIT_FOLDERS, usual_order
from tfshards.schemas import Feature, InputError, Schema
from tfshards.schemas.index import IntArray

_LABEL = Feature("label", "label", "int64")


def arrange(
    root: bytes,
    found: Sequence[ImageFile],
    skipped: Counter[str],
    shape: tuple[int | None, int | None, int | None],
    *,
    class_names: Sequence[str] | None,
    allow_missing_classes: bool,
    follow_links: bool,
) -> Listing:
    """Return the listing of the files, with splits and classes derived from their paths.

    Args:
        root: the folder.
        found: image files in the folder, sorted.
        skipped: number of skipped entries by reason; files outside the class or split folders are added.
        shape: height, width and channels of the decoded images; None for what varies.
        class_names: class names that the folders must have, in label order, or None.
        allow_missing_classes: whether some of these may have no folder.
        follow_links: whether links to folders are folders.

    Raises:
        InputError: the folders contradict each other or the class names, or contain no images.
    """
    folders = folders_in(root, follow_links=follow_links)
    has_splits = bool(folders) and all(name in SPLIT_FOLDERS for name in folders)
    if has_splits:
        below = {name: folders_in(root, name, follow_links=follow_links) for name in folders}
    else:
        below = {b"": folders}
    _check_every_split_has_classes(root, below)
    folder_names = {to_text(name) for inside in below.values() for name in inside}
    if allow_missing_classes:
        # without class folders there are no labels
        names = class_map(folder_names.union(class_names or ()), class_names, "") if folder_names else ()
    else:
        names = class_map(folder_names, class_names, "there is no folder")
    depth = 1 if has_splits else 0
    # a file outside the class or split folders has no class or split
    least = depth + (1 if names else 0)
    inside = [file for file in found if file.key.count(b"/") >= least]
    if len(inside) < len(found):
        skipped["beside the folders"] += len(found) - len(inside)
    if not inside:
        raise InputError(
            f"{os.fsdecode(root)} holds no images inside its folders, only {len(found)} outside them; move "
            "them into the folders"
        )
    number = {to_bytes(name): index for index, name in enumerate(names)}
    labels = _numbers(number[file.key.split(b"/", depth + 1)[depth]] for file in inside) if names else None
    keys = [file.key for file in inside]
    image = Feature("image", "image", "uint8", shape)
    return Listing(
        schema=Schema((image, _LABEL, KEY_FEATURE) if names else (image, KEY_FEATURE), names),
        keys=keys,
        sizes=_numbers(file.size for file in inside),
        stamps=_numbers(file.stamp for file in inside),
        labels=labels,
        splits=_split_folders(keys) if has_splits else None,
        skipped=dict(sorted(skipped.items())),
        warnings=(
            *_unread_tables(root),
            *_warnings(names, folder_names, labels, folders, keys if has_splits else None),
        ),
    )


def _unread_tables(root: bytes) -> Iterator[str]:
    """Yield a warning for each metadata table in the folder, since tables are not read."""
    for name in METADATA_NAMES:
        if os.path.isfile(os.path.join(root, os.fsencode(name))):
            yield f"{name} is not read; 'tfshards build table' stores its columns with the images"


def _check_every_split_has_classes(root: bytes, below: Mapping[bytes, list[bytes]]) -> None:
    bare = [name for name, names in below.items() if not names]
    if bare and len(bare) < len(below):
        named = f"{os.fsdecode(root)}: the split folder {os.fsdecode(bare[0])!r}"
        raise InputError(f"{named} has no class folders, but others do; give it the same class folders")


def _split_folders(keys: Sequence[bytes]) -> dict[str, IntArray]:
    members: dict[bytes, list[int]] = {}
    for number, key in enumerate(keys):
        members.setdefault(key.split(b"/", 1)[0], []).append(number)
    in_order = sorted(members, key=lambda top: usual_order(top.decode()))
    return {top.decode(): _numbers(members[top]) for top in in_order}


def _warnings(
    names: Sequence[str],
    folder_names: Set[str],
    labels: IntArray | None,
    folders: Sequence[bytes],
    keys: Sequence[bytes] | None,
) -> Iterator[str]:
    """Yield warnings about likely mistakes; ``keys`` is None if the folders are not splits."""
    if keys is not None:
        tops = {key.split(b"/", 1)[0] for key in keys}
        for name in folders:
            if name not in tops:
                yield f"the split folder {os.fsdecode(name)!r} holds no images; the dataset lacks this split"
    else:
        other = next((os.fsdecode(name) for name in folders if name not in SPLIT_FOLDERS), "")
        for name in folders:
            if name in SPLIT_FOLDERS:
                yield f"{os.fsdecode(name)!r} is used as a class, since {other!r} is not the name of a split"
    yield from twins(names)
    present = set() if labels is None else set(labels.tolist())
    for index, class_name in enumerate(names):
        if index not in present and class_name in folder_names:
            yield f"the class folder {class_name!r} holds no images; it keeps its number"


def _numbers(values: Iterator[int] | list[int]) -> IntArray:
    return np.fromiter(values, dtype=np.int64)
