"""The labels of a shard in a file of their own, so that classes can be selected without reading records.

The file holds one little-endian int64 per record, in the order of the records. A shard has such a file if the
schema has a scalar feature of kind ``label`` (``Schema.label``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt

from tfshards.schemas.errors import FormatError, Problem

_DTYPE = np.dtype("<i8")


def labels_path(shard_path: str) -> str:
    """Return the path of a shard's labels, relative to the dataset: in ``index``, as for the index."""
    path = PurePosixPath(shard_path)
    return str(path.parent / "index" / f"{path.name}.labels")


def labels_bytes(labels: Sequence[int] | npt.NDArray[np.int64]) -> bytes:
    """Return the content of a file that holds ``labels``."""
    return np.asarray(labels, dtype=_DTYPE).tobytes()


def parse_labels(data: bytes, num_examples: int, place: str) -> npt.NDArray[np.int64]:
    """Return the labels in ``data``: a read-only array of shape ``(num_examples,)`` int64.

    Args:
        data: content of the file.
        num_examples: number of records of the shard.
        place: path of the file, for error messages.

    Raises:
        FormatError: the number of labels differs from the number of records.
    """
    fault = labels_size_fault(len(data), num_examples)
    if fault:
        raise FormatError(place, [Problem(place, fault)])
    return np.frombuffer(data, dtype=_DTYPE).astype(np.int64, copy=False)


def labels_size(num_examples: int) -> int:
    """Return the size in bytes of a file of labels."""
    return num_examples * _DTYPE.itemsize


def labels_size_fault(num_bytes: int, num_examples: int) -> str | None:
    """Return what is wrong with the size of a file of labels, or None."""
    wanted = labels_size(num_examples)
    found = f"has {num_bytes} bytes; the labels of {num_examples} records have {wanted}"
    return found if num_bytes != wanted else None
