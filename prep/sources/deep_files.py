"""Warn about images with more than 8 bits per sample before a build, by the headers of some files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np

from tfshards.prep.imaging.depth import DEEP_FORMATS, file_depth
from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.sources.tree import Tree

_MAX_LOOKED = 300


def depth_warning(tree: Tree, paths: Sequence[bytes], options: ImageOptions) -> Iterator[str]:
    """Yield warnings if a build with these options reduces some of the files to 8 bits per sample.

    Args:
        tree: folder to which the paths are relative.
        paths: of the images; only a few hundred, evenly spread, are looked at.
        options: of the build.
    """
    if options.depth != 8 or options.check == "none" or not paths:
        return
    numbers = np.unique(np.linspace(0, len(paths) - 1, _MAX_LOOKED).astype(np.int64))
    some = [paths[number] for number in numbers.tolist()]
    opened = [path for path in some if _may_be_deep(path)]
    depths = dict(zip(opened, tree.map(lambda path: _depth(tree, path), opened), strict=True))
    for depth, found, remedy in (
        (
            "deep",
            "have more than 8 bits per sample",
            "of 16 bits, 4095 becomes 15; depth=16 keeps their values",
        ),
        (
            "float",
            "hold floating point numbers",
            "'tfshards build arrays' stores arrays of them as they are",
        ),
    ):
        paths = [path for path in some if depths.get(path) == depth]
        if paths:
            yield (
                f"{len(paths)} of {len(some)} images looked at {found}, such as {os.fsdecode(paths[0])!r}, "
                f"and are reduced to 8 bits; {remedy}"
            )


def _depth(tree: Tree, path: bytes) -> str:
    try:
        file = tree.opened(path)
    except (OSError, ValueError):
        # the build reports what is wrong with the file
        return "8"
    if file is None:
        return "8"
    with file:
        return file_depth(file, os.path.splitext(path)[1].lower())


def _may_be_deep(path: bytes) -> bool:
    return SUFFIXES.get(os.path.splitext(path)[1].lower(), "") in DEEP_FORMATS
