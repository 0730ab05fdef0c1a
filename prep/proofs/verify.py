"""Proving that a dataset is what its manifest says: all faults are reported, not only the first."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from tfshards.prep.meter import Meter
from tfshards.prep.proofs.files import Tick, beside, file_problems, rejects_problems, shard_problems
from tfshards.prep.proofs.records import NO_RECORDS, RecordProblem, Records, look_at_records, places_of
from tfshards.prep.proofs.values import parse_record
from tfshards.schemas import Manifest, Problem, Shard, read_manifest

__all__ = ["RecordProblem", "parse_record", "shard_problems", "verify"]

T = TypeVar("T")

_SHOWN = 5


def verify(root: str | os.PathLike[str], *, deep: bool = False, decode: bool = False) -> list[Problem]:
    """Return all that is wrong with the dataset in ``root``; empty if it is sound.

    Compares the size and digest of every file with the manifest: shards, indexes, labels, the rejects file;
    and the manifest with its own digest. What is wrong with a record comes as a ``RecordProblem``.

    Args:
        root: the dataset's directory.
        deep: also read every record: checksums, features against the schema, labels, keys without
            repetition, the index's lengths, the labels beside the shards, the label counts. It goes on behind
            what is damaged.
        decode: also decode every image, and compare it with the schema; implies ``deep``.

    Raises:
        InputError: ``root`` is no dataset.
        FormatError: the manifest cannot be read; it says why.
    """
    manifest = read_manifest(root)
    folder = Path(root)
    is_deep = deep or decode
    num_bytes = sum(split.num_bytes for split in manifest.splits.values()) * (2 if is_deep else 1)
    with Meter("verify", num_bytes) as meter, ThreadPoolExecutor(_num_threads()) as decoders:
        look = _looking(folder, manifest, deep=is_deep, decoders=decoders if decode else None)
        found = _in_threads(look, manifest.shards, meter.add)
    problems = [problem for shard, _ in found for problem in shard]
    problems += rejects_problems(folder, manifest)
    records = [record for _, record in found if record]
    if len(records) == len(manifest.shards):
        problems += _repeated_keys(folder, manifest, records)
        problems += _other_labels(manifest, records)
    return problems


class _StopError(Exception):
    """Ends the threads when nobody waits for what they find."""


def _num_threads() -> int:
    return os.cpu_count() or 1


def _in_threads(look: Callable[[Shard, Tick], T], shards: Sequence[Shard], tick: Tick) -> list[T]:
    """Return what ``look`` finds of each shard; at an interrupt the threads end at their next tick."""
    stop = threading.Event()

    def tick_on(num_bytes: int) -> None:
        if stop.is_set():
            raise _StopError
        tick(num_bytes)

    with ThreadPoolExecutor(_num_threads()) as pool:
        try:
            return list(pool.map(lambda shard: look(shard, tick_on), shards))
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def _looking(
    folder: Path, manifest: Manifest, *, deep: bool, decoders: ThreadPoolExecutor | None
) -> Callable[[Shard, Tick], tuple[list[Problem], Records | None]]:
    def look(shard: Shard, tick: Tick) -> tuple[list[Problem], Records | None]:
        of_file, found = file_problems(folder, shard, tick), beside(folder, shard)
        if not deep:
            return of_file + found.problems, None
        if not (folder / shard.path).is_file():
            return of_file + found.problems, NO_RECORDS
        records = look_at_records(folder, shard, manifest, found, decoders, tick)
        told = of_file + records.problems
        if of_file and not records.problems:
            how = "" if manifest.compression == "none" else ", or compressed in another way"
            told.append(
                Problem(shard.path, f"its records are those that were written, in another order{how}")
            )
        return told + found.problems, records

    return look


def _repeated_keys(folder: Path, manifest: Manifest, found: Sequence[Records]) -> Iterator[Problem]:
    """Yield a problem for each record that has the key of one before it."""
    keys = np.concatenate([records.keys for records in found])
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    original = first[inverse]
    repeats = np.flatnonzero(original != np.arange(len(keys)))
    if not len(repeats):
        return
    shard_of = np.repeat(np.arange(len(found)), [len(records.keys) for records in found])
    numbers = np.concatenate([records.numbers for records in found])
    for place in np.unique(shard_of[repeats]).tolist():
        shard = manifest.shards[place]
        inside = repeats[shard_of[repeats] == place]
        earlier = dict(zip(numbers[inside].tolist(), original[inside].tolist(), strict=True))
        index = beside(folder, shard).index
        for number, offset, key in places_of(folder, shard, manifest, index, set(earlier)):
            of = earlier[number]
            same = f"has the key of record {numbers[of]} of {manifest.shards[shard_of[of]].path}"
            message = f"record {number} at byte {offset}, key {key!r}: {same}"
            yield RecordProblem(shard.path, message, number, offset, key)


def _other_labels(manifest: Manifest, found: Sequence[Records]) -> Iterator[Problem]:
    """Yield a problem for each split whose label counts are not those of its records."""
    by_path = dict(zip((shard.path for shard in manifest.shards), found, strict=True))
    names = manifest.schema.class_names
    for name, split in manifest.splits.items():
        labels = [by_path[shard.path].labels for shard in split.shards]
        if None in labels or not split.label_counts:
            # what cannot be read was told shard by shard
            continue
        counted = sum(filter(None, labels), Counter[int]())
        seen = {names[label] if names else str(label): count for label, count in counted.items()}
        wrong = [
            f"{label!r} {seen.get(label, 0)} times, not {split.label_counts.get(label, 0)}"
            for label in sorted({*seen, *split.label_counts})
            if seen.get(label, 0) != split.label_counts.get(label, 0)
        ]
        if wrong:
            more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
            message = f"are not what the shards hold: {', '.join(wrong[:_SHOWN])}{more}"
            yield Problem(f"splits.{name}.label_counts", message)
