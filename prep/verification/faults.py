"""Compare a dataset with its manifest; every fault is reported, not only the first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import NamedTuple

import numpy as np

from tfshards.prep.planning.plan import label_counts
from tfshards.prep.progress.lines import Meter
from tfshards.prep.progress.threads import Tick, in_threads, num_jobs
from tfshards.prep.records.dataset_files import digest_problems
from tfshards.prep.verification.checks import companions, record_problems, shard_problems
from tfshards.prep.verification.report import VerificationReport
from tfshards.prep.writing.build_folder import BuildFolder, is_owned
from tfshards.schemas import Manifest, Problem, Shard, read_manifest
from tfshards.schemas.errors import listed
from tfshards.schemas.index import IntArray
from tfshards.schemas.keys import KeyHashes, hash_array, hash_key
from tfshards.schemas.names import MANIFEST_NAME, RECORD_NAME
from tfshards.schemas.split import rows_by_shard
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.verbs import file_digest

_SHOWN = 5


class _Listed(NamedTuple):
    """What the files of keys and labels list of a shard whose records are sound."""

    keys: KeyHashes = hash_array([])
    labels: IntArray | None = None


def find_faults(
    dataset: str | os.PathLike[str], *, deep: bool = False, decode: bool = False
) -> VerificationReport:
    """Return a report of every problem; see ``verify``, which describes the arguments and errors."""
    if decode:
        # before anything is read, and not by many threads at once
        import_module("tfshards.prep.imaging.stored")
    manifest, folder = read_manifest(dataset), any_path(dataset)
    is_deep = deep or decode
    num_bytes = sum(split.num_bytes for split in manifest.splits.values()) * (2 if is_deep else 1)

    def look(shard: Shard, tick: Tick) -> tuple[list[Problem], _Listed]:
        of_file, found = shard_problems(folder, shard, tick), companions(folder, shard)
        of_records: list[Problem] = []
        if is_deep and (folder / shard.path).is_file():
            pool = decoders if decode else None
            of_records = record_problems(folder, shard, manifest, found, pool, tick)
            if of_file and not of_records:
                how = "" if manifest.compression == "none" else ", or compressed differently"
                message = f"its records are those that were written, but in a different order{how}"
                of_records.append(Problem(shard.path, message))
        problems = of_file + of_records + found.problems
        if of_records or not is_deep:
            return problems, _Listed()
        return problems, _Listed(hash_array(map(hash_key, found.keys or ())), found.labels)

    with Meter("verify", num_bytes) as meter, ThreadPoolExecutor(num_jobs()) as decoders:
        found = in_threads(look, manifest.shards, meter.add)
    problems = [problem for of_shard, _ in found for problem in of_shard]
    problems += digest_problems(folder, {**manifest.other_digests, **copy_digest(folder, manifest)})
    problems += [
        Problem(f"{build.name}/{RECORD_NAME}", "does not show that tfshards made its folder")
        for build in folders_of(folder, manifest)
        if not is_owned(build.root)
    ]
    by_shard = {shard: each for shard, (_, each) in zip(manifest.shards, found, strict=True)}
    problems += _repeated_keys(
        folder, {shard: each.keys for shard, each in by_shard.items() if len(each.keys)}
    )
    problems += _other_labels(manifest, {shard: each.labels for shard, each in by_shard.items()})
    return VerificationReport(os.fspath(dataset), tuple(problems))


def folders_of(folder: AnyPath, manifest: Manifest) -> list[BuildFolder]:
    """Return the folders of the builds whose files belong to a dataset; none of an adopted one."""
    paths = manifest.data_paths if manifest.folder else ()
    return [BuildFolder(folder, name) for name in sorted({path.partition("/")[0] for path in paths})]


def copy_digest(folder: AnyPath, manifest: Manifest) -> dict[str, str]:
    """Return the digest of the manifest in the folder of the build, by path; an adopted dataset has none."""
    if not manifest.folder:
        return {}
    return {f"{manifest.folder}/{MANIFEST_NAME}": file_digest(folder / MANIFEST_NAME)}


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
