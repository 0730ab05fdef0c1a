"""Verify a dataset against its manifest; every fault is reported, not only the first."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import NamedTuple

import numpy as np

from tfshards.prep.progress.lines import Meter
from tfshards.prep.progress.threads import Tick, in_threads, num_jobs
from tfshards.prep.sources.keys import to_text
from tfshards.prep.verification.checks import Companions, companions, record_problems, shard_problems
from tfshards.prep.verification.report import RecordProblem, VerificationReport
from tfshards.prep.writing.build_folder import BuildFolder, is_owned
from tfshards.schemas import Manifest, Problem, Shard, read_manifest
from tfshards.schemas.errors import listed
from tfshards.schemas.keys import KeyHashes, hash_array, hash_key
from tfshards.schemas.manifest_file import digest_problems
from tfshards.schemas.names import MANIFEST_NAME, RECORD_NAME
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.verbs import file_digest

_SHOWN = 5


class _Held(NamedTuple):
    """What the sound records of one shard hold, according to its files of keys and labels."""

    keys: KeyHashes = hash_array([])
    label_counts: Counter[int] | None = None

    @classmethod
    def of(cls, found: Companions) -> _Held:
        """Return what companions list; nothing of a file that is damaged."""
        keys = hash_array(map(hash_key, found.keys or ()))
        if found.labels is None:
            return cls(keys)
        labels, counts = np.unique(found.labels, return_counts=True)
        return cls(keys, Counter(dict(zip(labels.tolist(), counts.tolist(), strict=True))))


_NOTHING = _Held()


def verify(
    dataset: str | os.PathLike[str], *, deep: bool = False, decode: bool = False
) -> VerificationReport:
    """Return a report of every problem of a dataset; it is true if the dataset is sound.

    The size and digest of every file (shards, indexes, labels, keys, rejects, views) are compared with the
    manifest, and the manifest with its own digest.

    Args:
        dataset: the dataset's folder, or its URL.
        deep: also read every record, and check its checksums, its features against the schema, its length,
            label and key against the index and the files of labels and keys; and, over all shards whose
            records are sound, repeated keys and label counts. Reading continues after damage.
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

    def look(shard: Shard, tick: Tick) -> tuple[list[Problem], _Held | None]:
        of_file, found = shard_problems(folder, shard, tick), companions(folder, shard)
        if not is_deep:
            return of_file + found.problems, None
        of_records: list[Problem] = []
        if (folder / shard.path).is_file():
            pool = decoders if decode else None
            of_records = record_problems(folder, shard, manifest, found, pool, tick)
            if of_file and not of_records:
                how = "" if manifest.compression == "none" else ", or compressed differently"
                message = f"its records are those that were written, but in a different order{how}"
                of_records.append(Problem(shard.path, message))
        held = _Held.of(found) if not of_records else _NOTHING
        return of_file + of_records + found.problems, held

    with Meter("verify", num_bytes) as meter, ThreadPoolExecutor(num_jobs()) as decoders:
        found = in_threads(look, manifest.shards, meter.add)
    problems = [problem for of_shard, _ in found for problem in of_shard]
    problems += digest_problems(folder, {**manifest.other_digests, **copy_digest(folder, manifest)})
    problems += [
        Problem(f"{build.name}/{RECORD_NAME}", "does not show that tfshards made its folder")
        for build in folders_of(folder, manifest)
        if not is_owned(build.root)
    ]
    held = [each for _, each in found if each]
    if is_deep:
        problems += _repeated_keys(folder, manifest, [each.keys for each in held])
        problems += _other_labels(manifest, [each.label_counts for each in held])
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


def _repeated_keys(folder: AnyPath, manifest: Manifest, hashes: Sequence[KeyHashes]) -> Iterator[Problem]:
    """Yield a problem for each record whose key an earlier record has, according to the files of keys."""
    keys = np.concatenate(hashes)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    original = first[inverse]
    repeats = np.flatnonzero(original != np.arange(len(keys)))
    shard_of = np.repeat(np.arange(len(hashes)), [len(each) for each in hashes])
    record_of = np.concatenate([np.arange(len(each)) for each in hashes])
    for index in np.unique(shard_of[repeats]).tolist():
        shard = manifest.shards[index]
        held = companions(folder, shard)
        for position in repeats[shard_of[repeats] == index].tolist():
            record, earlier = int(record_of[position]), int(original[position])
            offset = int(held.index.offsets[record]) if held.index else 0
            key = to_text(held.keys[record]) if held.keys else None
            of = f"record {record_of[earlier]} of {manifest.shards[shard_of[earlier]].path}"
            yield RecordProblem.of(shard, record, offset, key, f"has the key of {of}")


def _other_labels(manifest: Manifest, held: Sequence[Counter[int] | None]) -> Iterator[Problem]:
    """Yield a problem for each split whose label counts differ from its files of labels."""
    by_path = dict(zip((shard.path for shard in manifest.shards), held, strict=True))
    names = manifest.schema.class_names
    for name, split in manifest.splits.items():
        labels = [by_path[shard.path] for shard in split.shards]
        if None in labels or not split.label_counts:
            # damaged files of labels are reported with their shards
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
