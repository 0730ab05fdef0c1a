"""The checks of every ``load``: size, last bytes and index of each shard, compared with the manifest.

They read so little that they always run. The last bytes detect a shard of a different build.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfshards.schemas import Problem, Shard, Split
from tfshards.schemas.companions import read_index
from tfshards.schemas.files import last_bytes_of, regular_size
from tfshards.schemas.index import RecordIndex

# More than there are CPUs: the threads mostly wait for storage.
NUM_THREADS = 16
REMEDY = (
    "`tfshards verify DATASET` lists all faults, `tfshards verify DATASET --repair SOURCE` rebuilds the "
    "files from their source; or restore them from a backup"
)
_NO_RECORDS = RecordIndex(np.zeros(0, np.int64))


@dataclass(frozen=True)
class Inspected:
    """The result of checking one shard.

    Attributes:
        index: the index of its records; empty if the index has a problem.
        file_problems: the problems of the shard's file.
        index_problems: the problems of its index.
    """

    index: RecordIndex
    file_problems: tuple[Problem, ...] = ()
    index_problems: tuple[Problem, ...] = ()


def inspect_shards(root: Path, split: Split) -> list[Inspected]:
    """Check each shard of ``split`` in the dataset directory ``root``."""
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        return list(threads.map(lambda shard: _inspect(root, shard), split.shards))


def _inspect(root: Path, shard: Shard) -> Inspected:
    problem = _file_problem(root, shard)
    file_problems = () if problem is None else (Problem(shard.path, problem),)
    index, problems = read_index(root, shard)
    return Inspected(_NO_RECORDS if index is None else index, file_problems, tuple(problems))


def _file_problem(root: Path, shard: Shard) -> str | None:
    try:
        size, last_bytes = regular_size(root / shard.path), last_bytes_of(root / shard.path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if size != shard.num_bytes:
        return f"has {size} bytes instead of the {shard.num_bytes} in the manifest"
    if last_bytes != shard.last_bytes:
        return (
            f"ends with the bytes {last_bytes} instead of {shard.last_bytes} as in the manifest: it is a "
            "different file"
        )
    return None
