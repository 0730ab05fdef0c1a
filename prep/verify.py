"""Proving that a dataset is what its manifest says: all faults are reported, not only the first."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from tfshards.prep.example import Decoded, decode_example
from tfshards.prep.files import file_digest
from tfshards.prep.tfrecord import RecordError, read_records
from tfshards.schemas import (
    Feature,
    FormatError,
    Manifest,
    Problem,
    RecordIndex,
    Shard,
    index_path,
    parse_index,
    read_manifest,
)
from tfshards.schemas.index import FRAME_OVERHEAD

# bounds the report of one shard; the count goes on
_MAX_PROBLEMS_A_SHARD = 20


def verify(root: str | os.PathLike[str], *, deep: bool = False) -> list[Problem]:
    """Return all that is wrong with the dataset in ``root``; empty if it is sound.

    Compares the size and digest of every shard and the shape of every index with the manifest.

    Args:
        root: the dataset's directory.
        deep: also read every record: checksums, count, features against the schema, keys without repetition,
            the index's offsets, the label counts.

    Raises:
        InputError: ``root`` is no dataset.
        FormatError: the manifest cannot be read; it says why.
    """
    manifest = read_manifest(root)
    folder = Path(root)
    with ThreadPoolExecutor() as pool:
        look = _look_deep if deep else _look
        found = list(pool.map(lambda shard: look(folder, shard, manifest), manifest.shards))
    problems = [problem for shard in found for problem in shard.problems]
    return problems + list(_across(manifest, found)) if deep else problems


@dataclass(frozen=True)
class _Found:
    """What one shard holds.

    Attributes:
        problems: with the shard.
        keys: 16 bytes of hash of each key; enough to see repetitions, whatever the keys' lengths.
        labels: how often each label occurs; None if not all records could be read.
    """

    problems: list[Problem]
    keys: bytes = b""
    labels: Counter[int] | None = None


def shard_problems(folder: Path, shard: Shard) -> list[Problem]:
    """Return what is wrong with the size, digest or index of one shard of the dataset in ``folder``."""
    problems = list(_size_problems(folder, shard))
    if not problems and file_digest(folder / shard.path) != shard.digest:
        problems.append(Problem(shard.path, "its bytes are not those that were written: the digest differs"))
    return problems + list(_index_problems(folder, shard))


def _look(folder: Path, shard: Shard, _: Manifest) -> _Found:
    return _Found(shard_problems(folder, shard))


def _look_deep(folder: Path, shard: Shard, manifest: Manifest) -> _Found:
    shallow = _look(folder, shard, manifest)
    if not (folder / shard.path).is_file():
        return shallow
    problems: list[Problem] = []
    keys: list[bytes] = []
    lengths: list[int] = []
    labels: Counter[int] = Counter()
    label = manifest.schema.label
    try:
        for number, (offset, data) in enumerate(read_records(folder / shard.path, manifest.compression)):
            lengths.append(len(data) + FRAME_OVERHEAD)
            values, fault = parse_record(data, manifest)
            if fault:
                problems.append(Problem(shard.path, f"record {number} at byte {offset}: {fault}"))
                continue
            strings = [key for key in values.get("key", []) if isinstance(key, bytes)]
            keys += [hashlib.blake2b(key, digest_size=16).digest() for key in strings]
            labels.update(cast("list[int]", values[label.name]) if label else ())
    except RecordError as error:
        problems.append(Problem(shard.path, f"record {error.record} at byte {error.offset}: {error.fault}"))
    else:
        problems += _count_problems(folder, shard, lengths)
    if len(problems) > _MAX_PROBLEMS_A_SHARD:
        left = len(problems) - _MAX_PROBLEMS_A_SHARD
        problems = [*problems[:_MAX_PROBLEMS_A_SHARD], Problem(shard.path, f"and {left} more problems")]
    is_whole = not label or labels.total() == shard.num_examples
    return _Found(shallow.problems + problems, b"".join(keys), labels if is_whole else None)


def _size_problems(folder: Path, shard: Shard) -> Iterator[Problem]:
    try:
        size = (folder / shard.path).stat().st_size
    except OSError as error:
        yield Problem(shard.path, f"cannot be read: {error.strerror}")
        return
    if size != shard.num_bytes:
        yield Problem(shard.path, f"has {size} bytes, the manifest says {shard.num_bytes}")


def _index_problems(folder: Path, shard: Shard) -> Iterator[Problem]:
    path = index_path(shard.path)
    try:
        index = parse_index((folder / path).read_text(encoding="ascii"), path)
    except OSError as error:
        yield Problem(path, f"cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        yield Problem(path, "holds other characters than digits and spaces")
    except FormatError as error:
        yield from (Problem(path, str(problem)) for problem in error.problems)
    else:
        if (len(index.lengths), index.num_bytes) != (shard.num_examples, shard.record_bytes):
            found = f"{len(index.lengths)} records of {index.num_bytes} bytes"
            yield Problem(
                path, f"has {found}, the manifest says {shard.num_examples} of {shard.record_bytes}"
            )


def _count_problems(folder: Path, shard: Shard, lengths: list[int]) -> Iterator[Problem]:
    if len(lengths) != shard.num_examples:
        yield Problem(shard.path, f"holds {len(lengths)} records, the manifest says {shard.num_examples}")
    path = folder / index_path(shard.path)
    written = RecordIndex(np.array(lengths, dtype=np.int64)).to_text()
    if path.is_file() and path.read_bytes() != written.encode("ascii"):
        yield Problem(index_path(shard.path), "does not say where the shard's records are")


def parse_record(data: bytes, manifest: Manifest) -> tuple[dict[str, Decoded], str | None]:
    """Return the values of a record, and what contradicts the schema."""
    try:
        values = decode_example(data)
    except ValueError as error:
        return {}, str(error)
    names = set(manifest.schema.names)
    for name in sorted(names ^ set(values)):
        what = "is missing" if name in names else "is not in the schema"
        return {}, f"the feature {name!r} {what}"
    for feature in manifest.schema.features:
        fault = _value_fault(feature, values[feature.name])
        if fault:
            return {}, f"the feature {feature.name!r} {fault}"
    classes = len(manifest.schema.class_names)
    for feature in manifest.schema.features if classes else ():
        labels = cast("list[int]", values[feature.name]) if feature.kind == "label" else []
        unknown = [label for label in labels if not 0 <= label < classes]
        if unknown:
            return {}, f"the label {unknown[0]!r} is none of the {classes} classes"
    return values, None


def _value_fault(feature: Feature, values: Decoded) -> str | None:
    wanted = {"bytes": bytes, "int64": int, "float": float}[feature.wire]
    # a list of any length has the right one
    count = 1 if feature.kind == "raw" else len(values) if feature.is_ragged else feature.num_elements
    if len(values) != count:
        return f"has {len(values)} values instead of {count}"
    if values and not isinstance(values[0], wanted):
        return f"is a list of {type(values[0]).__name__} instead of {wanted.__name__}"
    if feature.kind == "raw":
        length = len(cast("list[bytes]", values)[0])
        return None if length == feature.num_bytes else f"has {length} bytes instead of {feature.num_bytes}"
    return None


def _across(manifest: Manifest, found: list[_Found]) -> Iterator[Problem]:
    """Yield what only all shards together show."""
    keys = np.frombuffer(b"".join(shard.keys for shard in found), dtype="V16")
    repeated = len(keys) - len(np.unique(keys))
    if repeated:
        yield Problem("(all shards)", f"{repeated} records repeat the key of another")
    by_path = dict(zip((shard.path for shard in manifest.shards), found, strict=True))
    for name, split in manifest.splits.items():
        labels = [by_path[shard.path].labels for shard in split.shards]
        if None in labels:
            # what is missing was told shard by shard
            continue
        counted = sum(filter(None, labels), Counter[int]())
        stated = split.label_counts
        names = manifest.schema.class_names
        seen = {names[label] if names else str(label): count for label, count in counted.items()}
        if stated and {key: count for key, count in stated.items() if count} != seen:
            yield Problem(f"splits.{name}.label_counts", "are not what the shards hold")
