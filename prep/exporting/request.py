"""What is exported: the dataset, its features, and the parts in which it is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from tfshards.prep.records.example import Values, as_encoded
from tfshards.prep.records.frames import RecordError, read_frames
from tfshards.prep.records.values import parse_record, selected
from tfshards.prep.writing.area import ShardId
from tfshards.schemas import Feature, InputError, Manifest, Schema, Shard
from tfshards.schemas.digests import examples_digest
from tfshards.schemas.storage import AnyPath


@dataclass(frozen=True)
class ExportRequest:
    """What is exported; byte strings of the features in ``binary`` are not all UTF-8, and stored as bytes."""

    root: AnyPath
    manifest: Manifest
    schema: Schema
    binary: frozenset[str] = frozenset()

    @property
    def parts(self) -> list[ExportPart]:
        """One part per shard of the dataset."""
        parts: list[ExportPart] = []
        for name, split in self.manifest.splits.items():
            first = 0
            for index, shard in enumerate(split.shards):
                parts.append(ExportPart(len(parts), name, index, len(split.shards), first, shard))
                first += shard.num_examples
        return parts


@dataclass(frozen=True)
class ExportPart:
    """The examples of one shard; ``index`` and ``first``, its first example, count in the split."""

    number: int
    split: str
    index: int
    count: int
    first: int
    shard: Shard

    @property
    def id(self) -> ShardId:
        """The shard as the item of an engine."""
        return ShardId(self.split, self.index)

    @property
    def name(self) -> str:
        """Number of the shard in its split, such as ``00003-of-00064``."""
        return f"{self.index:05d}-of-{self.count:05d}"


class ExportedExample(NamedTuple):
    """One example: a value is bytes for an image, a mask and kind ``raw``, one element, or a list of them."""

    number: int
    data: bytes
    values: dict[str, Values]


class NotTextError(Exception):
    """A byte string of the feature ``args[0]`` is not UTF-8, so that all of them must be stored as bytes."""


def make_request(root: AnyPath, manifest: Manifest, select: Sequence[str] | None) -> ExportRequest:
    """Return what is exported of a dataset: all features, or those in ``select``."""
    chosen = selected(manifest.schema, select)
    has_labels = any(feature.kind == "label" for feature in chosen)
    return ExportRequest(root, manifest, Schema(chosen, manifest.schema.class_names if has_labels else ()))


def read_examples(request: ExportRequest, part: ExportPart) -> Iterator[ExportedExample]:
    """Yield the examples of a part in order, after checking each record and, at the end, all together."""
    path, manifest = request.root / part.shard.path, request.manifest
    lengths, checksums = [], []
    for found in read_frames(path, manifest.compression):
        data = found.require_data(path)
        values, fault = parse_record(data, manifest)
        if fault:
            raise RecordError(path, found.number, found.offset, fault)
        lengths.append(len(data))
        checksums.append(found.checksum)
        exported = {f.name: as_encoded(f, values[f.name]) for f in request.schema.features}
        yield ExportedExample(part.first + found.number, data, exported)
    digest = examples_digest(np.array(lengths, np.int64), np.array(checksums, np.uint32))
    if len(lengths) != part.shard.num_examples or digest != part.shard.examples_digest:
        raise InputError(
            "export-miscounted", path=path, num_lengths=len(lengths), num_examples=part.shard.num_examples
        )


def array_of(feature: Feature, value: Values) -> np.ndarray:
    """Return the value of a numeric feature as an array of its dtype and shape.

    Kinds are ``label``, ``int``, ``float`` and ``raw``. A ragged value has the shape ``(n,)`` or ``(n, k)``.
    NumPy has no dtype for bfloat16.
    """
    if feature.kind == "raw":
        array = np.frombuffer(cast("bytes", value), np.dtype(feature.dtype).newbyteorder("<"))
        array = array.astype(feature.dtype, copy=False)
    else:
        array = np.array(value, feature.dtype)
    if feature.is_ragged:
        return array.reshape((-1, *cast("tuple[int, ...]", feature.shape[1:])))
    return array.reshape(cast("tuple[int, ...]", feature.shape))


def text_of(request: ExportRequest, feature: Feature, value: bytes) -> str | bytes:
    """Return a byte string as text, or as it is if the feature is stored as bytes."""
    if feature.name in request.binary:
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise NotTextError(feature.name) from None
