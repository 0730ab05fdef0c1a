"""Find examples of a dataset by key or by position, and describe their values."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeVar, cast

import numpy as np

from tfshards.prep.engines.work import Tick, in_threads
from tfshards.prep.imaging.formats import HEAD_BYTES, format_of
from tfshards.prep.progress.lines import Meter
from tfshards.prep.records.frames import RecordError, read_parts
from tfshards.prep.records.values import parse_record
from tfshards.prep.sources.keys import to_text
from tfshards.schemas import (
    Feature,
    InputError,
    Manifest,
    OptionsError,
    Schema,
    keys,
    read_manifest,
)
from tfshards.schemas.columns import numbers_in
from tfshards.schemas.companions import require_index
from tfshards.schemas.errors import size
from tfshards.schemas.example import Decoded
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.split import rows_by_shard
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.summary import escaped

T = TypeVar("T")
_SHOWN_ELEMENTS = 8
_SHOWN_BYTES = 200
_POSITION = re.compile(r"(.+):([0-9]{1,18})")


@dataclass(frozen=True, repr=False)
class Found:
    """One example of a dataset."""

    schema: Schema
    split: str
    number: int
    shard: str
    record: int
    values: dict[str, Decoded]

    @property
    def key(self) -> str:
        """Its key as text, independently of the locale; its record and shard if it has none."""
        key = next(iter(self.values.get("key", ())), f"record {self.record} of {self.shard}")
        return to_text(key) if isinstance(key, bytes) else str(key)

    def __repr__(self) -> str:
        """Return the position of the example, and a line for each feature."""
        position = f"split {self.split}, example {self.number}, record {self.record} of {self.shard}"
        features = [(one, self.values[one.name]) for one in self.schema.features]
        return "\n".join(
            [position, *(f"{one.name}: {description(one, self.schema, v)}" for one, v in features)]
        )

    def to_json(self) -> dict[str, Json]:
        """Return the example as JSON values: of an image, or of complex numbers, the text."""
        features = {
            one.name: _json_of(one, self.schema, self.values[one.name]) for one in self.schema.features
        }
        place = {name: getattr(self, name) for name in ("split", "number", "shard", "record")}
        return {**place, "features": features}


def show(
    dataset: str | os.PathLike[str],
    key: str | None = None,
    *,
    first: int | None = None,
) -> Iterator[Found]:
    """Show examples by key or by position, the first one by default; only their records are read.

    Args:
        dataset: folder of the dataset, or its URL.
        key: key of the example (path relative to the image folder, or row number), or its position as
            SPLIT:NUMBER. With "first", a split.
        first: number of examples from the start of the split, or of all splits one after another.

    Returns:
        An iterator of the examples, which are read as they are needed.

    Raises:
        OptionsError: ``first`` is less than 1.
        InputError: there is no such dataset, split or example.
        FormatError: an index is damaged.
        RecordError: a record is damaged.
    """
    if first is not None and first < 1:
        raise OptionsError(f"first={first} must be at least 1")
    manifest, folder = read_manifest(dataset), any_path(dataset)
    if first is None and key is not None:
        split, number = _position(folder, manifest, key)
        return examples_at(folder, manifest, split, np.array([number]))
    return _first(folder, manifest, key, first or 1)


def _first(root: AnyPath, manifest: Manifest, split: str | None, count: int) -> Iterator[Found]:
    if split is not None and split not in manifest.splits:
        names = ", ".join(map(repr, manifest.splits))
        raise InputError(f"{root} has no split {split!r}; the splits are {names}")
    found = (
        examples_at(root, manifest, name, np.arange(min(count, manifest.splits[name].num_examples)))
        for name in ([split] if split else manifest.splits)
    )
    return islice(chain.from_iterable(found), count)


def _position(root: AnyPath, manifest: Manifest, key: str) -> tuple[str, int]:
    """Return the split and the number of the example with a key, or at a position."""
    position = _POSITION.fullmatch(key)
    if position and (split := position[1]) in manifest.splits:
        number, count = int(position[2]), manifest.splits[split].num_examples
        if number >= count:
            raise InputError(
                f"split {split!r} of {root} has {count} examples, numbered from 0; {key} is not one of them"
            )
        return split, number
    wanted = os.fsencode(key)
    for name, of in manifest.splits.items() if manifest.schema.key else ():
        number = int(keys.find(root, of.shards, [wanted])[0])
        if number >= 0:
            return name, number
    first = next(iter(manifest.splits))
    raise InputError(
        f"{root} has no example with the key {key!r}; give a key, or a position such as {first}:0",
        code="key-unknown",
    )


def examples_at(root: AnyPath, manifest: Manifest, split: str, numbers: IntArray) -> Iterator[Found]:
    """Yield some examples of a split by their numbers, without reading other records."""
    for _, shard, rows, records in rows_by_shard(manifest.splits[split].shards, numbers):
        path, first = root / shard.path, int(numbers[rows[0]] - records[0])
        for part in read_parts(path, manifest.compression, require_index(root, shard), records):
            for record, offset, data in zip(part.numbers, part.offsets, part.data, strict=True):
                try:
                    values = parse_record(data, manifest)
                except ValueError as error:
                    raise RecordError(path, record, offset, str(error)) from None
                yield Found(manifest.schema, split, first + record, shard.path, record, values)


def look_at(
    root: AnyPath,
    manifest: Manifest,
    chosen: Mapping[str, IntArray],
    look: Callable[[Iterator[Found]], T],
    label: str,
) -> list[T]:
    """Return what ``look`` returns for the examples of each shard, in stored order; one shard per thread.

    Args:
        root: folder of the dataset.
        manifest: its manifest.
        chosen: numbers of the examples in each split, ascending; shards without any are not read.
        look: receives the examples of one shard, and takes all of them.
        label: what the progress bar is about.
    """
    items = [
        (name, numbers[rows], shard.record_bytes // max(1, shard.num_examples))
        for name, numbers in chosen.items()
        for _, shard, rows, _ in rows_by_shard(manifest.splits[name].shards, numbers)
    ]

    def read(item: tuple[str, IntArray, int], tick: Tick) -> T:
        def ticking() -> Iterator[Found]:
            for found in examples_at(root, manifest, *item[:2]):
                yield found
                tick(item[2])

        return look(ticking())

    with Meter(label, sum(len(numbers) * mean_bytes for _, numbers, mean_bytes in items)) as meter:
        return in_threads(read, items, meter.add)


def description(feature: Feature, schema: Schema, values: Decoded) -> str:
    """Return one value as text, in a line without control characters."""
    if feature.is_encoded:
        return f"{_image_text(values)}, {size(len(_only_bytes(values)))}"
    dims, shown = "", cast("Sequence[object]", values)
    if feature.is_text:
        shown = [_text_of(value) for value in cast("list[bytes]", values)]
    elif feature.is_label and schema.class_names:
        shown = [f"{label} ({escaped(schema.class_name(label))})" for label in map(int, values)]
    else:
        shown = _elements(feature, values)
        dims = f"{feature.dtype} [{', '.join('?' if dim is None else str(dim) for dim in feature.shape)}]: "
    some = ", ".join(map(str, shown[:_SHOWN_ELEMENTS])) or "none"
    return f"{dims}{some}" + f", … ({len(shown)} in all)" * (len(shown) > _SHOWN_ELEMENTS)


def _json_of(feature: Feature, schema: Schema, values: Decoded) -> Json:
    if feature.is_encoded or feature.dtype.startswith("complex"):
        return description(feature, schema, values)
    found = _elements(feature, values)
    return found[0] if feature.shape == () and found else found


def _elements(feature: Feature, values: Decoded) -> list[Any]:
    """Return numbers, and byte strings as text."""
    if feature.is_raw:
        return cast("list[Any]", numbers_in(feature, _only_bytes(values)).tolist())
    return [os.fsdecode(value) if isinstance(value, bytes) else value for value in values]


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
    return cast("bytes", values[0])
