"""Warn about folders that look as if another source, or another folder, was meant."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from tfshards.prep.imaging.formats import METADATA_NAMES
from tfshards.prep.sources.usual_splits import SPLIT_FOLDERS

_COCO = "_annotations.coco.json"


def unread_files(root: bytes, folders: Sequence[bytes]) -> Iterator[str]:
    """Yield a warning for each kind of table or annotations in a folder, which are not read.

    Args:
        root: the folder of images.
        folders: its folders.
    """
    for name in METADATA_NAMES:
        if os.path.isfile(os.path.join(root, os.fsencode(name))):
            yield f"{name} is not read; 'tfshards build table' stores its columns with the images"
    inside = [b"annotations/" + name for name in _names(os.path.join(root, b"annotations"))]
    coco = [os.fsdecode(name) for name in inside if fnmatchcase(os.fsdecode(name), "*/instances_*.json")]
    coco += [os.path.join(os.fsdecode(folder), _COCO) for folder in (b"", *folders)]
    found = [name for name in coco if os.path.isfile(os.path.join(os.fsdecode(root), name))]
    if found:
        yield f"{found[0]} is not read; 'tfshards build table --from coco' stores boxes and classes"
    texts = list(map(os.fsdecode, _texts(root, folders)))
    if os.path.isfile(os.path.join(root, b"data.yaml")):
        texts.insert(0, "data.yaml")
    if texts:
        yield f"{texts[0]} is not read; 'tfshards build table --from yolo' stores boxes and classes"


def _texts(root: bytes, folders: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the folders of text files ``labels`` next to ``images``, in the root and in its folders."""
    for top in (b"", *folders):
        labels = os.path.join(root, top, b"labels")
        if not (os.path.isdir(labels) and os.path.isdir(os.path.join(root, top, b"images"))):
            continue
        below = [labels, *(os.path.join(labels, name) for name in _names(labels))]
        if any(name.endswith(b".txt") for folder in below for name in _names(folder)):
            yield os.path.join(top, b"labels")


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


def _names(folder: bytes) -> list[bytes]:
    """Return the names in a folder, sorted; none if it cannot be listed."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
