"""Splits and classes of images from the folders that hold them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from tfshards.prep.sources.classes import class_map
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.marks import PAGE
from tfshards.prep.sources.splits import usual_order, usual_split
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import listed
from tfshards.schemas.names import name_fault

_SHOWN = 5
# Folders next to splits, such as CamVid's trainannot.
_LIKE_MASKS = re.compile(rb"annot|mask|label", re.IGNORECASE)
# Names of splits with more than the name.
_LIKE_A_SPLIT = re.compile(rb"(?:.*_)?(?:train|val|test|unlabeled)[^a-zA-Z]*")


@dataclass(frozen=True)
class Layout:
    """Which folders are splits and classes.

    Attributes:
        split_of: split of each top-level folder that is one, in the order of splits; empty without splits.
        classes: class folders in each split folder, or in the root, whose name is empty.
        numbers: label of each class folder and of each given class, in this order.
        warnings: warnings about classes without images, and splits without classes.
    """

    split_of: Mapping[bytes, str]
    classes: Mapping[bytes, Set[bytes]]
    numbers: Mapping[bytes, int]
    warnings: tuple[str, ...]

    @property
    def class_names(self) -> tuple[str, ...]:
        """The class names in label order."""
        return tuple(map(to_text, self.numbers))

    def place(self, folder: bytes) -> tuple[str, int] | None:
        """Return the split of the files in a folder, empty without splits, and their label.

        The label is -1 in a split without class folders. Other files have neither: None.
        """
        top, below = _divided(folder, self.split_of)
        if top not in self.classes or (self.classes[top] and not below):
            return None
        return self.split_of.get(top, ""), self.numbers[below[0]] if self.classes[top] else -1

    def not_classes(self, folders: Collection[bytes]) -> tuple[str, str]:
        """Return why folders are evidently not classes, and the section of the page; or two empty texts.

        Args:
            folders: paths of the folders that hold images.
        """
        names = sorted(set().union(*self.classes.values()))
        is_single = len(names) == 1 and (not self.split_of or names == [b"images"])
        if is_single or (names and all(map(_LIKE_A_SPLIT.fullmatch, names))):
            return f"no class folders but {_named(names)}", "other-layouts"
        divided = (_divided(folder, self.split_of) for folder in folders)
        below = [parts for top, parts in divided if parts and self.classes.get(top)]
        if below and all(len(parts) > 1 for parts in below):
            return f"images only in folders of the class folders {_named(names)}", "nested-folders"
        return "", ""


def _divided(folder: bytes, split_of: Mapping[bytes, str]) -> tuple[bytes, list[bytes]]:
    """Return the top-level folder of a folder, empty without splits, and the names below it."""
    parts = folder.split(b"/") if folder else []
    return (parts[0] if parts else b"", parts[1:]) if split_of else (b"", parts)


def find_layout(
    root: bytes,
    folders: Collection[bytes],
    class_names: Sequence[str] | None,
    split_folders: Mapping[str, str] | None,
    *,
    may_lack: bool,
) -> Layout:
    """Return which folders are splits and classes; see the fields of ``ImageFolder``.

    Args:
        root: the source, for messages.
        folders: paths of the folders that hold images; others do not count.
        class_names: the given names of classes, or None.
        split_folders: the given folder of each split; empty if no folder is a split, and None if the names of
            the folders decide.
        may_lack: whether given classes and splits may have no folder.
    """
    tops = sorted({path.partition(b"/")[0] for path in folders if path})
    if split_folders is None:
        split_of = _usual_splits(root, tops)
    else:
        split_of = {to_bytes(folder): split for split, folder in split_folders.items()}
        if missing := [] if may_lack else [name for name in split_of if name not in tops]:
            known, first = _named(tops) or "none", os.fsdecode(missing[0])
            raise InputError("split-folder-missing", root=os.fsdecode(root), missing=first, folders=known)
    classes: dict[bytes, set[bytes]] = {top: set() for top in split_of or [b""]}
    for path in folders:
        top, below = _divided(path, split_of)
        if below and top in classes:
            classes[top].add(below[0])
    found = {to_text(name) for names in classes.values() for name in names}
    if class_names and not found and not may_lack:
        raise InputError("class-names-useless", root=os.fsdecode(root))
    # without class folders there are no labels, except that a split may have lacked them before
    names = class_map(found, class_names) if found or split_of else ()
    warnings = [
        f"the split folder {os.fsdecode(top)!r} has no class folders, unlike others; the label of all its "
        "examples is -1, for no class"
        for top in sorted(split_of)
        if names and not classes[top] and top in tops
    ]
    if empty := [] if may_lack else [to_bytes(name) for name in names if name not in found]:
        warnings.append(f"there are no images of the classes {_named(empty)}; they keep their numbers")
    numbers = {to_bytes(name): number for number, name in enumerate(names)}
    return Layout(split_of, classes, numbers, tuple(warnings))


def _usual_splits(root: bytes, folders: Sequence[bytes]) -> dict[bytes, str]:
    """Return the split of each folder if all have usual names of splits, and nothing if none has."""
    usual = {name: split for name in folders if (split := usual_split(to_text(name)))}
    odd = [name for name in folders if name not in usual]
    if odd and usual:
        choice = {split: to_text(name) for name, split in usual.items()}
        are_masks = all(map(_LIKE_MASKS.search, odd))
        raise InputError(
            "split-folders-ambiguous",
            *[f"if {_named(odd)} hold masks, see {PAGE}#images-and-masks"] * are_masks,
            root=os.fsdecode(root),
            named=_named([*usual]),
            odd=_named(odd),
            usual=choice,
        )
    for split in usual.values():
        same = [name for name, other in usual.items() if other == split]
        if len(same) > 1:
            raise InputError("split-folders-same", root=os.fsdecode(root), names=_named(same), decode=split)
    return dict(sorted(usual.items(), key=lambda item: usual_order(item[1])))


def _named(folders: Sequence[bytes]) -> str:
    return listed([repr(os.fsdecode(name)) for name in folders], _SHOWN)


def check_split_folders(given: Mapping[str, str] | None) -> None:
    """Raise OptionsError unless ``given`` is None, or maps names of splits to different folders."""
    if given is None:
        return
    pairs = given.items() if isinstance(given, Mapping) else [("", "")]
    wrong = [split for split, folder in pairs if name_fault(split) or not re.fullmatch(r"[^./][^/]*", folder)]
    if wrong or len({folder for _, folder in pairs}) < len(pairs):
        raise OptionsError("split-folders-form", text=given)
