"""Arrays as a source kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfshards.prep.sources.arrays.source import Arrays
from tfshards.prep.sources.kind import Recorded, SourceKind


def _restore(recorded: Recorded, inputs: Sequence[str]) -> Arrays:
    options: Mapping[str, Any] = recorded.options
    return Arrays.open(
        inputs,
        class_names=recorded.class_names,
        lists=tuple(options.get("lists", ())),
        label=recorded.label or "",
        split=options.get("split_array", ""),
        image_arrays=tuple(options.get("image_arrays", ())),
        resize=options.get("resize"),
    )


ARRAYS = SourceKind(
    name="arrays",
    help="NumPy arrays in .npy or .npz files",
    source_help=(
        "array: NAME=FILE.npy, FILE.npy (the file's stem is the name) or FILE.npz (all its arrays); arrays "
        "named like x_train and x_test are splits"
    ),
    group_help="keep rows with equal values in this array in one split",
    records=lambda: (Arrays,),
    make=lambda source, class_names, of_arrays: Arrays.open(source, class_names=class_names, **of_arrays),
    restore=_restore,
    takes_several=True,
    # an invalid array fails the build instead
    can_reject=False,
)
