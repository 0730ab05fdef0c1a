"""The operations of the order's arithmetic, which NumPy and TensorFlow's graph have under different names.

What has the same notation in both, such as ``+``, ``//`` and ``%``, is written as it is. Arrays are vectors
of int64, or scalars, unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

# An array of NumPy or a tensor, whose type is not known where TensorFlow is not imported.
Array: TypeAlias = Any
Ints: TypeAlias = npt.NDArray[np.int64]


class Ops(NamedTuple):
    """Operations on arrays of one library; ``NUMPY``, or ``GRAPH`` of loader/graph/ops.py.

    Attributes:
        unsigned: integers as uint64.
        signed: a uint64 array as int64.
        shifted: a uint64 array, shifted to the right by this number of bits.
        gather: the elements, or rows, with these indices.
        first_after: for each value, the index of the first of the ascending ``ends`` that is larger.
        ascending: the indices that sort a vector; ties keep their order.
        repeated: each index of a vector of counts as often as its count, and the number of its earlier
            occurrences.
        split: parts of a vector, of these lengths.
        cast: values in another dtype.
        rint: floats rounded to integers, halves to even ones.
        all_of: whether all elements of each row are true.
        argmax: the index of the first true element.
        kept: the rows that a mask has.
        exchanged: the elements along the second axis with these indices.
        checked: the values, or an error with this text unless the condition is true.
        length: the number of rows.
        every: whether all elements are true.
    """

    unsigned: Callable[[Array], Array]
    signed: Callable[[Array], Array]
    shifted: Callable[[Array, int], Array]
    gather: Callable[[Array, Array], Array]
    first_after: Callable[[Array, Array], Array]
    ascending: Callable[[Array], Array]
    repeated: Callable[[Array], tuple[Array, Array]]
    arange: Callable[[Array], Array]
    minimum: Callable[[Array, Array], Array]
    maximum: Callable[[Array, Array], Array]
    where: Callable[[Array, Array, Array], Array]
    full: Callable[[Array, Array], Array]
    concat: Callable[[Sequence[Array]], Array]
    split: Callable[[Array, Sequence[int]], Sequence[Array]]
    unstack: Callable[[Array], Sequence[Array]]
    columns: Callable[[Array], Sequence[Array]]
    stack: Callable[[Sequence[Array], int], Array]
    reshape: Callable[[Array, Sequence[int]], Array]
    cast: Callable[[Array, str], Array]
    exp: Callable[[Array], Array]
    sqrt: Callable[[Array], Array]
    rint: Callable[[Array], Array]
    all_of: Callable[[Array], Array]
    argmax: Callable[[Array], Array]
    kept: Callable[[Array, Array], Array]
    exchanged: Callable[[Array, Array], Array]
    checked: Callable[[Array, Array, str], Array]
    length: Callable[[Array], Array]
    every: Callable[[Array], Array]


def _repeated(counts: Ints) -> tuple[Ints, Ints]:
    index = np.repeat(np.arange(len(counts)), counts)
    return index, np.arange(len(index)) - (np.cumsum(counts) - counts)[index]


def _ascending(values: Ints) -> Ints:
    """Return what ``np.argsort(values, kind="stable")`` does, in a quarter of its time: by sorting values."""
    bits = len(values).bit_length()
    # the upper bits of each value, and its index
    packed = np.sort(values >> bits << bits | np.arange(len(values)))
    order = packed & ((1 << bits) - 1)
    is_tied = np.diff(packed >> bits) == 0
    if is_tied.any():
        tied = np.append(is_tied, False) | np.append(False, is_tied)
        rows = order[tied]
        order[tied] = rows[np.lexsort((rows, values[rows]))]
    return order


def _checked(values: Array, condition: Array, message: str) -> Array:
    if not condition:
        raise ValueError(message)
    return values


NUMPY = Ops(
    unsigned=lambda values: np.asarray(values).astype(np.uint64),
    signed=lambda values: values.astype(np.int64),
    shifted=lambda values, bits: values >> np.uint64(bits),
    gather=lambda values, indices: np.asarray(values)[indices],
    first_after=lambda ends, values: np.searchsorted(ends, values, side="right"),
    ascending=_ascending,
    repeated=_repeated,
    arange=lambda stop: np.arange(stop, dtype=np.int64),
    minimum=np.minimum,
    maximum=np.maximum,
    where=np.where,
    full=lambda length, value: np.full(length, value, getattr(value, "dtype", np.int64)),
    concat=np.concatenate,
    split=lambda values, lengths: np.split(values, np.cumsum(lengths[:-1])),
    unstack=tuple,
    columns=lambda rows: tuple(rows.T),
    stack=lambda arrays, axis: np.stack(arrays, axis),
    reshape=np.reshape,
    cast=lambda values, dtype: np.asarray(values).astype(dtype),
    exp=np.exp,
    sqrt=np.sqrt,
    rint=np.rint,
    all_of=lambda rows: np.all(rows, axis=-1),
    argmax=np.argmax,
    kept=lambda values, mask: values[mask],
    exchanged=lambda values, indices: values[:, indices],
    checked=_checked,
    length=len,
    every=np.all,
)
