"""Splits and classes of images from the folders that hold them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from tfshards.prep.sources.classes import class_map
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.splits import usual_order, usual_split
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import listed
from tfshards.schemas.names import name_fault

# The label of files that are in no split or class, though there are some.
OUTSIDE = -2
_NO_FOLDER = "there is no folder of that name; create empty folders for classes without images"
_SHOWN = 5
# Names of splits with more than the name.
_LIKE_A_SPLIT = re.compile(rb"(?:.*_)?(?:train|val|test|unlabeled)[^a-zA-Z]*")


@dataclass(frozen=True)
class Layout:
    """Which folders are splits and classes.

    Attributes:
        split_of: split of each top-level folder that is one, in the order of splits; empty without splits.
        below: class folders in each split folder, or in the root, whose name is empty.
        class_names: class names in label order.
        warnings: warnings about folders that are no classes, or lack images.
    """

    split_of: Mapping[bytes, str]
    below: Mapping[bytes, Sequence[bytes]]
    class_names: tuple[str, ...]
    warnings: tuple[str, ...]

    def parts(self, folder: bytes) -> list[bytes]:
        """Return a folder as its split folder, empty if there are no splits, and the folders below it."""
        parts = folder.split(b"/") if folder else []
        return parts if self.split_of else [b"", *parts]

    def labels(self, folders: Sequence[bytes | None]) -> list[int]:
        """Return the class number of the files in each folder; -1 in a split without class folders."""
        numbers = {to_bytes(name): number for number, name in enumerate(self.class_names)}

        def label(folder: bytes | None) -> int:
            parts = [] if folder is None else self.parts(folder)
            if not parts or parts[0] not in self.below:
                return OUTSIDE
            if not self.below[parts[0]]:
                return -1
            return numbers[parts[1]] if len(parts) > 1 else OUTSIDE

        return [*map(label, folders)]

    def not_classes(self, holding: Collection[bytes]) -> tuple[str, str]:
        """Return why folders are evidently not classes, and the section of the page; or two empty texts.

        Args:
            holding: paths of the folders that hold images.
        """
        names = sorted({name for classes in self.below.values() for name in classes})
        if len(names) == 1 or (names and all(map(_LIKE_A_SPLIT.fullmatch, names))):
            return f"no class folders but {_named(names)}", "other-layouts"
        paths = [parts for parts in map(self.parts, holding) if len(parts) > 1 and self.below.get(parts[0])]
        if paths and all(len(parts) > 2 for parts in paths):
            return f"images only in folders of the class folders {_named(names)}", "nested-folders"
        return "", ""


def find_layout(
    root: bytes,
    folders: Collection[bytes],
    holding: Collection[bytes],
    class_names: Sequence[str] | None,
    split_folders: Mapping[str, str] | None,
    *,
    may_lack: bool,
) -> Layout:
    """Return which folders are splits and classes; see the fields of ``ImageFolder``.

    Args:
        root: the source, for messages.
        folders: paths of all folders.
        holding: paths of the folders that hold images.
        class_names: the given names of classes, or None.
        split_folders: the given folder of each split; empty if no folder is a split, and None if the names of
            the folders decide.
        may_lack: whether given classes and splits may have no folder.
    """
    inside: dict[bytes, list[bytes]] = {}
    for path in sorted(folders):
        above, _, name = path.rpartition(b"/")
        inside.setdefault(above, []).append(name)
    tops = inside.get(b"", [])
    with_images = {b"/".join(path.split(b"/")[:depth]) for path in holding for depth in (1, 2)}
    if split_folders is None:
        split_of = _usual_splits(root, tops, with_images)
    else:
        given = {to_bytes(folder): split for split, folder in split_folders.items()}
        split_of = {name: split for name, split in given.items() if name in tops}
        if missing := [] if may_lack else [name for name in given if name not in tops]:
            known, first = _named(tops) or "none", os.fsdecode(missing[0])
            raise InputError("split-folder-missing", root=os.fsdecode(root), missing=first, folders=known)
    below = {top: inside.get(top, []) for top in split_of} or {b"": tops}
    filled = {
        name for top, names in below.items() for name in names if os.path.join(top, name) in with_images
    }
    # annotations, empty folders: in no split are there images in them, and no given name is theirs
    classes = filled | {to_bytes(name) for name in class_names or ()}
    idle = {name for names in below.values() for name in names} - classes
    idle |= {name for name in tops if split_of and not (name in split_of and name in with_images)}
    below = {top: [name for name in names if name in classes] for top, names in below.items()}
    found = {to_text(name) for names in below.values() for name in names}
    if may_lack:
        # without class folders there are no labels, except that a split may have lacked them before
        names = class_map(found.union(class_names or ()), class_names, "") if found or split_of else ()
    elif class_names is not None and not found:
        raise InputError("class-names-useless", root=os.fsdecode(root))
    else:
        names = class_map(found, class_names, _NO_FOLDER)
    warnings = [
        f"the split folder {os.fsdecode(top)!r} has no class folders, unlike others; the label of all its "
        "examples is -1, for no class"
        for top in sorted(split_of)
        if names and not below[top] and top in with_images
    ]
    if idle:
        warnings.append(
            f"skipped folders, which are neither splits nor classes with images: {_named(sorted(idle))}; "
            "class_names= can name classes without images"
        )
    empty = sorted(found - {to_text(name) for name in filled})
    warnings += [f"the class folder {name!r} holds no images; it keeps its number" for name in empty]
    return Layout(split_of, below, names, tuple(warnings))


def _usual_splits(root: bytes, tops: Sequence[bytes], with_images: Set[bytes]) -> dict[bytes, str]:
    usual = {name: split for name in tops if (split := usual_split(to_text(name)))}
    odd = [name for name in tops if name in with_images and name not in usual]
    if odd and not with_images.isdisjoint(usual):
        choice = {split: to_text(name) for name, split in sorted(usual.items())}
        named, others = _named(sorted(usual)), _named(odd)
        raise InputError(
            "split-folders-ambiguous", root=os.fsdecode(root), named=named, odd=others, usual=choice
        )
    if odd:
        return {}
    for split in usual.values():
        same = [name for name, other in usual.items() if other == split]
        if len(same) > 1:
            raise InputError("split-folders-same", root=os.fsdecode(root), names=_named(same), decode=split)
    return dict(sorted(usual.items(), key=lambda item: usual_order(item[1])))


def _named(folders: Sequence[bytes]) -> str:
    return listed([repr(os.fsdecode(name)) for name in folders], _SHOWN)


def parse_split_folders(texts: Sequence[str]) -> dict[str, str]:
    """Return the folder of each split in texts such as ``train=Train,test=holdout``."""
    folders: dict[str, str] = {}
    text = ",".join(texts)
    for part in text.split(","):
        split, equals, folder = part.partition("=")
        if part and (not equals or split in folders):
            raise OptionsError("split-folders-form", text=text)
        folders |= {split: folder.rstrip("/")} if part else {}
    return folders


def check_split_folders(given: Mapping[str, str] | None) -> None:
    """Raise OptionsError unless ``given`` is None, or maps names of splits to different folders."""
    if given is None:
        return
    pairs = given.items() if isinstance(given, Mapping) else [("", "")]
    wrong = [split for split, folder in pairs if name_fault(split) or not re.fullmatch(r"[^./][^/]*", folder)]
    if wrong or len({folder for _, folder in pairs}) < len(pairs):
        raise OptionsError("split-folders-form", text=given)
