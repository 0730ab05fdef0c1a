"""Find the unreadable records of a split, and open its shards after checking them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tfshards.loader.integrity.files import Inspected, frame_faults, inspect_shards
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.order.source import OpenSplit
from tfshards.loader.records.shards import Shards, shards_of
from tfshards.loader.stored.frames import REMEDY
from tfshards.schemas import FormatError, InputError, OptionsError, Problem, Shard, Split
from tfshards.schemas.compression import Compression
from tfshards.schemas.index import RecordIndex
from tfshards.schemas.storage import RemotePath

_LISTED = 3


def find_damage(
    root: Path, split: Split, inspected: Sequence[Inspected], compression: Compression
) -> list[npt.NDArray[np.bool_]]:
    """Return, for each shard, a mask of the records that cannot be read.

    An index that breaks the format, or sound records that do not match the manifest, are a FormatError.
    """

    def scan(shard: Shard, seen: Inspected) -> tuple[npt.NDArray[np.bool_], str | None]:
        bad = np.zeros(len(seen.index.lengths), bool)
        try:
            wrong, digest = frame_faults(root / shard.path, seen.index, compression)
        except OSError:
            return ~bad, None
        bad[wrong] = True
        if len(wrong) and compression != "none":
            # nothing after the first damage can be reached
            bad[wrong[0] :] = True
        if len(wrong) or digest == shard.examples_digest:
            return bad, None
        return bad, (
            "its records differ from the manifest: the digest of their headers is "
            f"{digest} instead of {shard.examples_digest}"
        )

    problems = [problem for seen in inspected for problem in seen.index_problems]
    if problems:
        raise FormatError(f"{root}: the indexes of the shards ({REMEDY})", problems)
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        found = list(threads.map(scan, split.shards, inspected))
    pairs = zip(split.shards, found, strict=True)
    foreign = [Problem(shard.path, fault) for shard, (_, fault) in pairs if fault is not None]
    if foreign:
        raise FormatError(f"{root}: the records of the shards ({REMEDY})", foreign)
    return [bad for bad, _ in found]


def warn_of_damage(root: Path, name: str, split: Split, damage: Sequence[npt.NDArray[np.bool_]]) -> None:
    """Warn about the records that are excluded, if there are any."""
    number = sum(int(bad.sum()) for bad in damage)
    if not number:
        return
    if number == split.num_examples:
        raise InputError("all-damaged", root=root, number=number, name=name, remedy=REMEDY)
    damaged = (
        f"{shard.path} record {record}"
        for shard, bad in zip(split.shards, damage, strict=True)
        for record in np.flatnonzero(bad)
    )
    listed = ", ".join(record for record, _ in zip(damaged, range(_LISTED), strict=False))
    more = f" and {number - _LISTED} more" if number > _LISTED else ""
    are, get = ("is", "gets") if number == 1 else ("are", "get")
    warnings.warn(
        f"{root}: {number} of the {split.num_examples} records of split {name!r} {are} damaged and {get} "
        f"weight 0: {listed}{more}; {REMEDY}",
        # the line that called load()
        stacklevel=7,
    )


def open_shards(source: OpenSplit, options: LoadOptions) -> Shards:
    """Return the shards of the split after the checks of their files."""
    return open_indexed(source, options)[0]


def open_indexed(source: OpenSplit, options: LoadOptions) -> tuple[Shards, list[RecordIndex]]:
    """Return the shards of the split after the checks of their files, and their indexes."""
    if isinstance(source.root, RemotePath) and options.on_damage == "skip":
        raise OptionsError("reads-all", root=source.root)
    root, split, compression = source.root, source.split, source.manifest.compression
    inspected = inspect_shards(root, split)
    indexes = [seen.index for seen in inspected]
    if options.on_damage == "skip":
        # not in an object store, see fetching/open.py
        assert isinstance(root, Path)
        damage = find_damage(root, split, inspected, compression)
        warn_of_damage(root, source.name, split, damage)
        return shards_of(root, split, indexes, compression, damage), indexes
    problems = [problem for seen in inspected for problem in (*seen.file_problems, *seen.index_problems)]
    if problems:
        raise FormatError(f"{root}: the shards of split {source.name!r} ({REMEDY})", problems)
    versions = [seen.version for seen in inspected] if isinstance(root, RemotePath) else ()
    return shards_of(root, split, indexes, compression, versions=versions), indexes
