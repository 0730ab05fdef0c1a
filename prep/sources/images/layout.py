"""Derive the split and the class of each image from the folder structure."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tfshards.prep.sources.base import Listing
from tfshards.prep.sources.classes import class_map, twins
from tfshards.prep.sources.images.split_folders import (
    find_split_folders,
    splits_further_down,
    splits_of_coco,
    unread_files,
)
from tfshards.prep.sources.keys import KEY_FEATURE, to_bytes, to_text
from tfshards.prep.sources.tree import ImageFile, Tree
from tfshards.schemas import Feature, InputError, Schema
from tfshards.schemas.index import IntArray


@dataclass(frozen=True, eq=False)
class FileTable:
    """Image files in a folder; see ``ImageFile`` for the columns.

    Attributes:
        keys: key of each file.
        sizes: shape ``(num_files,)`` int64.
        stamps: shape ``(num_files,)`` int64.
    """

    keys: Sequence[bytes]
    sizes: IntArray
    stamps: IntArray

    @classmethod
    def of(cls, files: Iterable[ImageFile]) -> FileTable:
        """Return the files in the given order."""
        keys: list[bytes] = []
        sizes, stamps = array("q"), array("q")
        for key, size, stamp in files:
            keys.append(key)
            sizes.append(size)
            stamps.append(stamp)
        return cls(keys, np.frombuffer(sizes, np.int64), np.frombuffer(stamps, np.int64))

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[ImageFile]:
        columns = (self.keys, self.sizes.tolist(), self.stamps.tolist())
        return map(ImageFile._make, zip(*columns, strict=True))

    def by_key(self) -> FileTable:
        """Return the files sorted by key."""
        return self.take(np.array(sorted(range(len(self)), key=self.keys.__getitem__), np.int64))

    def take(self, numbers: IntArray) -> FileTable:
        """Return the files with these numbers, in this order."""
        keys = [self.keys[number] for number in numbers.tolist()]
        return FileTable(keys, self.sizes[numbers], self.stamps[numbers])


_LABEL = Feature("label", "label", "int64")
_NO_FOLDER = "there is no folder of that name; create empty folders for classes without images"


class FoundImages(NamedTuple):
    """The image files of a folder.

    Attributes:
        files: the files, sorted.
        excluded: keys of image files that were excluded. A folder that holds only these is left out.
        folders_of: returns the folders in a folder of the root, or in the root, which is empty.
    """

    files: FileTable
    excluded: Set[bytes]
    folders_of: Callable[[bytes], list[bytes]]


class FolderRules(NamedTuple):
    """What the user says about folders.

    Attributes:
        class_names: class names that the folders must have, in label order, or None.
        allow_missing_classes: whether some of these, and of ``split_folders``, may have no folder.
        split_folders: the folder of each split; empty if there are none; None to go by the names of folders.
    """

    class_names: Sequence[str] | None = None
    allow_missing_classes: bool = False
    split_folders: Mapping[str, str] | None = None


def arrange(
    tree: Tree, found: FoundImages, rules: FolderRules, images: Sequence[Feature], skipped: Counter[str]
) -> Listing:
    """Return the listing of the files, with splits and classes derived from their paths.

    Args:
        tree: the folder.
        found: image files in the folder.
        rules: what the user says about folders.
        images: the features of the images, and of their masks if they have any.
        skipped: number of skipped entries by reason; files outside the class or split folders are added.

    Raises:
        InputError: the folders contradict each other or the class names, or contain no images.
    """
    files, held = found.files, _Folders.of(found.files.keys)
    roles = _roles(tree, found, held, rules)
    names, is_inside = roles.class_names, [roles.is_inside(name) for name in held.names]
    numbers = np.flatnonzero(np.array(is_inside, np.bool_)[held.of_file])
    if not len(numbers):
        raise InputError("images-outside-folders", root=os.fsdecode(tree.root), num_found=len(files))
    if len(numbers) < len(files):
        skipped["beside the folders"] += len(files) - len(numbers)
        files, held = files.take(numbers), _Folders(held.names, held.of_file[numbers])
    labels = None
    if names:
        label_of = [
            roles.label(name) if inside else -1 for name, inside in zip(held.names, is_inside, strict=True)
        ]
        labels = np.array(label_of, np.int64)[held.of_file]
    members = {top: held.below(top) for top in roles.split_of}
    return Listing(
        schema=Schema((*images, _LABEL, KEY_FEATURE) if names else (*images, KEY_FEATURE), names),
        keys=files.keys,
        sizes=files.sizes,
        stamps=files.stamps,
        labels=labels,
        splits={roles.split_of[top]: inside for top, inside in members.items() if len(inside)} or None,
        skipped=dict(sorted(skipped.items())),
        warnings=(
            *roles.warnings,
            *(() if roles.split_of else splits_further_down(tree.root, roles.below[b""], files.keys)),
            *(() if roles.split_of else splits_of_coco(tree.root, roles.below[b""])),
            *_split_warnings(members, roles.split_of, roles.bare),
            *_class_warnings(names, roles.folder_names, labels),
        ),
    )


@dataclass(frozen=True, eq=False)
class _Roles:
    """Which folders are splits, and which are classes.

    Attributes:
        split_of: name of the split of each top-level folder; empty if there are no split folders.
        below: class folders in each split folder, or in the root.
        class_names: class names in label order; empty without classes.
        warnings: warnings about these folders.
    """

    split_of: Mapping[bytes, str]
    below: Mapping[bytes, Sequence[bytes]]
    class_names: tuple[str, ...]
    warnings: tuple[str, ...]

    @cached_property
    def folder_names(self) -> set[str]:
        """The names of all class folders."""
        return {to_text(name) for inside in self.below.values() for name in inside}

    @cached_property
    def bare(self) -> set[bytes]:
        """The split folders without class folders, if others have some."""
        return {top for top, inside in self.below.items() if self.class_names and not inside}

    @cached_property
    def _numbers(self) -> Mapping[bytes, int]:
        return {to_bytes(name): index for index, name in enumerate(self.class_names)}

    def is_inside(self, folder: bytes) -> bool:
        """Return whether the files in a folder have a split and a class, as far as there are any.

        In a split without class folders, files have no class.
        """
        top = _top(folder) if self.split_of else b""
        return top in self.below and _depth(folder) >= bool(self.split_of) + bool(self.below[top])

    def label(self, folder: bytes) -> int:
        """Return the number of the class of a folder that is inside; -1 without a class."""
        if _top(folder) in self.bare:
            return -1
        return self._numbers[folder.split(b"/")[1 if self.split_of else 0]]


def _roles(tree: Tree, found: FoundImages, held: _Folders, rules: FolderRules) -> _Roles:
    """Return which folders are splits and classes.

    Raises:
        InputError: the folders contradict each other or the class names.
    """
    class_names = rules.class_names
    holding = _upper(held.names)
    emptied = _upper(_Folders.of(found.excluded).names) - holding
    folders = [name for name in found.folders_of(b"") if name not in emptied]
    with_images = {_top(name) for name in held.names if name}
    may_lack = rules.allow_missing_classes
    tops = find_split_folders(tree.root, folders, with_images, rules.split_folders, may_lack=may_lack)
    below = {name: found.folders_of(name) for name in tops.split_of} or {b"": folders}
    below = {
        top: [name for name in names if os.path.join(top, name) not in emptied]
        for top, names in below.items()
    }
    # annotations, empty folders: in no split are there images in them, and no given name is theirs
    classes = {
        name for top, inside in below.items() for name in inside if os.path.join(top, name) in holding
    } | {to_bytes(name) for name in class_names or ()}
    unused = sorted({name for inside in below.values() for name in inside} - classes)
    below = {top: [name for name in names if name in classes] for top, names in below.items()}
    folder_names = {to_text(name) for inside in below.values() for name in inside}
    names: tuple[str, ...] = ()
    if not may_lack:
        if class_names is not None and not folder_names:
            raise InputError("class-names-useless", root=os.fsdecode(tree.root))
        names = class_map(folder_names, class_names, _NO_FOLDER)
    elif folder_names or tops.split_of:
        # without class folders there are no labels, except that a split may have lacked them before
        names = class_map(folder_names.union(class_names or ()), class_names, "")
    warnings = (*unread_files(tree, folders), *tops.warnings, *_skipped_folders(unused))
    return _Roles(tops.split_of, below, names, warnings)


def _skipped_folders(names: Sequence[bytes]) -> Iterator[str]:
    """Yield a warning for each folder without images that would be a class if it had some."""
    for name in names:
        text = f"the folder {to_text(name)!r} holds no images and is not a class"
        yield f"{text}; class_names= can name it"


@dataclass(frozen=True, eq=False)
class _Folders:
    """The folders in which files are. There are few of them, so that decisions are made for each folder once.

    Attributes:
        names: path of each folder, relative to the root, which is empty.
        of_file: number of the folder of each file, shape ``(num_files,)`` int64.
    """

    names: Sequence[bytes]
    of_file: IntArray

    @classmethod
    def of(cls, keys: Iterable[bytes]) -> _Folders:
        """Return the folders of the files with these keys."""
        number: dict[bytes, int] = {}
        folders = (number.setdefault(key.rpartition(b"/")[0], len(number)) for key in keys)
        of_file = np.fromiter(folders, dtype=np.int64)
        return cls([*number], of_file)

    def below(self, top: bytes) -> IntArray:
        """Return the numbers of the files in a top-level folder, ascending."""
        return np.flatnonzero(np.array([_top(name) == top for name in self.names], np.bool_)[self.of_file])


def _top(folder: bytes) -> bytes:
    """Return the top-level folder of a folder; of the root, which is empty, the root."""
    return folder.split(b"/", 1)[0]


def _depth(folder: bytes) -> int:
    """Return the number of names in the path of a folder."""
    return folder.count(b"/") + 1 if folder else 0


def _upper(folders: Iterable[bytes]) -> set[bytes]:
    """Return the folders of the first two levels that these folders are, or are in."""
    parts = [name.split(b"/", 2) for name in folders if name]
    return {each[0] for each in parts} | {b"/".join(each[:2]) for each in parts if len(each) > 1}


def _split_warnings(
    members: Mapping[bytes, IntArray], split_of: Mapping[bytes, str], bare: Set[bytes]
) -> Iterator[str]:
    """Yield a warning for each split folder without images, or without the class folders of others."""
    for top, split in sorted(split_of.items()):
        if not len(members[top]):
            yield f"the split folder {os.fsdecode(top)!r} holds no images; the dataset lacks this split"
        elif top in bare:
            yield (
                f"the split folder {os.fsdecode(top)!r} has no class folders, unlike others; the label of "
                f"all examples of {split!r} ({len(members[top]):,}) is -1, for no class"
            )


def _class_warnings(names: Sequence[str], folder_names: Set[str], labels: IntArray | None) -> Iterator[str]:
    """Yield warnings about likely mistakes in the names of classes, and about classes without images."""
    yield from twins(names)
    present = set() if labels is None else set(np.unique(labels).tolist())
    for index, class_name in enumerate(names):
        if index not in present and class_name in folder_names:
            yield f"the class folder {class_name!r} holds no images; it keeps its number"
