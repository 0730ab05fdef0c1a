"""The checks of every ``load``: size, last bytes and index of each shard, compared with the manifest.

They read so little that they always run. The last bytes detect a shard of a different build.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from tfshards.schemas import FormatError, Problem, Shard, Split
from tfshards.schemas.digests import NUM_LAST_BYTES
from tfshards.schemas.index import RecordIndex, index_path, parse_index

# More than there are CPUs: the threads mostly wait for storage.
NUM_THREADS = 16
REMEDY = (
    "`tfshards verify` lists all faults, `tfshards verify --repair` rebuilds the files from their source; "
    "or restore them from a backup"
)


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
    index, problems = _read_index(root, shard)
    return Inspected(index, file_problems, tuple(problems))


def _file_problem(root: Path, shard: Shard) -> str | None:
    try:
        with (root / shard.path).open("rb", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - NUM_LAST_BYTES))
            last_bytes = file.read(NUM_LAST_BYTES).hex()
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


def _read_index(root: Path, shard: Shard) -> tuple[RecordIndex, list[Problem]]:
    path = index_path(shard.path)
    nothing = RecordIndex(np.zeros(0, np.int64))
    try:
        data = (root / path).read_bytes()
        index = parse_index(data.decode("ascii"), path)
    except OSError as error:
        return nothing, [Problem(path, f"cannot be read: {error.strerror}")]
    except UnicodeDecodeError:
        return nothing, [Problem(path, "is not ASCII text")]
    except FormatError as error:
        return nothing, [Problem(f"{path}: {problem.place}", problem.message) for problem in error.problems]
    found = f"{len(index.lengths)} records in {index.num_bytes} bytes"
    expected = f"{shard.num_examples} records in {shard.record_bytes} bytes"
    if found != expected:
        return nothing, [Problem(path, f"describes {found}, but the manifest lists {expected} for its shard")]
    if f"sha256:{sha256(data).hexdigest()}" != shard.index_digest:
        return nothing, [Problem(path, "its digest differs from the manifest")]
    return index, []
