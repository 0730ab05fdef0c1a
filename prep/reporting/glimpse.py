"""Read chosen examples, and keep of each what a page shows: a picture with its marks, and values as text."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from tfshards.prep.imaging.coordinates import edges_of
from tfshards.prep.imaging.pillow import Header, Picture
from tfshards.prep.imaging.pixels import stored_picture
from tfshards.prep.imaging.stored import stored_header
from tfshards.prep.progress.lines import Meter
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.reporting.catalog import Catalog, ShardExamples
from tfshards.prep.reporting.drawing import (
    Edges,
    draw_boxes,
    draw_mask,
    draw_points,
    encoded_small,
    thumbnail,
    thumbnail_of,
)
from tfshards.prep.verification.show import description
from tfshards.schemas import Feature, Manifest, Schema
from tfshards.schemas.coordinates import Coordinates, coordinates_of, seems_boxes
from tfshards.schemas.example import Decoded
from tfshards.schemas.pixels import as_image, pixel_images


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
    header: Header | None = None
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
class DrawnBoxes:
    """A feature with boxes, and one with their class numbers, if there is one."""

    feature: str
    categories: str | None
    # None if nothing states it; then they are not drawn
    format: Coordinates | None

    def edges(self, values: Decoded, size: tuple[int, int]) -> tuple[list[Edges], bool]:
        """Return the edges of finite boxes as fractions of an image, and whether they are stored so."""
        if self.format is None:
            return [], True
        boxes = np.asarray(values, np.float64).reshape(-1, 4)
        corners = edges_of(boxes[np.isfinite(boxes).all(axis=1)], self.format.order)
        if not self.format.is_normalized:
            corners = corners / [*size, *size]
        return [cast("Edges", tuple(row)) for row in corners.tolist()], self.format.is_normalized


@dataclass(frozen=True)
class DrawnPoints:
    """A feature with keypoints."""

    feature: str
    format: Coordinates

    def shares(self, values: Decoded, size: tuple[int, int]) -> list[tuple[float, float]]:
        """Return the labeled keypoints as fractions of the width and height of an image."""
        rows = np.asarray(values, np.float64).reshape(-1, len(self.format.order))
        is_shown = np.isfinite(rows).all(axis=1)
        if self.format.order == "xyv":
            is_shown &= rows[:, 2] > 0
        points = rows[is_shown, :2] if self.format.is_normalized else rows[is_shown, :2] / size
        return [(x, y) for x, y in points.tolist()]


@dataclass(frozen=True)
class Roles:
    """The features from which pictures are drawn: the first image, or feature of pixels, and its marks."""

    image: Feature | None
    mask: Feature | None = None
    boxes: DrawnBoxes | None = None
    points: DrawnPoints | None = None


def roles_of(manifest: Manifest, given: str | None) -> Roles:
    """Return the features from which pictures are drawn; ``given`` is the format of boxes, if stated."""
    image = image_of(manifest.schema)
    if image is None or not image.is_encoded:
        return Roles(image)
    mask = next((feature for feature in manifest.schema.features if feature.is_mask), None)
    return Roles(image, mask, boxes_of(manifest, given), points_of(manifest))


def points_of(manifest: Manifest) -> DrawnPoints | None:
    """Return the first feature that is declared to hold keypoints."""
    found = coordinates_of(manifest.schema.features).items()
    return next((DrawnPoints(name, each) for name, each in found if not each.are_boxes), None)


def boxes_of(manifest: Manifest, given: str | None) -> DrawnBoxes | None:
    """Return the first feature that is declared to hold boxes, or may hold them and is named so.

    The user may have given the format.
    """
    known = {name: each for name, each in coordinates_of(manifest.schema.features).items() if each.are_boxes}
    named = [each.name for each in manifest.schema.features if seems_boxes(each)]
    names = [each for each in manifest.schema.names if each in known] or named
    if not names:
        return None
    # labels with the prefix of the boxes, such as ``objects/``
    name, prefix = names[0], names[0].rpartition("/")[0]
    lists = [one.name for one in manifest.schema.features if one.is_label and one.is_ragged]
    categories = next((each for each in lists if each.rpartition("/")[0] == prefix), None)
    return DrawnBoxes(name, categories, Coordinates.parse(given) if given else known.get(name))


def image_of(schema: Schema) -> Feature | None:
    """Return the feature that thumbnails show: the first image, or the first array that can be pixels."""
    images = [feature for feature in schema.features if feature.is_image]
    arrays = [schema[name] for name in pixel_images(schema.features)]
    return next(iter([*images, *arrays, *filter(as_image, schema.features)]), None)


def look(
    catalog: Catalog,
    roles: Roles,
    sides: Mapping[int, int],
    *,
    texts: Collection[int] = (),
    has_marks: bool = False,
) -> dict[int, Glimpse]:
    """Return what a page shows of some rows of the catalog; one shard per thread.

    A thumbnail fits a square whose side in pixels ``sides`` has by row, 0 for none; with ``has_marks``, masks
    and boxes are drawn in it. Of rows in ``texts``, the values of all features are described.
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
            header, num_bytes = stored_header(data), len(data)
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
    values: dict[str, Decoded], side: int, roles: Roles, header: Header | None
) -> tuple[Picture, tuple[int, ...]]:
    """Return a thumbnail, and the class numbers of the boxes in it; marks are drawn if a header is given."""
    image = cast("Feature", roles.image)
    data = cast("bytes", values[image.name][0])
    if not image.is_encoded:
        return thumbnail_of(stored_picture(data, image), side), ()
    if header is None:
        return thumbnail(data, side), ()
    boxes = roles.boxes if roles.boxes and roles.boxes.format else None
    points, size = roles.points, header.size
    edges, is_share = boxes.edges(values[boxes.feature], size) if boxes else ([], True)
    # boxes and keypoints in pixels refer to the stored image
    is_share &= points is None or points.format.is_normalized
    picture = thumbnail(data, side, is_upright=is_share)
    if roles.mask is not None:
        picture = draw_mask(picture, cast("bytes", values[roles.mask.name][0]))
    labels = cast("list[int]", values[boxes.categories]) if boxes and boxes.categories else []
    classes = tuple(labels) if len(labels) == len(edges) else (-1,) * len(edges)
    picture = draw_boxes(picture, edges, [max(label, 0) for label in classes])
    if points is not None:
        picture = draw_points(picture, points.shares(values[points.feature], size))
    return picture, classes


def _key_of(values: Mapping[str, Decoded]) -> str | None:
    found = values.get("key", [])
    if len(found) != 1:
        return None
    return os.fsdecode(found[0]) if isinstance(found[0], bytes) else str(found[0])
