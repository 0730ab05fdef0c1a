"""Derive the split and the class of each image from the folder structure."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

import numpy as np

from tfshards.prep.sources.base import Listing
from tfshards.prep.sources.classes import class_map, twins
from tfshards.prep.sources.images.likely_mistakes import splits_further_down, unread_files
from tfshards.prep.sources.images.split_folders import find_split_folders
from tfshards.prep.sources.keys import KEY_FEATURE, to_bytes, to_text
from tfshards.prep.sources.tree import ImageFile
from tfshards.schemas import Feature, InputError, Schema
from tfshards.schemas.index import IntArray

_LABEL = Feature("label", "label", "int64")
_NO_FOLDER = "there is no folder of that name; create empty folders for classes without images"


def arrange(
    root: bytes,
    found: Sequence[ImageFile],
    skipped: Counter[str],
    *,
    images: Sequence[Feature],
    class_names: Sequence[str] | None,
    allow_missing_classes: bool,
    folders_of: Callable[[bytes], list[bytes]],
    split_folders: Mapping[str, str] | None = None,
    excluded: Set[bytes] = frozenset(),
) -> Listing:
    """Return the listing of the files, with splits and classes derived from their paths.

    Args:
        root: the folder.
        found: image files in the folder, sorted.
        skipped: number of skipped entries by reason; files outside the class or split folders are added.
        images: the features of the images, and of their masks if they have any.
        class_names: class names that the folders must have, in label order, or None.
        allow_missing_classes: whether some of these, and of ``split_folders``, may have no folder.
        folders_of: returns the folders in a folder of the root, or in the root, which is empty.
        split_folders: the folder of each split; empty if there are none; None to go by the names of folders.
        excluded: keys of image files that were excluded. A folder that holds only these is left out.

    Raises:
        InputError: the folders contradict each other or the class names, or contain no images.
    """
    holding = _folders_of(file.key for file in found)
    emptied = _folders_of(excluded) - holding
    folders = [name for name in folders_of(b"") if name not in emptied]
    with_images = {_top(file.key) for file in found if b"/" in file.key}
    tops = find_split_folders(root, folders, with_images, split_folders, may_lack=allow_missing_classes)
    split_of = tops.split_of
    below = {name: folders_of(name) for name in split_of} or {b"": folders}
    below = {
        top: [name for name in names if os.path.join(top, name) not in emptied]
        for top, names in below.items()
    }
    # annotations, empty folders: in no split are there images in them, and no given name is theirs
    classes = {
        name for top, inside in below.items() for name in inside if os.path.join(top, name) in holding
    } | {to_bytes(name) for name in class_names or ()}
    bare_folders = sorted({name for inside in below.values() for name in inside} - classes)
    below = {top: [name for name in names if name in classes] for top, names in below.items()}
    folder_names = {to_text(name) for inside in below.values() for name in inside}
    if allow_missing_classes:
        # without class folders there are no labels, except that a split may have lacked them before
        has_classes = folder_names or split_of
        names = class_map(folder_names.union(class_names or ()), class_names, "") if has_classes else ()
    else:
        if class_names is not None and not folder_names:
            raise InputError(f"{os.fsdecode(root)} has no class folders; leave out class_names=")
        names = class_map(folder_names, class_names, _NO_FOLDER)
    depth = 1 if split_of else 0
    # a file outside the class or split folders has no class or split; in a split without class folders, files
    # have no class
    inside = [
        file
        for file in found
        if (top := _top(file.key) if split_of else b"") in below
        and file.key.count(b"/") >= depth + bool(below[top])
    ]
    if len(inside) < len(found):
        skipped["beside the folders"] += len(found) - len(inside)
    if not inside:
        raise InputError(
            f"{os.fsdecode(root)} holds no images inside its folders, only {len(found)} outside them; move "
            "them into the folders"
        )
    number = {to_bytes(name): index for index, name in enumerate(names)}
    keys = [file.key for file in inside]
    bare = {top for top, inside in below.items() if names and not inside}
    labels = (
        _numbers(-1 if _top(key) in bare else number[key.split(b"/", depth + 1)[depth]] for key in keys)
        if names
        else None
    )
    return Listing(
        schema=Schema((*images, _LABEL, KEY_FEATURE) if names else (*images, KEY_FEATURE), names),
        keys=keys,
        sizes=_numbers(file.size for file in inside),
        stamps=_numbers(file.stamp for file in inside),
        labels=labels,
        splits=_splits(keys, split_of) if split_of else None,
        skipped=dict(sorted(skipped.items())),
        warnings=(
            *unread_files(root, folders),
            *tops.warnings,
            *_skipped_folders(bare_folders),
            *(() if split_of else splits_further_down(root, below[b""], keys)),
            *_split_warnings(keys, split_of, bare),
            *_class_warnings(names, folder_names, labels),
        ),
    )


def _skipped_folders(names: Sequence[bytes]) -> Iterator[str]:
    """Yield a warning for each folder without images that would be a class if it had some."""
    for name in names:
        yield f"the folder {to_text(name)!r} holds no images and is no class; class_names= can name it as one"


def _top(key: bytes) -> bytes:
    """Return the top-level folder of a key, or the name of a file that is in none."""
    return key.split(b"/", 1)[0]


def _folders_of(keys: Iterable[bytes]) -> set[bytes]:
    """Return the folders of the first two levels in which the files with these keys are."""
    parts = [key.split(b"/", 2) for key in keys]
    return {each[0] for each in parts if len(each) > 1} | {
        b"/".join(each[:2]) for each in parts if len(each) > 2
    }


def _splits(keys: Sequence[bytes], split_of: Mapping[bytes, str]) -> dict[str, IntArray]:
    members: dict[bytes, list[int]] = {top: [] for top in split_of}
    for number, key in enumerate(keys):
        members[_top(key)].append(number)
    return {split_of[top]: _numbers(numbers) for top, numbers in members.items() if numbers}


def _split_warnings(keys: Sequence[bytes], split_of: Mapping[bytes, str], bare: Set[bytes]) -> Iterator[str]:
    """Yield a warning for each split folder without images, or without the class folders of others."""
    counts = Counter(map(_top, keys))
    for top, split in sorted(split_of.items()):
        if not counts[top]:
            yield f"the split folder {os.fsdecode(top)!r} holds no images; the dataset lacks this split"
        elif top in bare:
            yield (
                f"the split folder {os.fsdecode(top)!r} has no class folders, unlike others; the label of "
                f"all examples of {split!r} ({counts[top]:,}) is -1, for no class"
            )


def _class_warnings(names: Sequence[str], folder_names: Set[str], labels: IntArray | None) -> Iterator[str]:
    """Yield warnings about likely mistakes in the names of classes, and about classes without images."""
    yield from twins(names)
    present = set() if labels is None else set(labels.tolist())
    for index, class_name in enumerate(names):
        if index not in present and class_name in folder_names:
            yield f"the class folder {class_name!r} holds no images; it keeps its number"


def _numbers(values: Iterator[int] | list[int]) -> IntArray:
    return np.fromiter(values, dtype=np.int64)
