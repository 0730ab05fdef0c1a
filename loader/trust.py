"""What the loader looks at before it lets TensorFlow see a shard: little, so that it is always looked at.

Of each shard the size and the last bytes, which no two builds share, and its index, all against the manifest.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from tfshards.schemas import FormatError, Problem, RecordIndex, Shard, Split, index_path, parse_index
from tfshards.schemas.digests import NUM_LAST_BYTES

# Most of a look is waiting for the disk, or for a store far away.
NUM_THREADS = 16
REMEDY = "`tfshards verify` tells all faults; restore the files or rebuild the dataset"


@dataclass(frozen=True)
class Inspected:
    """What was found of one shard.

    Attributes:
        index: of its records; empty if there is a problem with it.
        file_problems: of the shard itself.
        index_problems: of its index.
    """

    index: RecordIndex
    file_problems: tuple[Problem, ...] = ()
    index_problems: tuple[Problem, ...] = ()


def inspect_shards(root: Path, split: Split) -> list[Inspected]:
    """Return what there is to say of each shard of ``split`` in the dataset directory ``root``."""
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
        return f"has {size} bytes, the manifest says {shard.num_bytes}"
    if last_bytes != shard.last_bytes:
        return f"ends with the bytes {last_bytes}, the manifest says {shard.last_bytes}: it is another file"
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
        return nothing, [Problem(path, f"describes {found}, the manifest says {expected} for its shard")]
    if f"sha256:{sha256(data).hexdigest()}" != shard.index_digest:
        return nothing, [Problem(path, "is not the index of the manifest: its digest does not hold")]
    return index, []
