"""Find an example of a dataset by its key, and describe its values in text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfshards.prep.building.commit import read_rejects
from tfshards.prep.imaging.stored import describe
from tfshards.prep.records.example import Decoded
from tfshards.prep.records.reader import RecordError, read_records
from tfshards.prep.records.values import parse_record
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.writing.area import Reject
from tfshards.schemas import Feature, InputError, Manifest, Schema, read_manifest
from tfshards.schemas.names import rejects_name
from tfshards.schemas.sizes import size
from tfshards.schemas.summary import escaped

_SHOWN_ELEMENTS = 8


@dataclass(frozen=True)
class Found:
    """One example of a dataset.

    Attributes:
        schema: the schema of the dataset.
        split: the split that holds it.
        shard: the path of its shard.
        record: the number of its record in the shard.
        values: the values of each feature, as the record holds them.
    """

    schema: Schema
    split: str
    shard: str
    record: int
    values: dict[str, Decoded]


def find(root: str | os.PathLike[str], key: str) -> Found:
    """Return the example with this key; records are read until it is found.

    Raises:
        InputError: ``root`` is not a dataset, or none of its examples has the key; if the input with that key
            was rejected, the message has the reason.
        RecordError: a record that was read is damaged, or does not match the schema.
    """
    manifest = read_manifest(root)
    wanted = os.fsencode(key)
    _check_not_rejected(Path(root), manifest, wanted)
    for split_name, split in manifest.splits.items():
        for shard in split.shards:
            path = Path(root) / shard.path
            for number, (offset, data) in enumerate(read_records(path, manifest.compression)):
                # searching for the bytes is far cheaper than parsing, and excludes nearly all records
                if wanted in data:
                    values, fault = parse_record(data, manifest)
                    if fault:
                        raise RecordError(path, number, offset, fault)
                    if values.get("key") == [wanted]:
                        return Found(manifest.schema, split_name, shard.path, number, values)
    raise InputError(f"{root} has no example with the key {key!r}; {_example_keys(Path(root), manifest)}")


def _check_not_rejected(root: Path, manifest: Manifest, wanted: bytes) -> None:
    """Raise InputError if the key is among the rejected ones."""
    rejects: list[Reject] = []
    if manifest.totals.rejected:
        # the file only adds a reason to the message: without it, the key is reported as unknown
        with suppress(InputError):
            rejects = read_rejects(root / rejects_name(manifest.build_id))
    for reject in rejects:
        if to_bytes(reject.key) == wanted:
            raise InputError(f"{root} has rejected {reject.key!r} ({reject.reason}): {reject.detail}")


def description(feature: Feature, schema: Schema, values: Decoded) -> str:
    """Return one value as text, in a line without control characters."""
    if feature.is_encoded:
        return f"{describe(_only_bytes(values))}, {size(len(_only_bytes(values)))}"
    if feature.kind == "label" and schema.class_names:
        return _shorten([f"{int(value)} ({_class_name(int(value), schema)})" for value in values])
    if feature.kind == "raw" and feature.dtype != "bfloat16":
        array = np.frombuffer(_only_bytes(values), np.dtype(feature.dtype).newbyteorder("<"))
        return f"{feature.dtype} {list(feature.shape)}: {_shorten(array.tolist())}"
    if feature.kind == "bytes":
        return _shorten([escaped(os.fsdecode(value)) for value in values if isinstance(value, bytes)])
    dims = ["?" if dim is None else dim for dim in feature.shape]
    return f"{feature.dtype} [{', '.join(map(str, dims))}]: {_shorten(values)}"


def _class_name(label: int, schema: Schema) -> str:
    return "no class" if label < 0 else escaped(schema.class_names[label])


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
