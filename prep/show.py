"""Looking into a dataset: finding an example by its key, and describing its values for people."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfshards.prep.area import Reject
from tfshards.prep.commit import read_rejects
from tfshards.prep.example import Decoded
from tfshards.prep.images import describe
from tfshards.prep.proofs.verify import parse_record
from tfshards.prep.sources.listing import to_bytes
from tfshards.prep.tfrecord import RecordError, read_records
from tfshards.prep.views.labels import escaped
from tfshards.schemas import Feature, InputError, Manifest, Schema, read_manifest
from tfshards.schemas.sizes import size

_SHOWN_ELEMENTS = 8


@dataclass(frozen=True)
class Found:
    """One example of a dataset.

    Attributes:
        split: where it is.
        shard: the path of its shard.
        record: its number there.
        values: of each feature, as the record holds them.
    """

    split: str
    shard: str
    record: int
    values: dict[str, Decoded]


def find(root: str | os.PathLike[str], key: str) -> Found:
    """Return the example with this key; every record is read until it is found.

    Raises:
        InputError: ``root`` is no dataset, or none of its examples has the key; if the input of that key was
            rejected, it says why.
        RecordError: a record that is read is damaged, or is not what the schema says.
    """
    manifest = read_manifest(root)
    wanted = os.fsencode(key)
    _check_not_rejected(Path(root), manifest, wanted)
    for split_name, split in manifest.splits.items():
        for shard in split.shards:
            path = Path(root) / shard.path
            for number, (offset, data) in enumerate(read_records(path, manifest.compression)):
                # a search for the bytes is far cheaper than parsing, and rules out nearly all
                if wanted in data:
                    values, fault = parse_record(data, manifest)
                    if fault:
                        raise RecordError(path, number, offset, fault)
                    if values.get("key") == [wanted]:
                        return Found(split_name, shard.path, number, values)
    raise InputError(f"{root} has no example with the key {key!r}; {_example_keys(Path(root), manifest)}")


def _check_not_rejected(root: Path, manifest: Manifest, wanted: bytes) -> None:
    """Raise InputError if the key is among the rejected ones."""
    rejects: list[Reject] = []
    if manifest.totals.rejected:
        # the list is for people: a dataset without it is sound
        with suppress(InputError):
            rejects = read_rejects(root / f"rejected-{manifest.build_id}.jsonl")
    for reject in rejects:
        if to_bytes(reject.key) == wanted:
            raise InputError(f"{root} has rejected {reject.key!r} ({reject.reason}): {reject.detail}")


def description(feature: Feature, schema: Schema, values: Decoded) -> str:
    """Return one value for people, in a line without control characters."""
    if feature.kind == "image":
        return f"{describe(_only_bytes(values))}, {size(len(_only_bytes(values)))}"
    if feature.kind == "label" and schema.class_names:
        return _shorten([f"{int(value)} ({escaped(schema.class_names[int(value)])})" for value in values])
    if feature.kind == "raw" and feature.dtype != "bfloat16":
        array = np.frombuffer(_only_bytes(values), np.dtype(feature.dtype).newbyteorder("<"))
        return f"{feature.dtype} {list(feature.shape)}: {_shorten(array.tolist())}"
    if feature.kind == "bytes":
        return _shorten([escaped(os.fsdecode(value)) for value in values if isinstance(value, bytes)])
    dims = ["?" if dim is None else dim for dim in feature.shape]
    return f"{feature.dtype} [{', '.join(map(str, dims))}]: {_shorten(values)}"


def _only_bytes(values: Decoded) -> bytes:
    value = values[0]
    assert isinstance(value, bytes)
    return value


def _shorten(values: Sequence[object]) -> str:
    if not values:
        return "none"
    shown = ", ".join(str(value) for value in values[:_SHOWN_ELEMENTS])
    return f"{shown}, … ({len(values)} in all)" if len(values) > _SHOWN_ELEMENTS else shown


def _example_keys(root: Path, manifest: Manifest) -> str:
    for shard in manifest.shards:
        for _, data in read_records(root / shard.path, manifest.compression):
            for key in parse_record(data, manifest)[0].get("key", []):
                if isinstance(key, bytes):
                    return f"keys look like {os.fsdecode(key)!r}"
            return "its examples have no keys"
    return "it has no examples"
