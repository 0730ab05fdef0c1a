"""The names of the files of a build, and the plan file of a shard."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from tfshards.prep.sources.base import Columns, Row
from tfshards.schemas import FormatError, InputError, Manifest, read_manifest
from tfshards.schemas.generations import kept_manifests
from tfshards.schemas.index import IntArray
from tfshards.schemas.names import ID_PATTERN, inputs_name, rejects_name
from tfshards.schemas.storage import AnyPath

# Shards, indexes, labels, keys, rejects files and files of inputs.
_OF_BUILD = re.compile(
    rf"(.+-|rejected-|inputs-)({ID_PATTERN})(\.tfrecord-\d{{5,}}-of-\d{{5,}}(?:\.idx|\.labels|\.keys)?|\.jsonl|\.npz)"
)


def shard_name(dataset: str, split: str, shard_index: int, num_shards: int, *, build_id: str) -> str:
    """Return the name of a shard, which is its path relative to the dataset."""
    return f"{dataset}-{split}-{build_id}.tfrecord-{shard_index:05d}-of-{num_shards:05d}"


def build_of(path: str) -> str:
    """Return the build id in the path of a file of a build; else an empty string."""
    match = _OF_BUILD.fullmatch(path)
    return match[2] if match else ""


def with_build_id(path: str, build_id: str) -> str:
    """Return the path of a file of a build with another build id."""
    return _OF_BUILD.sub(rf"\g<1>{build_id}\g<3>", path)


def data_files(manifest: Manifest) -> list[str]:
    """Return the paths of the files that belong to a dataset in addition to its manifest and views.

    These are the shards with their indexes, labels and keys, the rejects file, and the records of the
    inputs, which need not exist. The records of an adopted dataset were written by other programs, and are
    left out.
    """
    is_adopted = manifest.made.source == "adopt"
    found = [
        path for shard in manifest.shards for path in (shard.companion_digests if is_adopted else shard.files)
    ]
    builds = {build_of(shard.path) for shard in manifest.shards} - {""}
    found += [inputs_name(build_id) for build_id in sorted(builds)]
    return [*found, rejects_name(manifest.build_id)] if manifest.rejects_digest else found


def named_files(folder: AnyPath) -> set[str]:
    """Return the paths of the data files that the manifest of a dataset, or an earlier one, names."""
    manifests = kept_manifests(folder)
    with suppress(InputError, FormatError):
        manifests.append(read_manifest(folder))
    return {path for manifest in manifests for path in data_files(manifest)}


def plan_text(planned: Columns) -> bytes:
    """Return the content of a plan file of these rows, in order."""
    return _rows_text(planned) + b"\n" + json.dumps(planned.stamps).encode("ascii")


def rows_of(plan: bytes) -> list[Row]:
    """Return the rows of a plan file."""
    text, stamps = plan.split(b"\n")
    keys, labels, sizes = json.loads(text)
    return Columns(keys, labels, sizes, json.loads(stamps)).rows()


def digest_of(plan: bytes) -> str:
    """Return the digest of the rows of a plan file, which does not cover the stamps, without parsing them."""
    return hashlib.sha256(plan.split(b"\n")[0]).hexdigest()


def stamps_of(plan: bytes) -> IntArray | None:
    """Return the stamps of the rows of a plan file; None if it is damaged."""
    try:
        return np.array(json.loads(plan.split(b"\n")[1]), np.int64)
    except (ValueError, IndexError):
        return None


def rows_digest(rows: Sequence[Row]) -> str:
    """Return the SHA-256, in hex, of the rows without their stamps."""
    return hashlib.sha256(_rows_text(Columns.of(rows))).hexdigest()


def _rows_text(rows: Columns) -> bytes:
    return json.dumps([rows.keys, rows.labels, rows.sizes], separators=(",", ":")).encode("ascii")
