"""The companions of a shard: the offsets and lengths of its records, their labels and keys, as files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.schemas.errors import FormatError, Problem

IntArray: TypeAlias = npt.NDArray[np.int64]

# A frame is: length (8 bytes), masked crc32c of the length (4), data, masked crc32c of the data (4).
HEADER_BYTES, FOOTER_BYTES = 12, 4
FRAME_OVERHEAD = HEADER_BYTES + FOOTER_BYTES

# Bytes of the longest record: protobuf parses no larger message.
MAX_RECORD_BYTES = (1 << 31) - 1

# Bytes of the longest line: two numbers of at most 18 digits, a space and a newline.
MAX_LINE = 38


# eq=False, because comparing arrays does not return one truth value
@dataclass(frozen=True, eq=False)
class RecordIndex:
    """The frames of one shard, in order and without gaps, as their lengths in bytes (int64)."""

    lengths: npt.NDArray[np.int64]

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Offset in bytes at which each frame starts, shape ``(num_examples,)`` int64."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def num_bytes(self) -> int:
        """Size of the shard in bytes, uncompressed."""
        return int(self.lengths.sum())

    def to_text(self) -> str:
        """Return the text of the index file."""
        rows = zip(self.offsets.tolist(), self.lengths.tolist(), strict=True)
        return "".join(f"{offset} {length}\n" for offset, length in rows)


def companion_path(shard_path: str, suffix: str) -> str:
    """Return the path of a companion of a shard, relative to the dataset: in ``index`` next to the shard.

    The suffix is ``idx``, ``labels`` or ``keys``. They have their own folder so that the pattern
    ``*.tfrecord-*`` matches only shards.
    """
    path = PurePosixPath(shard_path)
    return str(path.parent / "index" / f"{path.name}.{suffix}")


def parse_index(data: bytes, subject: str) -> RecordIndex:
    """Parse an index file, whose digest is right, or raise FormatError; ``subject`` starts its message."""
    # of anything else, NumPy would not read all
    is_numbers = not data.translate(None, b"0123456789 \n")
    numbers = np.fromstring(data, np.int64, sep=" ") if is_numbers else np.empty(0, np.int64)
    if not is_numbers or len(numbers) != 2 * data.count(b"\n"):
        raise FormatError(subject, [Problem(subject, "is not two integers and a newline for each record")])
    rows = numbers.reshape(-1, 2)
    # before anything is added or allocated: compressed, such a record may be small
    too_long = rows[:, 1] > MAX_RECORD_BYTES + FRAME_OVERHEAD
    index = RecordIndex(np.where(too_long, 0, rows[:, 1]))
    wrong = np.flatnonzero((rows[:, 0] != index.offsets) | (rows[:, 1] < FRAME_OVERHEAD) | too_long)
    for line in wrong[:1].tolist():
        offset, length = rows[line].tolist()
        fault = (
            f"is {offset} {length}, but the record starts at {index.offsets[line]} and has at least 16 bytes"
        )
        if too_long[line]:
            fault = f"states {length - FRAME_OVERHEAD} bytes of data, more than a record can have"
        raise FormatError(subject, [Problem(f"line {line + 1}", fault)])
    return index


_DTYPE = np.dtype("<i8")

# Separates keys; no key contains it.
NUL = b"\0"


def labels_bytes(labels: Sequence[int] | npt.NDArray[np.int64]) -> bytes:
    """Return the content of a file that holds ``labels``."""
    return np.asarray(labels, dtype=_DTYPE).tobytes()


def parse_labels(data: bytes, num_examples: int, place: str) -> npt.NDArray[np.int64]:
    """Return the labels in ``data``, a read-only int64 array; ``place`` is the path of the file."""
    wanted = labels_size(num_examples)
    if len(data) != wanted:
        found = f"has {len(data)} bytes; the labels of {num_examples} records have {wanted}"
        raise FormatError(place, [Problem(place, found)])
    return np.frombuffer(data, dtype=_DTYPE).astype(np.int64, copy=False)


def labels_size(num_examples: int) -> int:
    """Return the size in bytes of a file of labels."""
    return num_examples * _DTYPE.itemsize


def keys_bytes(keys: Sequence[bytes]) -> bytes:
    """Return the content of a file that holds ``keys``, or raise ValueError if one of them contains NUL."""
    joined = NUL.join(keys)
    if joined.count(NUL) != max(0, len(keys) - 1):
        raise ValueError(f"the key {next(key for key in keys if NUL in key)!r} contains NUL")
    return joined


def holds_any(data: bytes, keys: Collection[bytes]) -> bool:
    """Return whether ``data`` has one of a few keys, which takes a tenth of the time of parsing it."""
    return any(
        data == key or data.startswith(key + NUL) or data.endswith(NUL + key) or NUL + key + NUL in data
        for key in keys
    )


def parse_keys(data: bytes, num_examples: int, place: str) -> list[bytes]:
    """Return the keys in ``data``, in the order of the records; ``place`` is the path of the file."""
    # one record may have an empty key
    num_keys = data.count(NUL) + 1 if data or num_examples else 0
    if num_keys != num_examples:
        raise FormatError(place, [Problem(place, f"has {num_keys} keys; there are {num_examples} records")])
    return data.split(NUL) if num_examples else []
