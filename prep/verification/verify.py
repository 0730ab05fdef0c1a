"""Verify a dataset against its manifest; every fault is reported, not only the first."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import NamedTuple

import numpy as np

from tfshards.prep.engines.table import Tick, in_threads
from tfshards.prep.imaging.options import DEFAULT_MAX_PIXELS
from tfshards.prep.planning.plan import label_counts
from tfshards.prep.progress.lines import Meter
from tfshards.prep.progress.threads import num_jobs
from tfshards.prep.records.dataset_files import digest_problems
from tfshards.prep.verification.checks import Decode, companions, record_problems, shard_problems
from tfshards.prep.verification.repair import copy_digest, folders_of, repaired
from tfshards.prep.verification.report import VerificationReport
from tfshards.prep.writing.build_folder import is_owned
from tfshards.schemas import Manifest, OptionsError, Problem, Shard, read_manifest
from tfshards.schemas.errors import check_flags, listed
from tfshards.schemas.index import IntArray
from tfshards.schemas.keys import KeyHashes, hash_array, hash_key
from tfshards.schemas.names import RECORD_NAME
from tfshards.schemas.split import rows_by_shard
from tfshards.schemas.storage import AnyPath, any_path

_SHOWN = 5
_MAX_PIXELS = re.compile(r'"max_pixels": ([0-9]+)')


def verify(
    dataset: str | os.PathLike[str], *, deep: bool = False, decode: bool = False, repair: bool = False
) -> VerificationReport:
    """Compare sizes and digests of all files of a dataset with its manifest.

    These are shards, indexes, labels, keys, rejects and views, and the manifest with its own digest. The
    report holds every problem; it is true if the dataset is sound.

    Args:
        dataset: folder of the dataset, or its URL.
        deep: also read every record, and check its checksums, its features against the schema, its label and
            key against the files of labels and keys, and that no key is repeated.
        decode: also decode every image, and compare it with the schema; implies deep.
        repair: rebuild damaged indexes, labels, keys and views, which follow from sound shards and the
            manifest, and report the command that writes damaged shards again.

    Returns:
        A VerificationReport, whose text has a line for each problem.

    Raises:
        OptionsError: ``repair`` is combined with ``deep`` or ``decode``.
        InputError: ``dataset`` is not a dataset; or, with ``repair``, another process is writing to it.
        FormatError: the manifest is damaged: `tfshards restore` or a build with `--overwrite` replaces it.
        ModuleNotFoundError: ``decode`` needs Pillow, which is not installed.
    """
    check_flags(deep=deep, decode=decode, repair=repair)
    if repair and (deep or decode):
        name = "decode" if decode else "deep"
        raise OptionsError(
            f"repair=True compares digests, and cannot be combined with {name}=True; repair first, then "
            f"verify again with {name}=True"
        )
    folder, name = any_path(dataset), os.fspath(dataset)
    if repair:
        read_manifest(folder)
        with folder.locked():
            manifest = read_manifest(folder)
            return repaired(name, folder, manifest, _problems(folder, manifest))
    manifest = read_manifest(folder)
    with ThreadPoolExecutor(num_jobs()) as threads:
        start = _decode_by(threads, manifest) if decode else None
        return VerificationReport(name, _problems(folder, manifest, start, is_deep=deep or decode))


def _decode_by(threads: ThreadPoolExecutor, manifest: Manifest) -> Decode:
    # before anything is read, and not by many threads at once
    decoded_fault = import_module("tfshards.prep.imaging.stored").decoded_fault
    # in the options of the dataset, and of those that it was derived from
    limits = _MAX_PIXELS.findall(json.dumps(dict(manifest.options)))
    most = max(map(int, limits), default=DEFAULT_MAX_PIXELS)
    return partial(threads.submit, partial(decoded_fault, max_pixels=most))


class _Listed(NamedTuple):
    """What the files of keys and labels list of a shard whose records are sound."""

    keys: KeyHashes = hash_array([])
    labels: IntArray | None = None


def _problems(
    folder: AnyPath, manifest: Manifest, decode: Decode | None = None, *, is_deep: bool = False
) -> tuple[Problem, ...]:
    """Return every problem of a dataset."""
    num_bytes = sum(split.num_bytes for split in manifest.splits.values()) * (2 if is_deep else 1)

    def look(shard: Shard, tick: Tick) -> tuple[list[Problem], _Listed]:
        of_file, found = shard_problems(folder, shard, tick), companions(folder, shard)
        of_records: list[Problem] = []
        if is_deep and (folder / shard.path).is_file():
            of_records = record_problems(folder, shard, manifest, found, decode, tick)
            if of_file and not of_records:
                how = "" if manifest.compression == "none" else ", or compressed differently"
                message = f"its records are those that were written, but in a different order{how}"
                of_records.append(Problem(shard.path, message))
        problems = of_file + of_records + found.problems
        if of_records or not is_deep:
            return problems, _Listed()
        return problems, _Listed(hash_array(map(hash_key, found.keys or ())), found.labels)

    with Meter("verify", num_bytes) as meter:
        found = in_threads(look, manifest.shards, meter.add)
    problems = [problem for of_shard, _ in found for problem in of_shard]
    problems += digest_problems(folder, {**manifest.other_digests, **copy_digest(folder, manifest)})
    problems += [
        Problem(f"{build.name}/{RECORD_NAME}", "does not show that tfshards made its folder")
        for build in folders_of(folder, manifest)
        if not is_owned(build.root)
    ]
    by_shard = {shard: each for shard, (_, each) in zip(manifest.shards, found, strict=True)}
    held = {shard: each.keys for shard, each in by_shard.items() if len(each.keys)}
    problems += _repeated_keys(folder, held)
    problems += _other_labels(manifest, {shard: each.labels for shard, each in by_shard.items()})
    return tuple(problems)


def _repeated_keys(folder: AnyPath, hashes: Mapping[Shard, KeyHashes]) -> Iterator[Problem]:
    """Yield a problem for each record whose key an earlier record has, according to the files of keys."""
    keys, shards = np.concatenate([hash_array([]), *hashes.values()]), [*hashes]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    original = first[inverse]
    repeats = np.flatnonzero(original != np.arange(len(keys)))
    for _, shard, rows, records in rows_by_shard(shards, repeats):
        found = companions(folder, shard)
        for row, record in zip(rows.tolist(), records.tolist(), strict=True):
            ((_, earlier, _, (number,)),) = rows_by_shard(shards, original[repeats[[row]]])
            offset = int(found.index.offsets[record]) if found.index else 0
            yield found.problem(shard, record, offset, f"has the key of record {number} of {earlier.path}")


def _other_labels(manifest: Manifest, labels: Mapping[Shard, IntArray | None]) -> Iterator[Problem]:
    """Yield a problem for each split whose label counts differ from its files of labels."""
    for name, split in manifest.splits.items():
        of_shards = [labels[shard] for shard in split.shards]
        known = [each for each in of_shards if each is not None]
        # damaged records and files of labels are reported with their shards
        if not split.label_counts or len(known) < len(of_shards):
            continue
        counts = label_counts(np.concatenate([np.zeros(0, np.int64), *known]), manifest.schema)
        wrong = [
            f"{label!r} occurs {counts.get(label, 0)} times, not {split.label_counts.get(label, 0)}"
            for label in sorted({*counts, *split.label_counts})
            if counts.get(label, 0) != split.label_counts.get(label, 0)
        ]
        if wrong:
            yield Problem(f"splits.{name}.label_counts", f"differ from the records: {listed(wrong, _SHOWN)}")
