"""Arrays as a source kind: their arguments, and how a build from them is restored."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import cast

from tfshards.prep.sources.arrays.source import Arrays
from tfshards.prep.sources.kind import Recorded, SourceKind


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        nargs="+",
        metavar="SOURCE",
        help="array: NAME=FILE.npy, FILE.npy (the file's stem is the name), FILE.npz (all its arrays), or "
        "parts of one array such as X-0.npy X-1.npy",
    )
    parser.add_argument(
        "--list",
        dest="lists",
        action="append",
        default=[],
        metavar="NAME",
        help="store this array as an int64 or float list rather than as bytes; repeatable",
    )


def _from_arguments(options: argparse.Namespace, class_names: Sequence[str] | None) -> Arrays:
    return Arrays.open(options.source, lists=tuple(options.lists), class_names=class_names)


def _restore(recorded: Recorded, inputs: Sequence[str]) -> Arrays:
    lists = cast("list[str]", recorded.options.get("lists", []))
    return Arrays.open(inputs, tuple(lists), recorded.class_names)


ARRAYS = SourceKind(
    name="arrays",
    help="NumPy arrays in .npy or .npz files",
    group_help="keep rows with equal values in this array in one split",
    add_arguments=_add_arguments,
    from_arguments=_from_arguments,
    restore=_restore,
    # an invalid array fails the build instead
    can_reject=False,
)
