"""Decide which of the top-level folders are splits, and warn where another source may be meant."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from tfshards.prep.sources.classes import SPLIT_FOLDERS, usual_order
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.remote_tree import Tree
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import listed
from tfshards.schemas.names import name_fault

_SHOWN = 5


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

    Args:
        root: the folder of images, for messages.
        folders: its folders, sorted.
        with_images: those of them that hold images.
        given: the folder of each split; empty if no folder is one; None to decide by the names of folders.
        may_lack: whether folders in ``given`` may be missing.
    """
    shown = os.fsdecode(root)
    if given is not None:
        split_of = {to_bytes(folder): split for split, folder in given.items()}
        missing = [os.fsdecode(name) for name in split_of if name not in folders]
        if missing and not may_lack:
            raise InputError(
                "split-folder-missing", root=shown, missing=missing[0], folders=_shown(folders) or "none"
            )
        split_of = {name: split for name, split in split_of.items() if name in folders}
    else:
        named = {name: name.lower().decode() for name in folders if name.lower() in SPLIT_FOLDERS}
        split_of = dict(sorted(named.items(), key=lambda item: usual_order(item[1])))
        odd = [name for name in folders if name in with_images and name not in split_of]
        if odd and not with_images.isdisjoint(split_of):
            usual = {split: to_text(name) for name, split in sorted(split_of.items())}
            raise InputError(
                "split-folders-ambiguous",
                root=shown,
                named=_shown(sorted(split_of)),
                odd=_shown(odd),
                usual=usual,
            )
        if odd:
            return {}, []
        for split in split_of.values():
            same = [name for name, other in named.items() if other == split]
            if len(same) > 1:
                raise InputError("split-folders-same", root=shown, names=_shown(same), decode=split)
    return split_of, [
        f"the folder {os.fsdecode(name)!r} is not a split and is skipped"
        + (", with its images" if name in with_images else "")
        for name in folders
        if split_of and name not in split_of
    ]


def _shown(folders: Sequence[bytes]) -> str:
    return listed([repr(os.fsdecode(name)) for name in folders], _SHOWN)


# Kinds of sources that read other files, see ``LocalTree.unread``.
_READS = {
    "table": "'tfshards build table' stores its columns with the images",
    "coco": "'tfshards build table --from coco' stores boxes and classes",
    "yolo": "'tfshards build table --from yolo' stores boxes and classes",
    "arrays": "'tfshards build arrays' takes .npy files, stacked into one array per feature",
}
_LIKE_SPLIT = re.compile(rb"(train|val|test|unlabeled)[^a-zA-Z]*")


def unread_files(tree: Tree) -> list[str]:
    """Return a warning for each kind of file in a folder that another kind of source reads."""
    unread = [(tree.unread[kind], remedy) for kind, remedy in _READS.items() if kind in tree.unread]
    return [f"{os.fsdecode(key)} is not read; {remedy}" for key, remedy in unread]


def likely_splits(root: bytes, class_names: Sequence[bytes], folders: Iterable[bytes]) -> Iterator[str]:
    """Yield a warning if class folders, or the folders with images in the only one, are named like splits."""
    alike = [match for match in map(_LIKE_SPLIT.fullmatch, class_names) if match]
    if alike and len(alike) == len(class_names):
        usual = {match[1].decode(): match[0].decode() for match in alike}
        names = _shown(class_names)
        yield f"{names} are taken for classes; if these are splits, give split_folders={usual!r}"
    below = {each[1] for each in (name.split(b"/") for name in folders) if len(each) > 1}
    splits = sorted(name for name in below if name.lower() in SPLIT_FOLDERS)
    if splits and len(class_names) == 1:
        only = os.fsdecode(class_names[0])
        yield (
            f"{only!r} is taken for the only class, but holds {_shown(splits)}; if these are splits, give "
            f"{os.path.join(os.fsdecode(root), only)!r} as the source"
        )
