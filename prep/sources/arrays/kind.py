"""Arrays as a source kind: their arguments, and how a build from them is restored."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import cast

from tfshards.prep.sources.arrays.source import Arrays, RestoredArrays
from tfshards.prep.sources.kind import Recorded, SourceKind
from tfshards.schemas.json_reader import Json


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        nargs="+",
        metavar="SOURCE",
        help="array: NAME=FILE.npy, FILE.npy (the file's stem is the name), FILE.npz (all its arrays), "
        "parts of one array such as X-0.npy X-1.npy, or SPLIT:NAME=FILE.npy; arrays named like x_train and "
        "x_test are splits",
    )
    parser.add_argument(
        "--list",
        dest="lists",
        action="append",
        default=[],
        metavar="NAME",
        help="store this array as an int64 or float list rather than as bytes; repeatable",
    )
    parser.add_argument(
        "--label",
        metavar="NAME",
        help="array of classes, one string or integer per example; '' for none (default: label, labels or y, "
        "the first that exists)",
    )
    parser.add_argument(
        "--split-array",
        dest="split",
        metavar="NAME",
        help="array that names the split of each example; '' for none (default: split, if it exists)",
    )


def _from_arguments(options: argparse.Namespace, class_names: Sequence[str] | None) -> Arrays:
    return Arrays.open(
        options.source,
        lists=tuple(options.lists),
        class_names=class_names,
        label=options.label,
        split=options.split,
    )


def _restore(recorded: Recorded, inputs: Sequence[str]) -> Arrays:
    flags = _recorded(recorded, inputs)
    lists, label, split = cast(
        "tuple[list[str], str, str]", (flags["list"], flags["label"], flags["split-array"])
    )
    return RestoredArrays.open(inputs, tuple(lists), recorded.class_names, label=label, split=split)


def _recorded(recorded: Recorded, _: Sequence[str]) -> dict[str, Json]:
    label = next((feature.name for feature in recorded.schema.features if feature.kind == "label"), "")
    return {
        "list": recorded.options.get("lists", []),
        "label": label,
        "split-array": recorded.options.get("split_array", ""),
    }


ARRAYS = SourceKind(
    name="arrays",
    help="NumPy arrays in .npy or .npz files",
    group_help="keep rows with equal values in this array in one split",
    add_arguments=_add_arguments,
    from_arguments=_from_arguments,
    restore=_restore,
    recorded=_recorded,
    # an invalid array fails the build instead
    can_reject=False,
)
