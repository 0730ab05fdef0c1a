"""The record index of a shard: where each record starts and how long it is.

The text form, one line ``offset length`` a record with the length of the whole frame (data and 16 bytes
around it), is the one that NVIDIA DALI's ``tfrecord2idx`` writes and that DALI and the PyTorch readers of
TFRecord files take.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt

from tfshards.schemas.errors import FormatError, Problem

# A frame is: length (8 bytes), masked crc32c of the length (4), data, masked crc32c of the data (4).
FRAME_OVERHEAD = 16

# 18 digits: every such number fits int64
_LINES = re.compile(r"(?:[0-9]{1,18} [0-9]{1,18}\n)*")


# eq=False: NumPy compares arrays element by element, which is no answer here
@dataclass(frozen=True, eq=False)
class RecordIndex:
    """The frames of one shard, in order and without gaps.

    Attributes:
        lengths: shape ``(num_examples,)`` int64, bytes of each frame.
    """

    lengths: npt.NDArray[np.int64]

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Shape ``(num_examples,)`` int64: the byte at which each frame starts."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def num_bytes(self) -> int:
        """The size of the shard."""
        return int(self.lengths.sum())

    def to_text(self) -> str:
        """Return the index file's text."""
        rows = zip(self.offsets.tolist(), self.lengths.tolist(), strict=True)
        return "".join(f"{offset} {length}\n" for offset, length in rows)


def index_path(shard_path: str) -> str:
    """Return the path of a shard's index, relative to the dataset: in ``index/`` beside the shard.

    It stands apart so that the pattern ``*.tfrecord-*`` matches shards only.
    """
    path = PurePosixPath(shard_path)
    return str(path.parent / "index" / f"{path.name}.idx")


def parse_index(text: str, subject: str) -> RecordIndex:
    """Return the index in ``text``.

    Raises:
        FormatError: a line is not two integers, or the frames leave gaps, overlap or are too short; the
            message starts with ``subject``.
    """
    match = _LINES.match(text)
    sound = match.end() if match else 0
    if sound < len(text):
        line, found = text.count("\n", 0, sound) + 1, text[sound:].split("\n", 1)[0][:40]
        raise FormatError(
            subject, [Problem(f"line {line}", f"is {found!r}, must be two integers and a newline")]
        )
    rows = np.fromstring(text, dtype=np.int64, sep=" ").reshape(-1, 2)
    index = RecordIndex(rows[:, 1].copy())
    wrong = np.flatnonzero((rows[:, 0] != index.offsets) | (rows[:, 1] < FRAME_OVERHEAD))
    if len(wrong):
        line = int(wrong[0])
        message = f"is {rows[line, 0]} {rows[line, 1]}, but the record starts at {index.offsets[line]}"
        raise FormatError(subject, [Problem(f"line {line + 1}", f"{message} and has 16 bytes or more")])
    return index
