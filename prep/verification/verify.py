"""Verify a dataset against its manifest; every fault is reported, not only the first."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TypeAlias, cast

import numpy as np

from tfshards.prep.engines.work import Tick, in_threads
from tfshards.prep.imaging.options import DEFAULT_MAX_PIXELS
from tfshards.prep.planning.plan import label_counts
from tfshards.prep.progress.lines import Meter
from tfshards.prep.records.dataset_files import digest_problems
from tfshards.prep.records.frames import Frame
from tfshards.prep.records.shard_file import scan
from tfshards.prep.records.values import parse_record
from tfshards.prep.sources.keys import to_text
from tfshards.prep.verification.repair import copy_digest, folders_of, repaired
from tfshards.prep.writing.build_folder import is_owned
from tfshards.schemas import Feature, Manifest, OptionsError, Problem, Shard, read_manifest
from tfshards.schemas.companions import read_index, read_keys, read_labels
from tfshards.schemas.errors import check_flags, counted, listed, one_line
from tfshards.schemas.index import IntArray, RecordIndex
from tfshards.schemas.json_reader import Json, as_json
from tfshards.schemas.keys import KeyHashes, hash_array, hash_key
from tfshards.schemas.manifest import OTHER_BYTES
from tfshards.schemas.names import RECORD_NAME
from tfshards.schemas.split import rows_by_shard
from tfshards.schemas.storage import AnyPath, any_path

_MAX_PIXELS = re.compile(r'"max_pixels": ([0-9]+)')
# Decodes an image, and returns what is wrong with it, or None.
Decode: TypeAlias = Callable[[bytes, Feature], "str | None"]


@dataclass(frozen=True)
class RecordProblem(Problem):
    """A fault of one record.

    Attributes:
        record: the number of the record in its shard.
        offset: the offset of its frame in the uncompressed bytes.
        key: the record's key in the file of keys; None if that is damaged, or if there are no keys.
    """

    record: int = 0
    offset: int = 0
    key: str | None = None


@dataclass(frozen=True, repr=False)
class VerificationReport:
    """Every problem of a dataset; true if there is none. ``str()`` is what ``tfshards verify`` prints.

    Attributes:
        dataset: the folder of the dataset, as it was given.
        problems: every fault, shard by shard, that is left; the faults of records are ``RecordProblem``.
        repaired: the paths of the files that were rebuilt.
        remedies: how to repair what is left, one line for each folder of a build.
    """

    dataset: str
    problems: tuple[Problem, ...]
    repaired: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether the dataset is sound."""
        return not self.problems

    def __repr__(self) -> str:
        """Return the files rebuilt, the problems and their number, and the remedies, one per line."""
        lines = [one_line(f"rebuilt: {path}") for path in self.repaired]
        lines += map(str, self.problems)
        verdict = counted(len(self.problems), "problem") if self.problems else "sound"
        rebuilt = f", {counted(len(self.repaired), 'file')} rebuilt" if self.repaired else ""
        return "\n".join([*lines, one_line(f"{self.dataset}: {verdict}{rebuilt}"), *self.remedies])

    def to_json(self) -> dict[str, Json]:
        """Return the attributes; a problem is an object with ``place`` and ``message``."""
        found: dict[str, Json] = as_json(self)
        return found


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
            return VerificationReport(name, *repaired(name, folder, manifest, _problems(folder, manifest)))
    manifest = read_manifest(folder)
    decoder = _decoder_of(manifest) if decode else None
    return VerificationReport(name, _problems(folder, manifest, decoder, is_deep=deep or decode))


def _decoder_of(manifest: Manifest) -> Decode:
    # before anything is read, and not by many threads at once
    decoded_fault = import_module("tfshards.prep.imaging.stored").decoded_fault
    # in the options of the dataset, and of those that it was derived from
    limits = _MAX_PIXELS.findall(json.dumps(dict(manifest.options)))
    most = max(map(int, limits), default=DEFAULT_MAX_PIXELS)
    return partial(decoded_fault, max_pixels=most)


def _problems(
    folder: AnyPath, manifest: Manifest, decode: Decode | None = None, *, is_deep: bool = False
) -> tuple[Problem, ...]:
    """Return every problem of a dataset."""
    num_bytes = sum(split.num_bytes for split in manifest.splits.values()) * (2 if is_deep else 1)
    # what the files of keys and labels list of shards whose records are sound
    hashes: dict[Shard, KeyHashes] = {}
    labels: dict[Shard, IntArray] = {}

    def look(shard: Shard, tick: Tick) -> list[Problem]:
        of_file, found = _file_problems(folder, shard, tick), _Companions.of(folder, shard)
        if not is_deep:
            return of_file + found.problems
        try:
            of_records = _record_problems(folder, shard, manifest, found, decode, tick)
        except OSError as error:
            # as before, when its digest was computed, or only now
            of_file = of_file or [Problem(shard.path, f"cannot be read: {error.strerror}")]
            return of_file + found.problems
        if not of_records:
            hashes[shard] = hash_array(map(hash_key, found.keys or ()))
            if found.labels is not None:
                labels[shard] = found.labels
            if of_file:
                how = "" if manifest.compression == "none" else ", or compressed differently"
                message = f"its records are those that were written, but in a different order{how}"
                of_records = [Problem(shard.path, message)]
        return of_file + of_records + found.problems

    with Meter("verify", num_bytes) as meter:
        problems = [each for of_shard in in_threads(look, manifest.shards, meter.add) for each in of_shard]
    problems += digest_problems(folder, {**manifest.other_digests, **copy_digest(folder, manifest)})
    problems += [
        Problem(f"{build.name}/{RECORD_NAME}", "does not show that tfshards made its folder")
        for build in folders_of(folder, manifest)
        if not is_owned(build.root)
    ]
    problems += _repeated_keys(folder, {each: hashes[each] for each in manifest.shards if each in hashes})
    return (*problems, *_other_labels(manifest, labels))


def _repeated_keys(folder: AnyPath, hashes: Mapping[Shard, KeyHashes]) -> Iterator[Problem]:
    """Yield a problem for each record whose key an earlier record has, according to the files of keys."""
    keys, shards = np.concatenate([hash_array([]), *hashes.values()]), [*hashes]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    original = first[inverse]
    repeats = np.flatnonzero(original != np.arange(len(keys)))
    for _, shard, rows, records in rows_by_shard(shards, repeats):
        found = _Companions.of(folder, shard)
        for row, record in zip(rows.tolist(), records.tolist(), strict=True):
            ((_, earlier, _, (number,)),) = rows_by_shard(shards, original[repeats[[row]]])
            offset = int(found.index.offsets[record]) if found.index else 0
            yield found.problem(shard, record, offset, f"has the key of record {number} of {earlier.path}")


def _other_labels(manifest: Manifest, labels: Mapping[Shard, IntArray]) -> Iterator[Problem]:
    """Yield a problem for each split whose label counts differ from its files of labels."""
    for name, split in manifest.splits.items():
        # damaged records and files of labels are reported with their shards
        if not split.label_counts or not labels.keys() >= {*split.shards}:
            continue
        together = np.concatenate([labels[shard] for shard in split.shards])
        counts = label_counts(together, manifest.schema)
        wrong = [
            f"{label!r} occurs {counts.get(label, 0)} times, not {split.label_counts.get(label, 0)}"
            for label in sorted({*counts, *split.label_counts})
            if counts.get(label, 0) != split.label_counts.get(label, 0)
        ]
        if wrong:
            yield Problem(f"splits.{name}.label_counts", f"differ from the records: {listed(wrong, 5)}")


def _file_problems(folder: AnyPath, shard: Shard, tick: Tick) -> list[Problem]:
    """Return the problems of the size, the digest or the last bytes of one shard."""
    fault = ""
    try:
        num_bytes, digest, last_bytes = (folder / shard.path).read_once(tick)
        if num_bytes != shard.num_bytes:
            fault = f"has {num_bytes} bytes, but the manifest lists {shard.num_bytes}"
        elif digest != shard.digest:
            fault = OTHER_BYTES
        elif last_bytes != shard.last_bytes:
            fault = f"ends with the bytes {last_bytes}, but the manifest lists {shard.last_bytes}"
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    return [Problem(shard.path, fault)] if fault else []


@dataclass(frozen=True, eq=False)
class _Companions:
    """The index, labels and keys of a shard, None where there are none or problems; and all problems."""

    index: RecordIndex | None
    labels: IntArray | None
    keys: list[bytes] | None
    problems: list[Problem]

    @classmethod
    def of(cls, folder: AnyPath, shard: Shard) -> _Companions:
        """Read them."""
        index, of_index = read_index(folder, shard)
        labels, of_labels = read_labels(folder, shard) if shard.labels_digest else (None, [])
        keys, of_keys = read_keys(folder, shard) if shard.keys_digest else (None, [])
        return cls(index, labels, keys, of_index + of_labels + of_keys)

    def problem(self, shard: Shard, record: int, offset: int, fault: str) -> RecordProblem:
        """Return the problem of a record, with its key."""
        is_listed = self.keys is not None and record < shard.num_examples
        key = to_text(self.keys[record]) if self.keys is not None and is_listed else None
        named = "" if key is None else f", key {key!r}"
        message = f"record {record} at byte {offset}{named}: {fault}"
        return RecordProblem(shard.path, message, record, offset, key)


def _record_problems(
    folder: AnyPath,
    shard: Shard,
    manifest: Manifest,
    companions: _Companions,
    decode: Decode | None,
    tick: Tick,
) -> list[Problem]:
    """Return every problem of the records of one shard, and of its images if there is ``decode``.

    The records are read by the index, so that damage hides no other record. A shard whose index is damaged
    is read in order.

    Raises:
        OSError: the shard cannot be read.
    """
    images = [feature for feature in manifest.schema.features if feature.is_encoded]
    # a memoryview returns Python integers, and faster than an array its own
    labels = None if companions.labels is None else companions.labels.data
    listed = [
        (feature.name, path, values)
        for feature, path, values in (
            (manifest.schema.label, shard.labels_path, labels),
            (manifest.schema.key, shard.keys_path, companions.keys),
        )
        if feature and values is not None
    ]

    def look(frame: Frame) -> None:
        values = parse_record(frame.data or b"", manifest)
        for name, path, of_file in listed if frame.number < shard.num_examples else ():
            if values[name][0] != of_file[frame.number]:
                both = (values[name][0], of_file[frame.number])
                own, other = (to_text(value) if isinstance(value, bytes) else value for value in both)
                # records of another shard differ from their start on: one report is enough
                listed.clear()
                raise ValueError(f"has the {name} {own!r}, but {path} lists {other!r}")
        for feature in images if decode else ():
            for data in cast("list[bytes]", values[feature.name]):
                if decode and (fault := decode(data, feature)):
                    raise ValueError(fault)

    # a compressed file is shorter than its content
    share = shard.num_bytes / max(1, shard.record_bytes)
    path = folder / shard.path
    records, faults = scan(
        path, manifest.compression, look, companions.index, lambda count: tick(int(count * share))
    )
    if faults:
        return [companions.problem(shard, each.record, each.offset, each.fault) for each in faults]
    fault = ""
    if len(records.lengths) != shard.num_examples:
        fault = f"holds {len(records.lengths)} records, but the manifest lists {shard.num_examples}"
    elif records.digest != shard.examples_digest:
        lists = f"but the manifest lists {shard.examples_digest}"
        fault = f"its records have the digest {records.digest}, {lists}"
    return [Problem(shard.path, fault)] if fault else []
