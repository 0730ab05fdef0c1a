"""Find examples of a dataset by key or by number, and describe their values in text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import numpy as np

from tfshards.prep.building.commit import read_rejects
from tfshards.prep.imaging.formats import HEAD_BYTES, format_of
from tfshards.prep.records.example import Decoded
from tfshards.prep.records.frames import RecordError, read_records
from tfshards.prep.records.values import parse_record
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.writing.area import Reject
from tfshards.schemas import Feature, InputError, Manifest, Schema, read_manifest
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import rejects_name
from tfshards.schemas.sizes import size
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.summary import escaped

_SHOWN_ELEMENTS = 8
_SHOWN_BYTES = 200
_POSITION = re.compile(r"(?:(.+):)?([0-9]+)")


@dataclass(frozen=True)
class Found:
    """One example of a dataset.

    Attributes:
        schema: the schema of the dataset.
        split: the split that holds it.
        number: its number in the split, in stored order, from 0.
        shard: the path of its shard.
        record: the number of its record in the shard.
        values: the values of each feature, as the record holds them.
    """

    schema: Schema
    split: str
    number: int
    shard: str
    record: int
    values: dict[str, Decoded]

    def to_json(self) -> dict[str, Json]:
        """Return the example as JSON values: of an image what it is, of a class also its name."""
        features = self.schema.features
        return {
            "split": self.split,
            "number": self.number,
            "shard": self.shard,
            "record": self.record,
            "features": {one.name: _json_of(one, self.schema, self.values[one.name]) for one in features},
        }


def find(root: str | os.PathLike[str], what: str) -> Found:
    """Return the example with a key, or at a position such as ``train:5``, or ``5`` if there is one split.

    A number alone is a key, not a position, if the keys of the dataset are row numbers.

    Raises:
        InputError: ``root`` is not a dataset, or has no such example.
        RecordError: a record that was read is damaged, or does not match the schema.
    """
    manifest = read_manifest(root)
    position = _POSITION.fullmatch(what)
    if position is None:
        return find_key(root, what)
    if position[1] is not None and position[1] not in manifest.splits:
        try:
            return find_key(root, what)
        except InputError as error:
            names = ", ".join(map(repr, manifest.splits))
            raise InputError("position-unknown", error=error, position=position[1], names=names) from None
    split, number = position[1], int(position[2])
    if split is None:
        first = next(examples(root), None)
        if first is not None and _key_of(first).isdigit():
            return find_key(root, what)
        if len(manifest.splits) > 1:
            named = ", ".join(f"{name}:{number}" for name in manifest.splits)
            raise InputError("split-needed", root=root, named=named)
        split = next(iter(manifest.splits))
    found = next(examples(root, split, number), None)
    if found is None:
        size = manifest.splits[split].num_examples
        numbered = f"numbered from 0 to {size - 1}" if size else "so there is nothing to show"
        raise InputError("number-unknown", root=root, split=split, size=size, numbered=numbered, what=what)
    return found


def examples(root: str | os.PathLike[str], split: str | None = None, start: int = 0) -> Iterator[Found]:
    """Yield the examples of a split, or of all splits one after another, in stored order.

    Args:
        root: folder of the dataset.
        split: name of the split; None for all.
        start: number of the first example of each split; those before it are read, but not parsed.

    Raises:
        InputError: ``root`` is not a dataset, or has no such split.
        RecordError: a record that was read is damaged, or does not match the schema.
    """
    manifest = read_manifest(root)
    if split is not None and split not in manifest.splits:
        names = ", ".join(map(repr, manifest.splits))
        raise InputError("split-not-shown", root=root, split=split, names=names)
    for name in manifest.splits if split is None else [split]:
        base = 0
        for shard in manifest.splits[name].shards:
            low, end = max(0, start - base), shard.num_examples
            path = any_path(root) / shard.path
            frames = enumerate(read_records(path, manifest.compression)) if low < end else ()
            for record, (offset, data) in islice(frames, low, None):
                values, fault = parse_record(data, manifest)
                if fault:
                    raise RecordError(path, record, offset, fault)
                yield Found(manifest.schema, name, base + record, shard.path, record, values)
            base += end


def find_key(root: str | os.PathLike[str], key: str) -> Found:
    """Return the example with this key; records are read until it is found.

    Raises:
        InputError: ``root`` is not a dataset, or none of its examples has the key; if the input with that key
            was rejected, the message has the reason.
        RecordError: a record that was read is damaged, or does not match the schema.
    """
    manifest = read_manifest(root)
    wanted = os.fsencode(key)
    _check_not_rejected(any_path(root), manifest, wanted)
    for split_name, split in manifest.splits.items():
        base = 0
        for shard in split.shards:
            path = any_path(root) / shard.path
            for number, (offset, data) in enumerate(read_records(path, manifest.compression)):
                # searching for the bytes is far cheaper than parsing, and excludes nearly all records
                if wanted in data:
                    values, fault = parse_record(data, manifest)
                    if fault:
                        raise RecordError(path, number, offset, fault)
                    if values.get("key") == [wanted]:
                        return Found(manifest.schema, split_name, base + number, shard.path, number, values)
            base += shard.num_examples
    raise InputError("key-unknown", root=root, key=key, example_keys=_example_keys(any_path(root), manifest))


def _check_not_rejected(root: AnyPath, manifest: Manifest, wanted: bytes) -> None:
    """Raise InputError if the key is among the rejected ones."""
    rejects: list[Reject] = []
    if manifest.totals.rejected:
        # the file only adds a reason to the message: without it, the key is reported as unknown
        with suppress(InputError):
            rejects = read_rejects(root / rejects_name(manifest.build_id))
    for reject in rejects:
        if to_bytes(reject.key) == wanted:
            raise InputError(
                "key-rejected", root=root, key=reject.key, reason=reject.reason, detail=reject.detail
            )


def description(feature: Feature, schema: Schema, values: Decoded) -> str:
    """Return one value as text, in a line without control characters."""
    if feature.is_encoded:
        return f"{_image_text(_only_bytes(values))}, {size(len(_only_bytes(values)))}"
    if feature.kind == "label" and schema.class_names:
        return _shorten([f"{int(value)} ({_class_name(int(value), schema)})" for value in values])
    if feature.kind == "raw" and feature.dtype != "bfloat16":
        array = np.frombuffer(_only_bytes(values), np.dtype(feature.dtype).newbyteorder("<"))
        return f"{feature.dtype} {list(feature.shape)}: {_shorten(array.tolist())}"
    if feature.kind == "bytes":
        return _shorten([_text_of(value) for value in values if isinstance(value, bytes)])
    dims = ["?" if dim is None else dim for dim in feature.shape]
    return f"{feature.dtype} [{', '.join(map(str, dims))}]: {_shorten(values)}"


def _image_text(data: bytes) -> str:
    """Return what an encoded image is as text; without Pillow, which reads its header, only the format."""
    try:
        from tfshards.prep.imaging.stored import describe
    except ModuleNotFoundError:
        found = format_of(data[:HEAD_BYTES])
        return found.name if found else "image"
    return describe(data)


def _json_of(feature: Feature, schema: Schema, values: Decoded) -> Json:
    if feature.is_encoded:
        return {"image": _image_text(_only_bytes(values)), "num_bytes": len(_only_bytes(values))}
    found: list[Json]
    if feature.kind == "raw":
        if feature.dtype in ("bfloat16", "complex64", "complex128"):
            return {"dtype": feature.dtype, "hex": _only_bytes(values).hex()}
        numbers = np.frombuffer(_only_bytes(values), np.dtype(feature.dtype).newbyteorder("<"))
        found = numbers.tolist()
    else:
        found = [os.fsdecode(value) if isinstance(value, bytes) else value for value in values]
    if feature.kind == "label" and schema.class_names:
        names: list[Json] = [_class_name(int(value), schema) for value in values]
        return {"labels": found, "classes": names}
    return found[0] if feature.shape == () and found else found


def _class_name(label: int, schema: Schema) -> str:
    return "no class" if label < 0 else escaped(schema.class_names[label])


def _text_of(value: bytes) -> str:
    """Return bytes as text, and only the first of many."""
    text = escaped(os.fsdecode(value[:_SHOWN_BYTES]))
    return text if len(value) <= _SHOWN_BYTES else f"{text}… ({size(len(value))} in all)"


def _only_bytes(values: Decoded) -> bytes:
    value = values[0]
    assert isinstance(value, bytes)
    return value


def _shorten(values: Sequence[object]) -> str:
    if not values:
        return "none"
    shown = ", ".join(str(value) for value in values[:_SHOWN_ELEMENTS])
    return f"{shown}, … ({len(values)} in all)" if len(values) > _SHOWN_ELEMENTS else shown


def _example_keys(root: AnyPath, manifest: Manifest) -> str:
    for shard in manifest.shards:
        for _, data in read_records(root / shard.path, manifest.compression):
            for key in parse_record(data, manifest)[0].get("key", []):
                if isinstance(key, bytes):
                    return f"keys look like {os.fsdecode(key)!r}"
            return f"its examples have no keys; give a number such as {next(iter(manifest.splits))}:0"
    return "it has no examples"


def _key_of(found: Found) -> bytes:
    """Return the key of an example; empty if it has none."""
    for key in found.values.get("key", []):
        if isinstance(key, bytes):
            return key
    return b""
