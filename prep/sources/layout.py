"""Splits and classes of images from the folders that hold them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfshards.prep.sources.classes import class_map, usual_order, usual_split
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.marks import ALWAYS, NO_CLASSES, PAGE, SPLIT_LACKS_CLASSES
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import listed
from tfshards.schemas.names import name_fault

_SHOWN = 5
# Names of splits with more than the name.
_LIKE_A_SPLIT = re.compile(rb"(?:.*_)?(?:train|val|test|unlabeled)[^a-zA-Z]*")


class Layout(NamedTuple):
    """Which folders are splits and classes.

    Attributes:
        splits: names of the splits in their order; empty without splits.
        class_names: class names in label order; empty without labels.
        places: split of each folder of images, empty without splits, and its label, -1 in a split without
            class folders; None for a folder whose images have neither.
        last: last kind of marks that show that folders are not classes.
        seen: what shows it without marks, and the section of the page; or two empty texts.
        warnings: warnings about classes without images, and splits without classes.
    """

    splits: Sequence[str]
    class_names: tuple[str, ...]
    places: Sequence[tuple[str, int] | None]
    last: int
    seen: tuple[str, str]
    warnings: Sequence[str]


def _divided(folder: bytes, split_of: Mapping[bytes, str]) -> tuple[bytes, list[bytes]]:
    """Return the top-level folder of a folder, empty without splits, and the names below it."""
    parts = folder.split(b"/") if folder else []
    return (parts[0] if parts else b"", parts[1:]) if split_of else (b"", parts)


def find_layout(
    root: bytes,
    folders: Sequence[bytes | None],
    class_names: Sequence[str] | None,
    split_folders: Mapping[str, str] | None,
    *,
    may_lack: bool,
) -> Layout:
    """Return which folders are splits and classes; see the fields of ``ImageFolder``.

    Args:
        root: the source, for messages.
        folders: paths of the folders that hold images; None for one outside of the folder of images.
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
            raise InputError(f"{os.fsdecode(root)} has no folder {first!r} for split_folders=, only {known}")
    classes: dict[bytes, set[bytes]] = {top: set() for top in split_of or [b""]}
    divided = [None if path is None else _divided(path, split_of) for path in folders]
    for top, below in filter(None, divided):
        if below and top in classes:
            classes[top].add(below[0])
    found = {to_text(name) for names in classes.values() for name in names}
    if class_names and not found and not may_lack:
        raise InputError(f"{os.fsdecode(root)} has no class folders; leave out class_names=")
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

    def place(top: bytes, below: Sequence[bytes]) -> tuple[str, int] | None:
        if top not in classes or (classes[top] and not below):
            return None
        return split_of.get(top, ""), numbers[below[0]] if classes[top] else -1

    depths = [len(below) for top, below in filter(None, divided) if below and classes.get(top)]
    seen = _not_classes(sorted(set().union(*classes.values())), depths, has_splits=bool(split_of))
    some = ALWAYS if all(classes.values()) else SPLIT_LACKS_CLASSES
    return Layout(
        splits=[*split_of.values()],
        class_names=tuple(names),
        places=[each and place(*each) for each in divided],
        last=NO_CLASSES if seen[0] or not names else some,
        seen=seen,
        warnings=warnings,
    )


def _not_classes(names: Sequence[bytes], depths: Sequence[int], *, has_splits: bool) -> tuple[str, str]:
    """Return why class folders are evidently not classes, and the section of the page; or two empty texts.

    ``depths`` has the number of folders from a class to images, with both ends, for each folder of images.
    """
    is_single = len(names) == 1 and (not has_splits or names[0] == b"images")
    if is_single or (names and all(map(_LIKE_A_SPLIT.fullmatch, names))):
        return f"no class folders but {_named(names)}", "other-layouts"
    if depths and min(depths) > 1:
        what = f"images only in folders of {_named(names)} (if these are splits, split_folders= names them)"
        return what, "nested-folders"
    return "", ""


def _usual_splits(root: bytes, folders: Sequence[bytes]) -> dict[bytes, str]:
    """Return the split of each folder if all have usual names of splits, and nothing if none has."""
    usual = {name: split for name in folders if (split := usual_split(to_text(name)))}
    odd = [name for name in folders if name not in usual]
    if odd and usual:
        choice = {split: to_text(name) for name, split in usual.items()}
        raise InputError(
            f"{os.fsdecode(root)}: {_named([*usual])} could be splits, but {_named(odd)} cannot, and there "
            f"are images in both; give split_folders={choice!r} for the folders that are splits, or "
            f"split_folders={{}} if every folder is a class; of masks, see {PAGE}#images-and-masks"
        )
    for split in usual.values():
        same = [name for name, other in usual.items() if other == split]
        if len(same) > 1:
            raise InputError(
                f"{os.fsdecode(root)}: the folders {_named(same)} are one split, {split!r}; join them"
            )
    return dict(sorted(usual.items(), key=lambda item: usual_order(item[1])))


def _named(folders: Sequence[bytes]) -> str:
    return listed([repr(os.fsdecode(name)) for name in folders], _SHOWN)


def check_paths_of_splits(option: str, given: object, pattern: str, allowed: str) -> None:
    """Raise OptionsError unless an option maps names of splits to different paths that match a pattern."""
    pairs = [*given.items()] if isinstance(given, Mapping) else [(given, "")]
    is_wrong = any(
        not isinstance(split, str)
        or not isinstance(path, str)
        or name_fault(split)
        or not re.fullmatch(pattern, path, re.DOTALL)
        for split, path in pairs
    )
    if is_wrong or len({path for _, path in pairs}) < len(pairs):
        raise OptionsError(f"{option}={given!r} must give each split {allowed}")
