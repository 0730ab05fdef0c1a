"""Verify a dataset against its manifest; every fault is reported, not only the first."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import numpy as np

from tfshards.prep.progress.lines import Meter
from tfshards.prep.progress.threads import Tick, in_threads, num_jobs
from tfshards.prep.verification.checks import (
    NO_RECORDS,
    Records,
    check_records,
    companions,
    digest_problems,
    locate_records,
)
from tfshards.prep.verification.report import RecordProblem, VerificationReport
from tfshards.schemas import Manifest, Problem, Shard, read_manifest
from tfshards.schemas.errors import listed
from tfshards.schemas.manifest_file import digest_problems as digest_problems_of
from tfshards.schemas.storage import AnyPath, any_path

_SHOWN = 5


def verify(
    dataset: str | os.PathLike[str], *, deep: bool = False, decode: bool = False
) -> VerificationReport:
    """Return a report of every problem of a dataset; it is true if the dataset is sound.

    The size and digest of every file (shards, indexes, labels, keys, rejects, views) are compared with the
    manifest, and the manifest with its own digest.

    Args:
        dataset: the dataset's folder, or its URL.
        deep: also read every record, and check its checksums, its features against the schema, its label and
            key, the lengths in the index, and label counts. Reading continues after damage.
        decode: also decode every image, and compare it with the schema; implies ``deep``.

    Raises:
        InputError: ``dataset`` is not a dataset.
        FormatError: the manifest cannot be read.
        ModuleNotFoundError: ``decode`` needs Pillow, which is not installed.
    """
    if decode:
        # before anything is read, and not by many threads at once
        import_module("tfshards.prep.imaging.stored")
    manifest, folder = read_manifest(dataset), any_path(dataset)
    is_deep = deep or decode
    num_bytes = sum(split.num_bytes for split in manifest.splits.values()) * (2 if is_deep else 1)

    def look(shard: Shard, tick: Tick) -> tuple[list[Problem], Records | None]:
        of_file, found = digest_problems(folder, shard, tick), companions(folder, shard)
        if not is_deep:
            return of_file + found.problems, None
        if not (folder / shard.path).is_file():
            return of_file + found.problems, NO_RECORDS
        records = check_records(folder, shard, manifest, found, decoders if decode else None, tick)
        reported = of_file + records.problems
        if of_file and not records.problems:
            how = "" if manifest.compression == "none" else ", or compressed differently"
            message = f"its records are those that were written, but in a different order{how}"
            reported.append(Problem(shard.path, message))
        return reported + found.problems, records

    with Meter("verify", num_bytes) as meter, ThreadPoolExecutor(num_jobs()) as decoders:
        found = in_threads(look, manifest.shards, meter.add)
    problems = [problem for shard, _ in found for problem in shard]
    problems += digest_problems_of(folder, manifest.other_digests)
    records = [record for _, record in found if record]
    if len(records) == len(manifest.shards):
        problems += _repeated_keys(folder, manifest, records)
        problems += _other_labels(manifest, records)
    return VerificationReport(os.fspath(dataset), tuple(problems))


def _repeated_keys(folder: AnyPath, manifest: Manifest, found: Sequence[Records]) -> Iterator[Problem]:
    """Yield a problem for each record whose key an earlier record has."""
    keys = np.concatenate([records.keys for records in found])
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    original = first[inverse]
    repeats = np.flatnonzero(original != np.arange(len(keys)))
    if not len(repeats):
        return
    shard_of = np.repeat(np.arange(len(found)), [len(records.keys) for records in found])
    numbers = np.concatenate([records.numbers for records in found])
    for position in np.unique(shard_of[repeats]).tolist():
        shard = manifest.shards[position]
        inside = repeats[shard_of[repeats] == position]
        earlier = dict(zip(numbers[inside].tolist(), original[inside].tolist(), strict=True))
        index = companions(folder, shard).index
        for number, offset, key in locate_records(folder, shard, manifest, index, set(earlier)):
            of = earlier[number]
            same = f"has the key of record {numbers[of]} of {manifest.shards[shard_of[of]].path}"
            message = f"record {number} at byte {offset}, key {key!r}: {same}"
            yield RecordProblem(shard.path, message, number, offset, key)


def _other_labels(manifest: Manifest, found: Sequence[Records]) -> Iterator[Problem]:
    """Yield a problem for each split whose label counts differ from those of its records."""
    by_path = dict(zip((shard.path for shard in manifest.shards), found, strict=True))
    names = manifest.schema.class_names
    for name, split in manifest.splits.items():
        labels = [by_path[shard.path].labels for shard in split.shards]
        if None in labels or not split.label_counts:
            # unreadable records are reported with their shards
            continue
        counted = sum(filter(None, labels), Counter[int]())
        seen = {
            names[label] if names and label >= 0 else str(label): count for label, count in counted.items()
        }
        wrong = [
            f"{label!r} occurs {seen.get(label, 0)} times, not {split.label_counts.get(label, 0)}"
            for label in sorted({*seen, *split.label_counts})
            if seen.get(label, 0) != split.label_counts.get(label, 0)
        ]
        if wrong:
            yield Problem(f"splits.{name}.label_counts", f"differ from the records: {listed(wrong, _SHOWN)}")
