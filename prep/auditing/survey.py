"""Read from the records what an audit compares: a hundred bytes for each example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.auditing.similar import HASHED_SIDE, perceptual_hash
from tfshards.prep.imaging.pixels import stored_picture
from tfshards.prep.imaging.stored import glance, glance_at
from tfshards.prep.progress.lines import Meter
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.records.frames import RecordError, read_records
from tfshards.prep.records.values import compared_features, content_digest, key_text, parse_record
from tfshards.schemas import Feature, InputError, Manifest, Schema, Shard
from tfshards.schemas.errors import counted
from tfshards.schemas.index import FRAME_OVERHEAD
from tfshards.schemas.pixels import pixel_images
from tfshards.schemas.storage import AnyPath

# What is read of each example: an array of dtype EXAMPLE.
Examples: TypeAlias = npt.NDArray[np.void]
EXAMPLE = np.dtype(
    [
        ("split", np.int64),  # position among the splits, the largest first
        ("number", np.int64),  # in the split
        ("key", np.object_),  # as text; the shard and the number of the record where it has none
        ("label", np.int64),  # or NO_LABEL
        ("digest", "V16"),  # of the bytes that are compared
        ("size", np.int64, 2),  # width and height in pixels; 0 where unknown
        ("num_bytes", np.int64),  # of the image file; 0 where there is none
        ("hash", np.uint64, 4),
        ("is_hashed", np.bool_),
        ("fault", np.object_),  # why the image cannot be decoded
    ]
)
NO_LABEL = -(1 << 63)
# A picture whose brightest and darkest gray differ by less has no shape: all blank pages have the same hash.
_FLAT_RANGE = 16


def image_features(schema: Schema) -> list[Feature]:
    """Return the features that hold images, encoded or as pixels."""
    names = [one.name for one in schema.features if one.is_image] + [*pixel_images(schema.features)]
    return [schema[name] for name in names]


def compared_of(schema: Schema) -> list[Feature]:
    """Return the compared features: the first image, else all but key and label."""
    return image_features(schema)[:1] or compared_features(schema)


def by_size(manifest: Manifest) -> list[str]:
    """Return the names of the splits, the largest first."""
    return sorted(manifest.splits, key=lambda name: -manifest.splits[name].num_examples)


def survey(root: AnyPath, manifest: Manifest, *, is_hashed: bool) -> Examples:
    """Read all records, one shard per thread; decode the images and hash them if ``is_hashed``.

    Returns:
        All examples: those of the largest split first, in a split those with the largest images.

    Raises:
        RecordError: a record is damaged, or does not match the schema.
        InputError: a shard holds more or fewer records than the manifest lists.
    """
    splits = enumerate(by_size(manifest))
    shards = [(split, shard) for split, name in splits for shard in manifest.splits[name].shards]

    def read(item: tuple[int, Shard], tick: Tick) -> Examples:
        return np.array([*_read(root, item[1], manifest, item[0], is_hashed, tick)], EXAMPLE)

    with Meter("audit", sum(shard.record_bytes for _, shard in shards)) as meter:
        examples = np.concatenate(in_threads(read, shards, meter.add))
    split = examples["split"]
    examples["number"] = np.arange(len(examples)) - np.searchsorted(split, split)
    return examples[np.lexsort((-examples["num_bytes"], -examples["size"].prod(axis=1), split))]


def _read(
    root: AnyPath, shard: Shard, manifest: Manifest, split: int, is_hashed: bool, tick: Tick
) -> Iterator[tuple[object, ...]]:
    """Yield a row for each example of a shard; its number in the split is not known yet."""
    path, schema, count = root / shard.path, manifest.schema, 0
    label, compared = schema.label, compared_of(schema)
    image = next(iter(image_features(schema)), None)
    digest = content_digest(Schema(tuple(compared))) if compared else lambda _: "00" * 16
    for record, (offset, data) in enumerate(read_records(path, manifest.compression)):
        values, fault = parse_record(data, manifest)
        if fault:
            raise RecordError(path, record, offset, fault)
        number = int(values[label.name][0]) if label else NO_LABEL
        # among named classes -1 means no class
        number = NO_LABEL if number < 0 and schema.class_names else number
        content = [values[one.name][0] if one.is_single else values[one.name] for one in compared]
        size, num_bytes, hashed, fault = (0, 0), 0, None, ""
        if image is not None:
            encoded = cast("bytes", content[0])
            num_bytes = len(encoded)
            try:
                size, hashed = _looked_at(encoded, image, HASHED_SIDE if is_hashed else 0)
            except ValueError as error:
                fault = str(error)
        key, same = key_text(values, f"record {record} of {shard.path}"), bytes.fromhex(digest(content))
        bits = (0, 0, 0, 0) if hashed is None else tuple(hashed.tolist())
        yield split, 0, key, number, same, size, num_bytes, bits, hashed is not None, fault
        count = record + 1
        tick(len(data) + FRAME_OVERHEAD)
    if count != shard.num_examples:
        raise InputError(
            f"{path} holds {counted(count, 'record')}, but the manifest lists {shard.num_examples:,}; "
            "'tfshards verify' reports every problem"
        )


def _looked_at(
    data: bytes, feature: Feature, side: int
) -> tuple[tuple[int, int], npt.NDArray[np.uint64] | None]:
    """Return the size of an image, and its hash if there is a ``side`` and it has a shape."""
    size, gray = glance(data, side) if feature.is_encoded else glance_at(stored_picture(data, feature), side)
    pixels = np.zeros(1, np.uint8) if gray is None else np.asarray(gray)
    is_flat = int(pixels.max()) - int(pixels.min()) < _FLAT_RANGE
    return size, None if is_flat else perceptual_hash(pixels)
