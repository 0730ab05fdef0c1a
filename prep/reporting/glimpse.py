"""Read chosen examples, and keep of each what a page shows."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np

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
from tfshards.prep.reporting.boxes import BoxFormat, DrawnBoxes, boxes_of
from tfshards.prep.reporting.catalog import Catalog, ShardExamples
from tfshards.prep.verification.show import description
from tfshards.schemas import Feature, Manifest, Schema

_PIXEL_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Glimpse:
    """What a page shows of one example."""

    split: str
    # in the split
    number: int
    # or shard and number of the record
    key: str
    label: int | None = None
    # of the first encoded image
    header: StoredHeader | None = None
    num_bytes: int = 0
    # a thumbnail as WebP, with its width and height
    picture: bytes | None = None
    size: tuple[int, int] = (0, 0)
    # class numbers of the boxes that were drawn; -1 for boxes without classes
    marks: tuple[int, ...] = ()
    text: Mapping[str, str] = field(default_factory=dict)
    # why there is no thumbnail, or why the record cannot be read
    fault: str = ""


@dataclass(frozen=True)
class Roles:
    """The features from which pictures are drawn: the first image, or feature of pixels, and its marks."""

    image: Feature | None
    mask: Feature | None = None
    boxes: DrawnBoxes | None = None


def roles_of(manifest: Manifest, given: BoxFormat | None) -> Roles:
    """Return the features from which pictures are drawn; ``given`` is the format of boxes, if stated."""
    image = image_of(manifest.schema)
    if image is None or not image.is_encoded:
        return Roles(image)
    mask = next((feature for feature in manifest.schema.features if feature.kind == "mask"), None)
    return Roles(image, mask, boxes_of(manifest, given))


def image_of(schema: Schema) -> Feature | None:
    """Return the feature that thumbnails show: the first image, or the first array that can be pixels."""
    images = [feature for feature in schema.features if feature.kind == "image"]
    return next(iter([*images, *filter(_is_pixels, schema.features)]), None)


def look(
    catalog: Catalog,
    roles: Roles,
    sides: Mapping[int, int],
    *,
    texts: Collection[int] = (),
    has_marks: bool = False,
) -> dict[int, Glimpse]:
    """Return what a page shows of some rows of the catalog; one shard per thread.

    Args:
        catalog: the records.
        roles: the features that are drawn.
        sides: by row, the side in pixels of the square that its thumbnail fits; 0 for no thumbnail.
        texts: rows of which the values of all features are described.
        has_marks: whether to draw masks and boxes in the thumbnails.
    """
    schema = catalog.manifest.schema

    def glimpse(part: ShardExamples, row: int, record: int, values: dict[str, Decoded] | str) -> Glimpse:
        number, unnamed = part.first + record, f"record {record} of {part.shard.path}"
        if isinstance(values, str):
            return Glimpse(part.split, number, unnamed, fault=values)
        header, num_bytes, picture, fault = None, 0, None, ""
        marks: tuple[int, ...] = ()
        if roles.image is not None and roles.image.is_encoded:
            data = cast("bytes", values[roles.image.name][0])
            header, num_bytes = header_of(data), len(data)
        if sides[row] and roles.image is not None:
            try:
                picture, marks = _drawn(values, sides[row], roles, header if has_marks else None)
            except ValueError as error:
                fault = str(error)
        return Glimpse(
            part.split,
            number,
            _key_of(values) or unnamed,
            int(values[schema.label.name][0]) if schema.label else None,
            header,
            num_bytes,
            encoded_small(picture) if picture else None,
            picture.size if picture else (0, 0),
            marks,
            {one.name: description(one, schema, values[one.name]) for one in schema.features if row in texts},
            fault,
        )

    def read(item: tuple[ShardExamples, dict[int, int]], tick: Tick) -> Iterable[tuple[int, Glimpse]]:
        part, rows = item
        found = catalog.read(part, rows, tick)
        return [(row, glimpse(part, row, record, values)) for row, record, values in found]

    with Meter("report", int(catalog.num_bytes[list(sides)].sum())) as meter:
        return {
            row: one for part in in_threads(read, catalog.by_part([*sides]), meter.add) for row, one in part
        }


def _drawn(
    values: dict[str, Decoded], side: int, roles: Roles, header: StoredHeader | None
) -> tuple[Picture, tuple[int, ...]]:
    """Return a thumbnail, and the class numbers of the boxes in it; marks are drawn if a header is given."""
    image = cast("Feature", roles.image)
    data = cast("bytes", values[image.name][0])
    if not image.is_encoded:
        shape = tuple(dim or 0 for dim in image.shape)
        return thumbnail_of_pixels(np.frombuffer(data, np.uint8).reshape(shape), side), ()
    if header is None:
        return thumbnail(data, side), ()
    boxes = roles.boxes if roles.boxes and roles.boxes.format else None
    edges, is_share = (
        boxes.edges(values[boxes.feature], (header.width, header.height)) if boxes else ([], True)
    )
    # boxes in pixels refer to the stored image
    picture = thumbnail(data, side, is_upright=is_share)
    if roles.mask is not None:
        picture = draw_mask(picture, cast("bytes", values[roles.mask.name][0]))
    labels = cast("list[int]", values[boxes.categories]) if boxes and boxes.categories else []
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
