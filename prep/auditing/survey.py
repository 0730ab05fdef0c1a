"""Read from the records what an audit compares: a hundred bytes for each example."""

from __future__ import annotations

from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.auditing.similar import HASHED_SIDE, perceptual_hash
from tfshards.prep.imaging.stored import gray_copy, stored_image
from tfshards.prep.records.values import compared_features, content_digest
from tfshards.prep.verification.show import Found, look_at
from tfshards.schemas import Feature, Manifest, Schema
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
    """Read all records; decode the images and hash them if ``is_hashed``.

    Returns:
        All examples: those of the largest split first, in a split those with the largest images.

    Raises:
        FormatError: an index is missing or damaged.
        RecordError: a record is damaged, or does not match the schema.
    """
    splits, schema = by_size(manifest), manifest.schema
    compared, image = compared_of(schema), next(iter(image_features(schema)), None)
    names, has_names = [(one.name, one.is_single) for one in compared], bool(schema.class_names)
    label_name = schema.label.name if schema.label else ""
    digest = content_digest(Schema(tuple(compared))) if compared else lambda _: "00" * 16

    def row(found: Found) -> tuple[object, ...]:
        label = int(found.values[label_name][0]) if label_name else NO_LABEL
        # among named classes -1 means no class
        label = NO_LABEL if label < 0 and has_names else label
        content = [found.values[name][0] if is_single else found.values[name] for name, is_single in names]
        num_bytes, size, hashed, fault = 0, (0, 0), None, ""
        if image is not None:
            num_bytes = len(cast("bytes", content[0]))
            try:
                size, hashed = _looked_at(cast("bytes", content[0]), image, HASHED_SIDE if is_hashed else 0)
            except ValueError as error:
                fault = str(error)
        same, bits = bytes.fromhex(digest(content)), (0,) * 4 if hashed is None else tuple(hashed.tolist())
        place = splits.index(found.split), found.number, found.key
        return *place, label, same, size, num_bytes, bits, hashed is not None, fault

    everything = {name: np.arange(manifest.splits[name].num_examples) for name in splits}
    parts = look_at(root, manifest, everything, lambda some: np.array([*map(row, some)], EXAMPLE), "audit")
    examples: Examples = np.concatenate([np.zeros(0, EXAMPLE), *parts])
    sizes = -examples["size"].prod(axis=1)
    return examples[np.lexsort((-examples["num_bytes"], sizes, examples["split"]))]


def _looked_at(
    data: bytes, feature: Feature, side: int
) -> tuple[tuple[int, int], npt.NDArray[np.uint64] | None]:
    """Return the size of an image, and its hash if there is a ``side`` and it has a shape."""
    with stored_image(data, feature) as image:
        size = image.size
        if not side:
            return size, None
        pixels = np.asarray(gray_copy(image, side))
    is_flat = int(pixels.max()) - int(pixels.min()) < _FLAT_RANGE
    return size, None if is_flat else perceptual_hash(pixels)
