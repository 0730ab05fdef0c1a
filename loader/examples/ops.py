"""The operations of crops, boxes and draws that NumPy and TensorFlow have under different names.

What has the same notation in both, such as ``+``, ``//`` and ``[...]``, is written as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tfshards.schemas.digests import LAST_SHIFT, ROUNDS, STEP

# An array of NumPy or a tensor, whose type is not known where TensorFlow is not imported.
Array: TypeAlias = Any


class Ops(NamedTuple):
    """Operations on arrays of one library; ``NUMPY``, or ``GRAPH`` of loader/tensors/ops.py.

    Attributes:
        shifted: a uint64 array, shifted to the right by this number of bits.
        arange: int64 from 0.
        concat: along the first axis.
        unstack: along the first axis.
        rint: floats rounded to integers, halves to even ones.
        all_of: whether all elements of each row are true.
        argmax: the index of the first true element.
        kept: the rows that a mask has.
        exchanged: the elements along the second axis with these indices.
        checked: the values, or an error with this text unless the condition is true.
        length: the number of rows.
    """

    shifted: Callable[[Array, int], Array]
    arange: Callable[[Array], Array]
    minimum: Callable[[Array, Array], Array]
    maximum: Callable[[Array, Array], Array]
    where: Callable[[Array, Array, Array], Array]
    concat: Callable[[Sequence[Array]], Array]
    unstack: Callable[[Array], Sequence[Array]]
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


def random_bits(ops: Ops, seed: int, use: int, *words: Array) -> Array:
    """Return 63 random bits (int64, not negative) for each combination of the broadcast ``words`` (int64).

    They are those of ``random_bits`` in loader/order/epoch.py. Each word is added to the state, and the state
    is mixed by the finalizer of SplitMix64 (Steele, Lea and Flood, doi:10.1145/2660193.2660195), after
    Vigna's public-domain ``splitmix64.c``.
    """
    # the seed and the use are mixed once, not in the graph
    state = _mixed(NUMPY, np.array([seed % 2**64], np.uint64), np.int64(use))
    for word in words:
        state = _mixed(ops, state, word)
    return ops.cast(ops.shifted(state, 1), "int64")


def _mixed(ops: Ops, state: Array, word: Array) -> Array:
    # arrays wrap around, as they should, but NumPy warns about scalars
    with np.errstate(over="ignore"):
        state = state + ops.cast(word, "uint64") + np.uint64(STEP)
        for shift, factor in ROUNDS:
            state = (state ^ ops.shifted(state, shift)) * np.uint64(factor)
        return state ^ ops.shifted(state, LAST_SHIFT)


def _checked(values: Array, condition: Array, message: str) -> Array:
    if not condition:
        raise ValueError(message)
    return values


NUMPY = Ops(
    shifted=lambda values, bits: values >> np.uint64(bits),
    arange=lambda stop: np.arange(stop, dtype=np.int64),
    minimum=np.minimum,
    maximum=np.maximum,
    where=np.where,
    concat=np.concatenate,
    unstack=tuple,
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
)
