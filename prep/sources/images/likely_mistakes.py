"""Warn about folders that look as if another source, or another folder, was meant."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from tfshards.prep.imaging.formats import METADATA_NAMES
from tfshards.prep.sources.tree import Tree
from tfshards.prep.sources.usual_splits import SPLIT_FOLDERS
from tfshards.schemas.errors import listed

_COCO = "_annotations.coco.json"
_COCO_FOLDER = re.compile(rb"(train|val|test|unlabeled)20[0-9]{2}")
_TABLES_ARE = "are not read; 'tfshards build table' stores their"
_SHOWN = 3


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
            yield f"{listed(tables, _SHOWN)} {are} columns with the images"
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
