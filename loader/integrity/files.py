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
from tfshards.schemas.digests import NUM_LAST_BYTES
from tfshards.schemas.files import size_and_last_bytes
from tfshards.schemas.index import RecordIndex
from tfshards.schemas.storage import AnyPath, RemotePath, read_range

# More than there are CPUs: the threads mostly wait for storage.
NUM_THREADS = 16
# Two of them ask for one shard at the same time, so that the checks of 32 shards take two round trips.
_NUM_REMOTE = 64
REMEDY = (
    "`tfshards verify DATASET` lists all faults, `tfshards verify DATASET --repair SOURCE` rebuilds the "
    "files from their source; or restore them from a backup"
)
REMOTE_REMEDY = (
    "`tfshards verify DATASET --deep` lists all faults; repair does not work in object stores: the command "
    "that built the dataset, with --overwrite, builds it again; or restore the files from a backup"
)
_NO_RECORDS = RecordIndex(np.zeros(0, np.int64))


def remedy(root: AnyPath) -> str:
    """Return what to do about the files of a dataset that are missing or damaged."""
    return REMEDY if isinstance(root, Path) else REMOTE_REMEDY


@dataclass(frozen=True)
class Inspected:
    """The result of checking one shard.

    Attributes:
        index: the index of its records; empty if the index has a problem.
        file_problems: the problems of the shard's file.
        index_problems: the problems of its index.
        version: the version of the shard's object, see ``version_of``; empty for a local file.
    """

    index: RecordIndex
    file_problems: tuple[Problem, ...] = ()
    index_problems: tuple[Problem, ...] = ()
    version: str = ""


def inspect_shards(root: AnyPath, split: Split) -> list[Inspected]:
    """Check each shard of ``split`` in the dataset directory ``root``."""
    if isinstance(root, RemotePath):
        return _inspect_remote(root, split)
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        return list(threads.map(lambda shard: _inspect(root, shard), split.shards))


def _inspect_remote(root: RemotePath, split: Split) -> list[Inspected]:
    with ThreadPoolExecutor(_NUM_REMOTE) as threads:
        files = threads.map(lambda shard: _remote_problem(root, shard), split.shards)
        indexes = threads.map(lambda shard: read_index(root, shard), split.shards)
        inspected = []
        for shard, (problem, version), (index, problems) in zip(split.shards, files, indexes, strict=True):
            file_problems = () if problem is None else (Problem(shard.path, problem),)
            index = _NO_RECORDS if index is None else index
            inspected.append(Inspected(index, file_problems, tuple(problems), version))
    return inspected


def _remote_problem(root: RemotePath, shard: Shard) -> tuple[str | None, str]:
    path = root / shard.path
    try:
        status = path.stat()
        size, version = status.st_size, status.e_tag
        last_bytes = read_range(path, max(0, size - NUM_LAST_BYTES), size, version).hex()
    except OSError as error:
        return f"cannot be read: {error.strerror}", ""
    return _difference(shard, size, last_bytes), version


def _inspect(root: AnyPath, shard: Shard) -> Inspected:
    problem = _file_problem(root, shard)
    file_problems = () if problem is None else (Problem(shard.path, problem),)
    index, problems = read_index(root, shard)
    return Inspected(_NO_RECORDS if index is None else index, file_problems, tuple(problems))


def _file_problem(root: AnyPath, shard: Shard) -> str | None:
    try:
        size, last_bytes = size_and_last_bytes(root / shard.path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return _difference(shard, size, last_bytes)


def _difference(shard: Shard, size: int, last_bytes: str) -> str | None:
    if size != shard.num_bytes:
        return f"has {size} bytes instead of the {shard.num_bytes} in the manifest"
    if last_bytes != shard.last_bytes:
        return (
            f"ends with the bytes {last_bytes} instead of {shard.last_bytes} as in the manifest: it is a "
            "different file"
        )
    return None
