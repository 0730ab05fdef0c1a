"""The array that names the split of each example."""

from __future__ import annotations

import numpy as np

from tfshards.prep.sources.arrays.features import is_text, strings
from tfshards.prep.sources.arrays.mapped import MappedArray, whole
from tfshards.prep.sources.keys import to_text
from tfshards.prep.sources.usual_splits import usual_order
from tfshards.schemas import InputError
from tfshards.schemas.index import IntArray
from tfshards.schemas.names import name_fault

# Arrays with more distinct values do not hold splits.
_MAX_SPLITS = 100


def is_split_array(array: MappedArray) -> bool:
    """Return whether an array holds one string or one integer per example."""
    if len(array.shape) != 1 or array.dtype == "bfloat16":
        return False
    return is_text(array) or np.dtype(array.dtype).kind in "iu"


def splits_of(name: str, array: MappedArray) -> dict[str, IntArray]:
    """Return the examples of each split that the array ``name`` names, in the usual order of splits.

    Raises:
        InputError: the array does not hold one string or integer per example, a value cannot be the name of
            a split, or there are too many different values.
    """
    if not is_split_array(array):
        raise InputError("split-array-shape", name=name)
    distinct, indexes = np.unique(whole(array), return_inverse=True)
    if len(distinct) > _MAX_SPLITS:
        raise InputError("split-array-many", name=name, num_distinct=len(distinct), max_splits=_MAX_SPLITS)
    names = (
        [to_text(each) for each in strings(name, distinct)]
        if is_text(array)
        else [str(number) for number in distinct.tolist()]
    )
    for number, each in enumerate(names):
        fault = name_fault(each)
        if fault:
            row = int(np.flatnonzero(indexes == number)[0])
            raise InputError("split-array-name", name=name, row=row, fault=fault)
    order = sorted(range(len(names)), key=lambda number: usual_order(names[number]))
    return {names[number]: np.flatnonzero(indexes == number).astype(np.int64) for number in order}
