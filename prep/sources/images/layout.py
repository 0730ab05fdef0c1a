"""Derive the split and the class of each image from the folder structure."""

from __future__ import annotations

import operator
import os
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from tfshards.prep.sources.base import Listing
from tfshards.prep.sources.classes import class_map, twins
from tfshards.prep.sources.keys import KEY_FEATURE, to_bytes, to_text
from tfshards.prep.sources.marks import ALWAYS, NO_CLASSES, SPLIT_LACKS_CLASSES, Marks, check_marks, refusal
from tfshards.prep.sources.remote_tree import Tree
from tfshards.prep.sources.splits import usual_order, usual_split
from tfshards.prep.sources.tree import ImageFile
from tfshards.schemas import Feature, InputError, OptionsError, Schema
from tfshards.schemas.errors import listed
from tfshards.schemas.index import IntArray
from tfshards.schemas.names import name_fault


@dataclass(frozen=True, eq=False)
class FileTable:
    """Image files in a folder: keys, and sizes and stamps of shape ``(num_files,)`` int64."""

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
        if all(map(operator.lt, self.keys, islice(self.keys, 1, None))):
            return self
        return self.take(np.array(sorted(range(len(self)), key=self.keys.__getitem__), np.int64))

    def take(self, numbers: IntArray) -> FileTable:
        """Return the files with these numbers, in this order."""
        keys = [self.keys[number] for number in numbers.tolist()]
        return FileTable(keys, self.sizes[numbers], self.stamps[numbers])


_LABEL = Feature("label", "label", "int64")
_NO_FOLDER = "there is no folder of that name; create empty folders for classes without images"


class FolderRules(NamedTuple):
    """What the user says about folders; see the fields of ``ImageFolder`` with these names."""

    class_names: Sequence[str] | None = None
    allow_missing_classes: bool = False
    split_folders: Mapping[str, str] | None = None
    # folders without the names of splits are classes, whatever else they may be
    as_is: bool = False
    # which the user declares with the layout of the images
    has_masks: bool = False


# The label of files that are in no split or class, though there are some.
_OUTSIDE = -2


def arrange(
    tree: Tree,
    files: FileTable,
    folders_of: Callable[[bytes], list[bytes]],
    rules: FolderRules,
    images: Sequence[Feature],
    skipped: Counter[str],
) -> Listing:
    """Return the listing of files, sorted by key, with splits and classes derived from their paths.

    ``folders_of`` returns the folders in a folder of the root, or in the root, which is empty. Files outside
    of the class or split folders are counted in ``skipped``.
    """
    # there are few folders, so that decisions are made for each folder once
    number: dict[bytes, int] = {}
    of_keys = (number.setdefault(key.rpartition(b"/")[0], len(number)) for key in files.keys)
    folder_of = np.fromiter(of_keys, np.int64, len(files))
    roles = _roles(tree, [*number], folders_of, rules)
    names = roles.class_names
    if not (rules.as_is or rules.class_names or rules.split_folders == {}):
        holding = [parts for name in number if (parts := roles.inside(name))]
        marks: Marks = {} if rules.has_masks else tree.marks
        _check_folders(os.fsdecode(tree.root), files.keys, marks, roles.below, holding)
    numbers = {name: index for index, name in enumerate(names)}
    labels = np.array([roles.label(name, numbers) for name in number], np.int64)[folder_of]
    inside = np.flatnonzero(labels != _OUTSIDE)
    if not len(inside):
        raise InputError("images-outside-folders", root=os.fsdecode(tree.root), num_found=len(files))
    if len(inside) < len(files):
        skipped["beside the folders"] += len(files) - len(inside)
        files, labels, folder_of = files.take(inside), labels[inside], folder_of[inside]
    tops = [name.split(b"/", 1)[0] for name in number]
    members = {
        top: np.flatnonzero(np.array([each == top for each in tops])[folder_of]) for top in roles.split_of
    }
    return Listing(
        schema=Schema((*images, _LABEL, KEY_FEATURE) if names else (*images, KEY_FEATURE), names),
        keys=files.keys,
        sizes=files.sizes,
        stamps=files.stamps,
        labels=labels if names else None,
        splits={roles.split_of[top]: found for top, found in members.items() if len(found)} or None,
        skipped=dict(sorted(skipped.items())),
        warnings=(
            *roles.warnings,
            *_split_warnings(members, roles),
            *twins(names),
            *_empty_classes(roles, labels),
        ),
    )


class _Roles(NamedTuple):
    """The split of each top-level folder, the class folders in each, or in the root, and the class names."""

    split_of: Mapping[bytes, str]
    below: Mapping[bytes, Sequence[bytes]]
    class_names: tuple[str, ...]
    warnings: Sequence[str]

    def _divided(self, folder: bytes) -> tuple[bytes | None, list[bytes]]:
        """Return the split folder of a folder, empty if there are no splits, and the folders below it."""
        parts = folder.split(b"/") if folder else []
        return b"" if not self.split_of else parts.pop(0) if parts else None, parts

    def inside(self, folder: bytes) -> list[bytes]:
        """Return the class folder of a folder, and the folders below that; none outside of class folders."""
        top, parts = self._divided(folder)
        return parts if self.below.get(top or b"") else []

    def label(self, folder: bytes, numbers: Mapping[str, int]) -> int:
        """Return the class number of the files in a folder; -1 in a split without class folders."""
        top, parts = self._divided(folder)
        if top is None or top not in self.below:
            return _OUTSIDE
        if not self.below[top]:
            return -1
        return numbers[to_text(parts[0])] if parts else _OUTSIDE


def _roles(
    tree: Tree, holding: Sequence[bytes], folders_of: Callable[[bytes], list[bytes]], rules: FolderRules
) -> _Roles:
    """Return which folders are splits and classes; ``holding`` are those of files."""
    class_names, may_lack = rules.class_names, rules.allow_missing_classes
    with_images = {b"/".join(name.split(b"/")[:depth]) for name in holding for depth in (1, 2)}
    folders = folders_of(b"")
    split_of, warnings = find_split_folders(
        tree.root, folders, with_images, rules.split_folders, may_lack=may_lack
    )
    below = {top: folders_of(top) for top in split_of} or {b"": folders}
    # annotations, empty folders: in no split are there images in them, and no given name is theirs
    classes = {to_bytes(name) for name in class_names or ()} | {
        name for top, names in below.items() for name in names if os.path.join(top, name) in with_images
    }
    unused = sorted({name for names in below.values() for name in names} - classes)
    below = {top: [name for name in names if name in classes] for top, names in below.items()}
    found = {to_text(name) for names in below.values() for name in names}
    if may_lack:
        # without class folders there are no labels, except that a split may have lacked them before
        names = class_map(found.union(class_names or ()), class_names, "") if found or split_of else ()
    else:
        if class_names is not None and not found:
            raise InputError("class-names-useless", root=os.fsdecode(tree.root))
        names = class_map(found, class_names, _NO_FOLDER)
    skipped = [
        f"the folder {to_text(name)!r} holds no images and is not a class; class_names= can name it"
        for name in unused
    ]
    return _Roles(split_of, below, names, [*warnings, *skipped])


def _split_warnings(members: Mapping[bytes, IntArray], roles: _Roles) -> Iterator[str]:
    """Yield a warning for each split folder without images, or without the class folders of others."""
    for top, split in sorted(roles.split_of.items()):
        if not len(members[top]):
            yield f"the split folder {os.fsdecode(top)!r} holds no images; the dataset lacks this split"
        elif roles.class_names and not roles.below[top]:
            yield (
                f"the split folder {os.fsdecode(top)!r} has no class folders, unlike others; the label of "
                f"all examples of {split!r} ({len(members[top]):,}) is -1, for no class"
            )


def _empty_classes(roles: _Roles, labels: IntArray) -> Iterator[str]:
    """Yield a warning for each class folder without images."""
    present = set(np.unique(labels).tolist())
    folders = {to_text(name) for names in roles.below.values() for name in names}
    for index, name in enumerate(roles.class_names):
        if index not in present and name in folders:
            yield f"the class folder {name!r} holds no images; it keeps its number"


_SHOWN = 5


def parse_split_folders(texts: Sequence[str]) -> dict[str, str]:
    """Return the folder of each split in texts such as ``train=Train,test=holdout``."""
    folders: dict[str, str] = {}
    for text in texts:
        for part in filter(None, text.split(",")):
            split, equals, folder = part.partition("=")
            if not equals or split in folders:
                raise OptionsError("split-folders-form", text=text)
            folders[split] = folder.rstrip("/")
    return folders


def check_split_folders(given: Mapping[str, str] | None) -> None:
    """Raise OptionsError unless ``given`` is None, or maps names of splits to different folders."""
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise OptionsError("split-folders-type", given=given)
    for split, folder in given.items():
        fault = name_fault(split)
        if fault:
            raise OptionsError("split-folders-name", given=dict(given), fault=fault)
        if not folder or "/" in folder or folder.startswith("."):
            raise OptionsError("split-folders-path", given=dict(given), folder=folder)
    if len(set(given.values())) < len(given):
        raise OptionsError("split-folders-repeated", given=dict(given))


def find_split_folders(
    root: bytes,
    folders: Sequence[bytes],
    with_images: Set[bytes],
    given: Mapping[str, str] | None,
    *,
    may_lack: bool,
) -> tuple[dict[bytes, str], list[str]]:
    """Return the folders that are splits, with the names of these, and warnings about the other folders.

    ``given`` has the folder of each split, which ``may_lack``; it is empty if no folder is a split, and None
    if the names of the folders decide.
    """
    shown = os.fsdecode(root)
    if given is not None:
        split_of = {to_bytes(folder): split for split, folder in given.items()}
        missing = [os.fsdecode(name) for name in split_of if name not in folders]
        if missing and not may_lack:
            raise InputError(
                "split-folder-missing",
                root=shown,
                missing=missing[0],
                folders=_named(folders) or "none",
            )
        split_of = {name: split for name, split in split_of.items() if name in folders}
    else:
        named = {name: split for name in folders if (split := usual_split(to_text(name)))}
        split_of = dict(sorted(named.items(), key=lambda item: usual_order(item[1])))
        odd = [name for name in folders if name in with_images and name not in split_of]
        if odd and not with_images.isdisjoint(split_of):
            usual = {split: to_text(name) for name, split in sorted(split_of.items())}
            raise InputError(
                "split-folders-ambiguous",
                root=shown,
                named=_named(sorted(split_of)),
                odd=_named(odd),
                usual=usual,
            )
        if odd:
            return {}, []
        for split in split_of.values():
            same = [name for name, other in named.items() if other == split]
            if len(same) > 1:
                raise InputError("split-folders-same", root=shown, names=_named(same), decode=split)
    return split_of, [
        f"the folder {os.fsdecode(name)!r} is not a split and is skipped"
        + (", with its images" if name in with_images else "")
        for name in folders
        if split_of and name not in split_of
    ]


def _named(folders: Sequence[bytes]) -> str:
    return listed([repr(os.fsdecode(name)) for name in folders], _SHOWN)


# Names of splits with more than the name, and of folders that hold images of any class.
_NO_CLASS = re.compile(
    rb"(?:.*_)?(?P<split>train|val|test|unlabeled)[^a-zA-Z]*"
    rb"|(?i:(?:data|images?|imgs?|photos?|pictures?|jpe?g|png|frames)(?:[_\d].*)?|.*_input)"
)


def _check_folders(
    root: str,
    keys: Sequence[bytes],
    marks: Marks,
    below: Mapping[bytes, Sequence[bytes]],
    holding: Sequence[Sequence[bytes]],
) -> None:
    """Raise InputError if marks, or names and depths of folders, show that folders are not the classes.

    ``below`` has the class folders in each split folder, or in the root, which is empty, and ``holding`` each
    folder with images, as its class folder and the folders below that.
    """
    names = sorted({name for classes in below.values() for name in classes})
    matches = [match for match in map(_NO_CLASS.fullmatch, names) if match]
    are_splits = len(matches) == len(names) and any(match["split"] for match in matches)
    seen, section = "", "other-layouts"
    if are_splits or (len(names) == 1 and (matches or b"" in below)):
        seen = f"no class folders but {_named(names)}"
    elif holding and all(len(parts) > 1 for parts in holding):
        seen, section = f"images only in folders of the class folders {_named(names)}", "nested-folders"
    lacks = NO_CLASSES if seen or not names else ALWAYS if all(below.values()) else SPLIT_LACKS_CLASSES
    if lacks > ALWAYS:
        check_marks(root, keys, marks, lacks)
    if seen:
        raise refusal(root, seen, section)
