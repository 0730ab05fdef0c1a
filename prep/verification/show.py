"""Find examples of a dataset by key or by number, and describe their values in text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tfshards.prep.building.rejects import read_rejects
from tfshards.prep.imaging.formats import HEAD_BYTES, format_of
from tfshards.prep.progress.lines import report_line
from tfshards.prep.records.dataset_files import check_new_file
from tfshards.prep.records.frames import RecordError, read_some
from tfshards.prep.records.values import parse_record
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.writing.build_folder import Reject
from tfshards.schemas import (
    Feature,
    FormatError,
    InputError,
    Manifest,
    OptionsError,
    Schema,
    keys,
    read_manifest,
)
from tfshards.schemas.companions import read_index
from tfshards.schemas.errors import size
from tfshards.schemas.example import Decoded
from tfshards.schemas.json_reader import Json
from tfshards.schemas.schema import UNCOMMON_DTYPES
from tfshards.schemas.split import rows_by_shard
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.any_path import local_path
from tfshards.schemas.storage.verbs import put
from tfshards.schemas.summary import escaped

_SHOWN_ELEMENTS = 8
_SHOWN_BYTES = 200
_POSITION = re.compile(r"(?:(.+):)?([0-9]{1,18})")


@dataclass(frozen=True, repr=False)
class Found:
    """One example of a dataset."""

    schema: Schema
    split: str
    number: int
    shard: str
    record: int
    values: dict[str, Decoded]

    def __repr__(self) -> str:
        """Return the position of the example, and the value of each feature on a line."""
        lines = [f"split {self.split}, example {self.number}, record {self.record} of {self.shard}"]
        lines += [
            f"{feature.name}: {description(feature, self.schema, self.values[feature.name])}"
            for feature in self.schema.features
        ]
        return "\n".join(lines)

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


def show(
    dataset: str | os.PathLike[str],
    key: str | None = None,
    *,
    first: int | None = None,
    save: str | os.PathLike[str] | None = None,
) -> Iterator[Found]:
    """Show examples by key or by position, the first one by default.

    Args:
        dataset: folder of the dataset, or its URL.
        key: key of the example (path relative to the image folder, or row number), or its position as
            SPLIT:NUMBER; where keys are not row numbers and there is one split, also as NUMBER. With
            "first" a split.
        first: number of examples from the start of the split, or of all splits one after another.
        save: file to which the encoded image is written as well.

    Raises:
        OptionsError: an argument is not allowed.
        InputError: it is not a dataset, or there is no such example.
        FormatError: the manifest or an index cannot be read.
    """
    if first is not None and first < 1:
        raise OptionsError(f"first={first} must be at least 1")
    if save is not None and first not in (None, 1):
        raise OptionsError(
            f"save= writes one image, but first={first} returns several examples; leave it out"
        )
    if first is None and key is not None:
        found = iter([find(dataset, key)])
    else:
        found = examples(dataset, key, first or 1)
    if save is None:
        return found
    ones = list(found)
    for one in ones:
        _save(one, save)
    return iter(ones)


def _save(found: Found, save: str | os.PathLike[str]) -> None:
    images = [feature.name for feature in found.schema.features if feature.is_encoded]
    data = next(iter(found.values[images[0]]), None) if images else None
    if not isinstance(data, bytes):
        raise OptionsError("save= writes an image, but the example has none; leave it out")
    path = local_path(save)
    check_new_file(path, "the image", lambda file: file.read(len(data) + 1) == data)
    put(path, data)
    report_line(f"wrote the image to {path}")


def find(root: str | os.PathLike[str], what: str) -> Found:
    """Return the example with a key, or at a position such as ``train:5``, or ``5`` if there is one split.

    A number alone is a key, not a position, if the keys of the dataset are row numbers. Only the record of
    the example is read.
    """
    manifest, folder = read_manifest(root), any_path(root)
    position = _POSITION.fullmatch(what)
    split = position[1] if position else None
    if position is None or (split not in manifest.splits if split else _has_row_numbers(folder, manifest)):
        return _find_key(folder, manifest, what)
    if split is None and len(manifest.splits) > 1:
        named = ", ".join(f"{name}:{position[2]}" for name in manifest.splits)
        raise InputError("split-needed", root=root, named=named)
    split = split or next(iter(manifest.splits))
    number, size = int(position[2]), manifest.splits[split].num_examples
    if number >= size:
        raise InputError("number-unknown", root=root, split=split, size=size, what=what)
    return next(_read(folder, manifest, split, number, number + 1))


def examples(root: str | os.PathLike[str], split: str | None, count: int) -> Iterator[Found]:
    """Yield the first examples of a split, or of all splits one after another, in stored order."""
    manifest, folder = read_manifest(root), any_path(root)
    if split is not None and split not in manifest.splits:
        names = ", ".join(map(repr, manifest.splits))
        raise InputError("split-not-shown", root=root, split=split, names=names)
    for name in manifest.splits if split is None else [split]:
        size = min(count, manifest.splits[name].num_examples)
        yield from _read(folder, manifest, name, 0, size)
        count -= size


def _find_key(root: AnyPath, manifest: Manifest, key: str) -> Found:
    rejects: list[Reject] = []
    if manifest.totals.rejected:
        # the file only adds a reason to the message: without it, the key is reported as unknown
        with suppress(InputError):
            rejects = read_rejects(root, manifest)
    wanted = os.fsencode(key)
    for reject in rejects:
        if to_bytes(reject.key) == wanted:
            raise InputError(
                "key-rejected", root=root, key=reject.key, reason=reject.reason, detail=reject.detail
            )
    for name, split in manifest.splits.items() if manifest.schema.key else ():
        number = int(keys.find(root, split.shards, [wanted])[0])
        if number >= 0:
            return next(_read(root, manifest, name, number, number + 1))
    raise InputError("key-unknown", root=root, key=key, position=f"{next(iter(manifest.splits))}:0")


def _has_row_numbers(root: AnyPath, manifest: Manifest) -> bool:
    """Return whether the first key is a row number."""
    held = [shard for shard in manifest.shards if shard.num_examples]
    if not (held and manifest.schema.key):
        return False
    return keys.keys_at(root, held[:1], np.array([0]))[0].isdigit()


def _read(root: AnyPath, manifest: Manifest, split: str, start: int, stop: int) -> Iterator[Found]:
    """Yield some examples of a split by their numbers, without reading other records."""
    numbers = np.arange(start, stop)
    for _, shard, rows, records in rows_by_shard(manifest.splits[split].shards, numbers):
        index, problems = read_index(root, shard)
        if index is None:
            subject = f"{root}: the index of a shard (`tfshards verify {root} --repair` rebuilds it)"
            raise FormatError(subject, problems)
        path = root / shard.path
        frames = read_some(path, manifest.compression, index, records)
        for number, frame in zip(numbers[rows].tolist(), frames, strict=True):
            values, fault = parse_record(frame.require_data(path), manifest)
            if fault:
                raise RecordError(path, frame.number, frame.offset, fault)
            yield Found(manifest.schema, split, number, shard.path, frame.number, values)


def description(feature: Feature, schema: Schema, values: Decoded) -> str:
    """Return one value as text, in a line without control characters."""
    if feature.is_encoded:
        return f"{_image_text(values)}, {size(len(_only_bytes(values)))}"
    if feature.is_text:
        return _shorten([_text_of(value) for value in values if isinstance(value, bytes)])
    if classes := _classes(feature, schema, values):
        return _shorten([f"{label} ({name})" for label, name in zip(values, classes, strict=True)])
    shown = values if feature.dtype == "bfloat16" else _elements(feature, values)
    dims = ", ".join("?" if dim is None else str(dim) for dim in feature.shape)
    return f"{feature.dtype} [{dims}]: {_shorten(shown)}"


def _json_of(feature: Feature, schema: Schema, values: Decoded) -> Json:
    if feature.is_encoded:
        return {"image": _image_text(values), "num_bytes": len(_only_bytes(values))}
    if feature.is_raw and feature.dtype in UNCOMMON_DTYPES:
        return {"dtype": feature.dtype, "hex": _only_bytes(values).hex()}
    found = _elements(feature, values)
    if classes := _classes(feature, schema, values):
        return {"labels": found, "classes": classes}
    return found[0] if feature.shape == () and found else found


def _elements(feature: Feature, values: Decoded) -> list[Any]:
    """Return numbers, and byte strings as text."""
    if feature.is_raw:
        array = np.frombuffer(_only_bytes(values), np.dtype(feature.dtype).newbyteorder("<"))
        return cast("list[Any]", array.tolist())
    return [os.fsdecode(value) if isinstance(value, bytes) else value for value in values]


def _classes(feature: Feature, schema: Schema, values: Decoded) -> list[Json]:
    """Return the class name of each label; nothing if the feature has none."""
    names = schema.class_names if feature.is_label else ()
    labels = map(int, values) if names else ()
    return ["no class" if label < 0 else escaped(names[label]) for label in labels]


def _image_text(values: Decoded) -> str:
    """Return what an encoded image is as text; without Pillow, which reads its header, only the format."""
    data = _only_bytes(values)
    try:
        from tfshards.prep.imaging.stored import describe
    except ModuleNotFoundError:
        found = format_of(data[:HEAD_BYTES])
        return found.name if found else "image"
    return describe(data)


def _text_of(value: bytes) -> str:
    """Return bytes as text, and only the first of many."""
    text = escaped(os.fsdecode(value[:_SHOWN_BYTES]))
    return text if len(value) <= _SHOWN_BYTES else f"{text}… ({size(len(value))} in all)"


def _only_bytes(values: Decoded) -> bytes:
    return next(value for value in values if isinstance(value, bytes))


def _shorten(values: Sequence[object]) -> str:
    if not values:
        return "none"
    shown = ", ".join(str(value) for value in values[:_SHOWN_ELEMENTS])
    return f"{shown}, … ({len(values)} in all)" if len(values) > _SHOWN_ELEMENTS else shown
