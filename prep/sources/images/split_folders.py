"""Decide which of the top-level folders are splits, and warn where another source may be meant."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tfshards.prep.imaging.formats import METADATA_NAMES
from tfshards.prep.sources.classes import SPLIT_FOLDERS, usual_order
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.tree import Tree
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import listed
from tfshards.schemas.names import name_fault

_SHOWN = 5


@dataclass(frozen=True)
class SplitFolders:
    """The top-level folders that are splits.

    Attributes:
        split_of: the split of each of these folders, in the usual order of splits; empty if there are none.
        warnings: a warning for each folder that is skipped.
    """

    split_of: Mapping[bytes, str]
    warnings: tuple[str, ...] = ()


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
) -> SplitFolders:
    """Return the folders that are splits: those in ``given``, or else those named like splits, in any case.

    Args:
        root: the folder of images, for messages.
        folders: its folders, sorted.
        with_images: those of them that hold images.
        given: the folder of each split; empty if no folder is a split; None to decide by the names.
        may_lack: whether folders in ``given`` may be missing.

    Raises:
        InputError: two folders are one split, a folder in ``given`` is missing, or only some of the folders
            with images are named like splits.
    """
    if given is not None:
        return _as_given(root, folders, with_images, given, may_lack=may_lack)
    named = [name for name in folders if name.lower() in SPLIT_FOLDERS]
    if not named:
        return SplitFolders({})
    others = [name for name in folders if name not in named]
    odd = [name for name in others if name in with_images]
    if odd:
        usual = {name.lower().decode(): to_text(name) for name in named}
        raise InputError(
            "split-folders-ambiguous",
            root=os.fsdecode(root),
            named=_shown(named),
            odd=_shown(odd),
            usual=usual,
        )
    by_split: dict[str, bytes] = {}
    for name in named:
        other = by_split.setdefault(name.lower().decode(), name)
        if other != name:
            raise InputError(
                "split-folders-same",
                root=os.fsdecode(root),
                names=_shown([other, name]),
                decode=name.lower().decode(),
            )
    return SplitFolders(
        _in_order({name: name.lower().decode() for name in named}),
        tuple(f"the folder {os.fsdecode(name)!r} holds no images; it is skipped" for name in others),
    )


def _as_given(
    root: bytes,
    folders: Sequence[bytes],
    with_images: Set[bytes],
    given: Mapping[str, str],
    *,
    may_lack: bool,
) -> SplitFolders:
    split_of = {to_bytes(folder): split for split, folder in given.items()}
    missing = [os.fsdecode(name) for name in split_of if name not in folders]
    if missing and not may_lack:
        raise InputError(
            "split-folder-missing", root=os.fsdecode(root), missing=missing[0], folders=_shown(folders)
        )

    def left_out() -> Iterator[str]:
        for name in folders if given else ():
            if name not in split_of:
                what = "its images are" if name in with_images else "it holds no images and is"
                yield f"the folder {os.fsdecode(name)!r} is not given as a split; {what} skipped"

    return SplitFolders({name: split_of[name] for name in split_of if name in folders}, tuple(left_out()))


def _shown(folders: Sequence[bytes]) -> str:
    return listed([repr(os.fsdecode(name)) for name in folders], _SHOWN) or "none"


def _in_order(split_of: Mapping[bytes, str]) -> dict[bytes, str]:
    return dict(sorted(split_of.items(), key=lambda item: usual_order(item[1])))


_COCO = "_annotations.coco.json"
_COCO_FOLDER = re.compile(rb"(train|val|test|unlabeled)20[0-9]{2}")
_TABLES_ARE = "are not read; 'tfshards build table' stores their"
_SHOWN_IN_WARNING = 3


def unread_files(tree: Tree, folders: Sequence[bytes]) -> Iterator[str]:
    """Yield a warning for each kind of table or annotations in a folder, which are not read.

    Args:
        tree: the folder of images.
        folders: its folders.
    """
    for name in METADATA_NAMES:
        # of many folders, which may be classes, few are named
        tables = [os.path.join(os.fsdecode(folder), name) for folder in (b"", *folders)]
        tables = [table for table in tables if tree.is_file(os.fsencode(table))]
        if tables:
            are = "is not read; 'tfshards build table' stores its" if len(tables) == 1 else _TABLES_ARE
            yield f"{listed(tables, _SHOWN_IN_WARNING)} {are} columns with the images"
    inside = [b"annotations/" + name for name in tree.names(b"annotations")]
    coco = [os.fsdecode(name) for name in inside if fnmatchcase(os.fsdecode(name), "*/instances_*.json")]
    coco += [os.path.join(os.fsdecode(folder), _COCO) for folder in (b"", *folders)]
    found = [name for name in coco if tree.is_file(os.fsencode(name))]
    if found:
        yield f"{found[0]} is not read; 'tfshards build table --from coco' stores boxes and classes"
    texts = list(map(os.fsdecode, _texts(tree, folders)))
    if tree.is_file(b"data.yaml"):
        texts.insert(0, "data.yaml")
    if texts:
        yield f"{texts[0]} is not read; 'tfshards build table --from yolo' stores boxes and classes"


def _texts(tree: Tree, folders: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the folders of text files ``labels`` next to ``images``, in the root and in its folders."""
    for top in (b"", *folders):
        labels = os.path.join(top, b"labels")
        if not (tree.is_dir(labels) and tree.is_dir(os.path.join(top, b"images"))):
            continue
        below = [labels, *(os.path.join(labels, name) for name in tree.names(labels))]
        if any(name.endswith(b".txt") for folder in below for name in tree.names(folder)):
            yield labels


def splits_of_coco(root: bytes, class_names: Sequence[bytes]) -> Iterator[str]:
    """Yield a warning if all class folders have names of COCO's splits, such as ``val2017``.

    Args:
        root: the folder of images.
        class_names: its class folders.
    """
    matches = [_COCO_FOLDER.fullmatch(name) for name in class_names]
    if matches and all(matches):
        names = ", ".join(repr(os.fsdecode(name)) for name in class_names)
        folders = {match[1].decode(): match[0].decode() for match in matches if match}
        yield (
            f"{names} look like splits of COCO, but are taken for classes; 'tfshards build table "
            f"{os.fsdecode(root)} DATASET --from coco' stores boxes and classes, and "
            f"split_folders={folders!r} builds these splits without them"
        )


def splits_further_down(root: bytes, class_names: Sequence[bytes], keys: Iterable[bytes]) -> Iterator[str]:
    """Yield a warning if the only class folder holds folders of images that are named like splits.

    Args:
        root: the folder of images.
        class_names: its class folders.
        keys: keys of the images.
    """
    if len(class_names) != 1:
        return
    below = {parts[1] for parts in (key.split(b"/", 2) for key in keys) if len(parts) == 3}
    splits = sorted(name for name in below if name.lower() in SPLIT_FOLDERS)
    if splits:
        only = os.fsdecode(class_names[0])
        names = ", ".join(repr(os.fsdecode(name)) for name in splits)
        yield (
            f"{only!r} is taken for the only class, but holds {names}; if these are splits, give "
            f"{os.path.join(os.fsdecode(root), only)!r} as the source"
        )
