"""The operations of crops and boxes that NumPy and TensorFlow have under different names.

What has the same notation in both, such as ``+``, ``//`` and ``[...]``, is written as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

# An array of NumPy or a tensor, whose type is not known where TensorFlow is not imported.
Array: TypeAlias = Any


class Ops(NamedTuple):
    """Operations on arrays of one library; ``NUMPY``, or ``GRAPH`` of loader/tensors/decode.py.

    Attributes:
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

    arange: Callable[[Array], Array]
    minimum: Callable[[Array, Array], Array]
    maximum: Callable[[Array, Array], Array]
    where: Callable[[Array, Array, Array], Array]
    concat: Callable[[Sequence[Array]], Array]
    unstack: Callable[[Array], Sequence[Array]]
    stack: Callable[[Sequence[Array], int], Array]
    reshape: Callable[[Array, Sequence[int]], Array]
    cast: Callable[[Array, str], Array]
    sqrt: Callable[[Array], Array]
    rint: Callable[[Array], Array]
    all_of: Callable[[Array], Array]
    argmax: Callable[[Array], Array]
    kept: Callable[[Array, Array], Array]
    exchanged: Callable[[Array, Array], Array]
    checked: Callable[[Array, Array, str], Array]
    length: Callable[[Array], Array]


def _checked(values: Array, condition: Array, message: str) -> Array:
    if not condition:
        raise ValueError(message)
    return values


NUMPY = Ops(
    arange=lambda stop: np.arange(stop, dtype=np.int64),
    minimum=np.minimum,
    maximum=np.maximum,
    where=np.where,
    concat=np.concatenate,
    unstack=tuple,
    stack=lambda arrays, axis: np.stack(arrays, axis),
    reshape=np.reshape,
    cast=lambda values, dtype: np.asarray(values).astype(dtype),
    sqrt=np.sqrt,
    rint=np.rint,
    all_of=lambda rows: np.all(rows, axis=-1),
    argmax=np.argmax,
    kept=lambda values, mask: values[mask],
    exchanged=lambda values, indices: values[:, indices],
    checked=_checked,
    length=len,
)
