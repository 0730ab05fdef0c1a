"""The labels of a shard, beside its index: classes can be chosen by them without a look at its records.

The file is nothing but int64, little-endian, one a record in their order. A shard has one if the schema has a
scalar feature of kind ``label`` (``Schema.label``), whose values these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt

from tfshards.schemas.errors import FormatError, Problem

_DTYPE = np.dtype("<i8")


def labels_path(shard_path: str) -> str:
    """Return the path of a shard's labels, relative to the dataset: beside its index, in ``index/``."""
    path = PurePosixPath(shard_path)
    return str(path.parent / "index" / f"{path.name}.labels")


def labels_bytes(labels: Sequence[int] | npt.NDArray[np.int64]) -> bytes:
    """Return the content of the file that holds ``labels``, in their order."""
    return np.asarray(labels, dtype=_DTYPE).tobytes()


def parse_labels(data: bytes, num_examples: int, place: str) -> npt.NDArray[np.int64]:
    """Return the labels in ``data``, shape ``(num_examples,)`` int64; they cannot be written to.

    Args:
        data: the content of the file.
        num_examples: the number of records of its shard.
        place: of the file, for errors.

    Raises:
        FormatError: there are not as many labels as records.
    """
    fault = labels_size_fault(len(data), num_examples)
    if fault:
        raise FormatError(place, [Problem(place, fault)])
    return np.frombuffer(data, dtype=_DTYPE).astype(np.int64, copy=False)


def labels_size_fault(num_bytes: int, num_examples: int) -> str | None:
    """Return what is wrong with a file of labels of this size, or None; so that it need not be read."""
    wanted = num_examples * _DTYPE.itemsize
    found = f"has {num_bytes} bytes; the labels of {num_examples} records have {wanted}"
    return found if num_bytes != wanted else None
