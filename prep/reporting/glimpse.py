"""Choose records by indexes and labels, read them, and keep of each what a page shows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.imaging.pillow import Picture
from tfshards.prep.imaging.stored import (
    StoredHeader,
    draw_boxes,
    draw_mask,
    encoded_small,
    header_of,
    thumbnail,
    thumbnail_of_pixels,
)
from tfshards.prep.progress.lines import Meter
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.records.example import Decoded
from tfshards.prep.records.frames import FrameReader, RecordError
from tfshards.prep.records.values import parse_record
from tfshards.prep.reporting.options import BoxMeaning, boxes_in
from tfshards.prep.verification.show import description
from tfshards.schemas import Feature, Manifest, Problem, Schema, Shard
from tfshards.schemas.companions import read_index, read_labels
from tfshards.schemas.digests import STEP, mixed
from tfshards.schemas.files import file_sizes
from tfshards.schemas.index import FOOTER_BYTES, FRAME_OVERHEAD, HEADER_BYTES, IntArray, RecordIndex
from tfshards.schemas.storage import AnyPath

_MASK = (1 << 64) - 1


@dataclass(frozen=True, eq=False)
class IndexedShard:
    """One shard, in the order of the manifest.

    Attributes:
        split: name of its split.
        shard: its entry in the manifest.
        first: number in the split of its first example.
        index: its index; None if the shard or a file that belongs to it is damaged or missing.
        labels: int64 of shape ``(num_examples,)``; None without labels, or if they are damaged.
    """

    split: str
    shard: Shard
    first: int
    index: RecordIndex | None
    labels: IntArray | None


# eq=False: arrays compare element by element, so that instances would have no truth value
@dataclass(frozen=True, eq=False)
class Catalog:
    """All records that can be located, numbered in the order of splits and shards.

    Attributes:
        parts: the shards.
        starts: int64 of shape ``(shards + 1,)``: the row of the first record of each shard.
        labels: int64 of shape ``(rows,)``; None if the schema has no label.
        num_bytes: int64 of shape ``(rows,)``: number of bytes of each record without its frame.
        problems: what is wrong with files; records of those shards are not in the catalog.
    """

    parts: tuple[IndexedShard, ...]
    starts: IntArray
    labels: IntArray | None
    num_bytes: IntArray
    problems: tuple[Problem, ...]

    @property
    def num_rows(self) -> int:
        """Number of records that can be located."""
        return int(self.starts[-1])

    def row_of(self, split: str, number: int) -> int | None:
        """Return the row of an example by its number in a split, or None if it cannot be located."""
        for part, start in zip(self.parts, self.starts.tolist(), strict=False):
            if part.split == split and part.first <= number < part.first + part.shard.num_examples:
                return None if part.index is None else start + number - part.first
        return None

    def by_part(self, rows: Sequence[int]) -> Iterator[tuple[IndexedShard, list[tuple[int, int]]]]:
        """Yield each shard with the wanted records in it, as (row, record number), ascending."""
        ordered = np.unique(np.asarray(rows, np.int64))
        of = np.searchsorted(self.starts, ordered, side="right") - 1
        for place in np.unique(of).tolist():
            inside = ordered[of == place]
            records = (inside - self.starts[place]).tolist()
            yield self.parts[place], list(zip(inside.tolist(), records, strict=True))

    def some(self, count: int, seed: int) -> IntArray:
        """Return at most ``count`` rows, chosen by seed, ascending."""
        if self.num_rows <= count:
            return np.arange(self.num_rows, dtype=np.int64)
        return np.sort(np.argpartition(_scores(self.num_rows, seed), count)[:count])

    def some_of_each(self, count: int, seed: int) -> Mapping[int, list[int]]:
        """Return for each label at most ``count`` of its rows, chosen by seed; without labels for label 0."""
        labels = np.zeros(self.num_rows, np.int64) if self.labels is None else self.labels
        order = np.lexsort((_scores(self.num_rows, seed), labels))
        found, firsts = np.unique(labels[order], return_index=True)
        ends = np.append(firsts[1:], len(order))
        return {
            label: order[first : min(first + count, end)].tolist()
            for label, first, end in zip(found.tolist(), firsts.tolist(), ends.tolist(), strict=True)
        }


def read_catalog(root: AnyPath, manifest: Manifest) -> Catalog:
    """Read the indexes and labels of all shards, and compare the sizes of the files with the manifest."""
    sizes = file_sizes(root, [shard.path for shard in manifest.shards])
    places = [
        (name, shard, first)
        for name, split in manifest.splits.items()
        for shard, first in zip(split.shards, _firsts(split.shards), strict=True)
    ]

    def read(place: tuple[str, Shard, int], tick: Tick) -> tuple[IndexedShard, list[Problem]]:
        tick(0)
        name, shard, first = place
        problems = _size_problems(shard, sizes[shard.path])
        index, of_index = read_index(root, shard)
        labels, of_labels = read_labels(root, shard) if shard.labels_digest else (None, [])
        problems += of_index + of_labels
        return IndexedShard(name, shard, first, None if problems else index, labels), problems

    found = in_threads(read, places, lambda _: None)
    parts = tuple(part for part, _ in found)
    lengths = [part.index.lengths if part.index else np.zeros(0, np.int64) for part in parts]
    labels = None
    if manifest.schema.label is not None:
        sound = [part.labels for part in parts if part.index is not None and part.labels is not None]
        labels = np.concatenate([np.zeros(0, np.int64), *sound])
    return Catalog(
        parts,
        np.cumsum([0, *map(len, lengths)], dtype=np.int64),
        labels,
        np.concatenate([np.zeros(0, np.int64), *lengths]) - FRAME_OVERHEAD,
        tuple(problem for _, problems in found for problem in problems),
    )


def _firsts(shards: Sequence[Shard]) -> list[int]:
    counts = [shard.num_examples for shard in shards]
    return [end - count for end, count in zip(accumulate(counts), counts, strict=True)]


def _size_problems(shard: Shard, size: int | OSError) -> list[Problem]:
    if isinstance(size, OSError):
        return [Problem(shard.path, f"cannot be read: {size.strerror}")]
    if size != shard.num_bytes:
        return [Problem(shard.path, f"has {size} bytes, but the manifest lists {shard.num_bytes}")]
    return []


def _scores(count: int, seed: int) -> npt.NDArray[np.uint64]:
    """Return a random number for each row, which depends on nothing but the seed and the row."""
    start = mixed(np.array([seed & _MASK], np.uint64))
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(STEP)
    return mixed(steps + start)


_PIXEL_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Want:
    """What is wanted of a record, in addition to its key and its sizes.

    Attributes:
        side: side in pixels of the square that its thumbnail fits; 0 for no thumbnail.
        has_marks: whether to draw masks and boxes in the thumbnail.
        has_text: whether to describe the values of all features.
    """

    side: int = 0
    has_marks: bool = False
    has_text: bool = False


@dataclass(frozen=True)
class Glimpse:
    """What a page shows of one example.

    Attributes:
        split: its split.
        number: its number in the split.
        key: its key; its shard and the number of its record if it has none.
        label: its label; None without one.
        header: what the header of its first image states, and None without images.
        num_bytes: number of bytes of its first encoded image; 0 without images.
        picture: a thumbnail as WebP; None if none was wanted or can be made.
        size: width and height of the thumbnail in pixels.
        marks: class numbers of the boxes that were drawn; -1 for boxes without classes.
        text: the features as text, by name.
        fault: why there is no thumbnail, or why the record cannot be read.
    """

    split: str
    number: int
    key: str
    label: int | None = None
    header: StoredHeader | None = None
    num_bytes: int = 0
    picture: bytes | None = None
    size: tuple[int, int] = (0, 0)
    marks: tuple[int, ...] = ()
    text: Mapping[str, str] = field(default_factory=dict)
    fault: str | None = None


@dataclass(frozen=True)
class Roles:
    """The features from which pictures are drawn.

    Attributes:
        image: the first image, or the first feature that holds pixels; None without any.
        mask: the first mask.
        boxes: what the boxes mean; None without boxes.
        categories: the feature with a class number for each box.
    """

    image: Feature | None
    mask: Feature | None = None
    boxes: BoxMeaning | None = None
    categories: Feature | None = None


def image_of(schema: Schema) -> Feature | None:
    """Return the feature that thumbnails show: the first image, or the first array that can be pixels."""
    images = [feature for feature in schema.features if feature.kind == "image"]
    pixels = [feature for feature in schema.features if _is_pixels(feature)]
    return next(iter([*images, *pixels]), None)


def look(
    root: AnyPath, manifest: Manifest, catalog: Catalog, wanted: Mapping[int, Want], roles: Roles
) -> dict[int, Glimpse]:
    """Return what was wanted of each row of the catalog; one shard per thread.

    Args:
        root: folder of the dataset.
        manifest: its manifest.
        catalog: its records.
        wanted: what is wanted, by row.
        roles: the features that are drawn.
    """

    def read(item: tuple[IndexedShard, list[tuple[int, int]]], tick: Tick) -> dict[int, Glimpse]:
        return dict(_glimpses(root, manifest, item, wanted, roles, tick))

    parts = list(catalog.by_part(list(wanted)))
    with Meter("report", int(catalog.num_bytes[list(wanted)].sum())) as meter:
        return {row: one for some in in_threads(read, parts, meter.add) for row, one in some.items()}


def read_values(
    root: AnyPath, manifest: Manifest, part: IndexedShard, records: list[int], tick: Tick
) -> Iterator[tuple[int, dict[str, Decoded] | str]]:
    """Yield record number and values of records of one shard, or why one cannot be read."""
    assert part.index is not None
    try:
        reader = FrameReader(root / part.shard.path, manifest.compression, part.index)
    except OSError as error:
        yield from ((record, f"the shard cannot be read: {error.strerror}") for record in records)
        return
    try:
        for record in records:
            try:
                data, _ = reader.read(record)
            except (RecordError, OSError) as error:
                yield record, error.fault if isinstance(error, RecordError) else str(error.strerror)
                continue
            tick(len(data))
            values, fault = parse_record(data[HEADER_BYTES:-FOOTER_BYTES], manifest)
            yield record, fault or values
    finally:
        reader.close()


def _glimpses(
    root: AnyPath,
    manifest: Manifest,
    item: tuple[IndexedShard, list[tuple[int, int]]],
    wanted: Mapping[int, Want],
    roles: Roles,
    tick: Tick,
) -> Iterator[tuple[int, Glimpse]]:
    part, places = item
    rows = {record: row for row, record in places}
    for record, values in read_values(root, manifest, part, [record for _, record in places], tick):
        row = rows[record]
        unnamed = f"record {record} of {part.shard.path}"
        if isinstance(values, str):
            yield row, Glimpse(part.split, part.first + record, unnamed, fault=values)
        else:
            key = _key_of(values) or unnamed
            yield row, _glimpse(part.split, part.first + record, key, values, manifest, wanted[row], roles)


def _glimpse(
    split: str,
    number: int,
    key: str,
    values: dict[str, Decoded],
    manifest: Manifest,
    want: Want,
    roles: Roles,
) -> Glimpse:
    label = manifest.schema.label
    header, num_bytes = None, 0
    if roles.image is not None and roles.image.is_encoded:
        data = cast("bytes", values[roles.image.name][0])
        header, num_bytes = header_of(data), len(data)
    picture: Picture | None = None
    fault: str | None = None
    marks: tuple[int, ...] = ()
    if want.side and roles.image is not None:
        try:
            picture, marks = _drawn(values, want, roles, header)
        except ValueError as error:
            fault = str(error)
    features = manifest.schema.features if want.has_text else ()
    return Glimpse(
        split,
        number,
        key,
        int(values[label.name][0]) if label else None,
        header,
        num_bytes,
        encoded_small(picture) if picture else None,
        picture.size if picture else (0, 0),
        marks,
        {one.name: description(one, manifest.schema, values[one.name]) for one in features},
        fault,
    )


def _drawn(
    values: dict[str, Decoded], want: Want, roles: Roles, header: StoredHeader | None
) -> tuple[Picture, tuple[int, ...]]:
    """Return a thumbnail, and the class numbers of the boxes in it."""
    image = roles.image
    assert image is not None
    data = cast("bytes", values[image.name][0])
    if not image.is_encoded:
        shape = tuple(dim or 0 for dim in image.shape)
        return thumbnail_of_pixels(np.frombuffer(data, np.uint8).reshape(shape), want.side), ()
    boxes = roles.boxes if want.has_marks else None
    # boxes in pixels refer to the stored image
    picture = thumbnail(data, want.side, is_upright=boxes is None or boxes.is_normalized)
    if want.has_marks and roles.mask is not None:
        picture = draw_mask(picture, cast("bytes", values[roles.mask.name][0]))
    if boxes is None or header is None:
        return picture, ()
    edges = boxes.edges(boxes_in(values[boxes.feature]), (header.width, header.height))
    labels = cast("list[int]", values[roles.categories.name]) if roles.categories else []
    classes = tuple(labels) if len(labels) == len(edges) else (-1,) * len(edges)
    return draw_boxes(picture, edges, [max(label, 0) for label in classes]), classes


def _is_pixels(feature: Feature) -> bool:
    shape = feature.shape
    is_picture = len(shape) == 2 or (len(shape) == 3 and shape[2] in _PIXEL_CHANNELS)
    return feature.kind == "raw" and feature.dtype == "uint8" and is_picture and all(shape)


def _key_of(values: Mapping[str, Decoded]) -> str | None:
    found = values.get("key", [])
    if len(found) != 1:
        return None
    return os.fsdecode(found[0]) if isinstance(found[0], bytes) else str(found[0])
