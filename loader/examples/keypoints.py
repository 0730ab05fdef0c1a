"""Move the keypoints of an image as the image is cropped, resized and flipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from tfshards.loader.examples.boxes import image_of
from tfshards.loader.examples.crops import flips_of
from tfshards.loader.options.boxes import Keypoints, PointFormat
from tfshards.loader.options.image import Image
from tfshards.loader.order.ops import Array, Ops
from tfshards.schemas import Feature, OptionsError
from tfshards.schemas.coordinates import Coordinates


def checked_keypoints(
    keypoints: Keypoints | None,
    features: Sequence[Feature],
    images: Mapping[str, Image],
    known: Mapping[str, Coordinates],
) -> Keypoints | None:
    """Return the options of keypoints with their format and the name of their image.

    The arguments are the same as for ``checked_boxes``.
    """
    if keypoints is None:
        return None
    by_name = {feature.name: feature for feature in features}
    if keypoints.feature not in by_name:
        names = ", ".join(map(repr, by_name))
        raise OptionsError("keypoints-not-delivered", name=keypoints.feature, known=names)
    feature, stored = by_name[keypoints.feature], known.get(keypoints.feature)
    order = stored.order if stored else keypoints.format
    if order is None:
        raise OptionsError("keypoints-format-unknown", feature=feature.name)
    last = feature.shape[-1] if feature.shape else None
    has_points = feature.holds_numbers and len(feature.shape) == 2 and bool(last)
    if not has_points or (stored and stored.are_boxes) or (last or 0) % len(order):
        raise OptionsError("keypoints-feature", feature=feature.name, kind=feature.kind, shape=feature.shape)
    if stored:
        is_other = keypoints.normalized not in (None, stored.is_normalized)
        if keypoints.format not in (None, order) or is_other:
            raise OptionsError("keypoints-format-stored", feature=feature.name, stored=str(stored))
        order = cast("PointFormat", order)
        keypoints = replace(keypoints, format=order, normalized=stored.is_normalized)
    image = image_of(keypoints.image, features, images)
    if images[image].flip is not None and keypoints.flip_pairs is None:
        raise OptionsError("keypoints-no-pairs", feature=feature.name)
    count = _num_points(feature, order)
    pairs = keypoints.flip_pairs or ()
    most = max((number for pair in pairs for number in pair), default=-1)
    if count is not None and most >= count:
        raise OptionsError("keypoints-pairs-range", most=most, feature=feature.name, count=count)
    return replace(keypoints, normalized=bool(keypoints.normalized), image=image)


def _num_points(feature: Feature, order: str) -> int | None:
    """Return the number of points of an image, or of each of its objects; None if it varies."""
    rows, last = feature.shape
    per_row = (last or 0) // len(order)
    return rows if per_row == 1 else per_row


def moved_keypoints(
    ops: Ops,
    values: Array,
    keypoints: Keypoints,
    image: Image,
    region: Array,
    draws: Mapping[str, Array],
) -> Array:
    """Return the keypoints of one example as they are in the delivered image, float32 of the same shape.

    Args:
        ops: the library of the arrays.
        values: the stored keypoints, see ``Keypoints.feature``.
        keypoints: their options.
        image: the options of their image.
        region: ``[height, width, top, left, height, width]`` int32 of the stored image and of its crop.
        draws: the random values of the example.
    """
    order, last = str(keypoints.format), int(values.shape[-1])
    message = f"the feature {keypoints.feature!r} has a keypoint with NaN or an infinite number"
    stored = ops.cast(values, "float32")
    # NaN fails the comparison, too
    stored = ops.checked(stored, ops.every(abs(stored) < np.inf), message)
    if image.size is None and image.flip is None:
        return stored
    rows = [1, -1] if last == len(order) else [-1, last // len(order)]
    points = ops.reshape(stored, [*rows, len(order)])
    sides, corner, cut = ops.unstack(ops.cast(ops.reshape(region, [3, 2]), "float32"))
    places = points[..., 1::-1]
    if keypoints.normalized:
        places = places * sides
    places = places - corner
    is_inside = ops.all_of((places >= 0) & (places <= cut))
    size = cut if image.size is None else np.array(image.size, np.float32)
    places = places * (size / cut)
    turned = None if image.flip is None else flips_of(image, draws)
    if turned is not None:
        places = ops.where(ops.stack(turned, 0), size - places, places)
    if keypoints.normalized:
        places = places / size
    moved = places[..., ::-1]
    if order == "xyv":
        shown = points[..., 2]
        moved = ops.stack([moved[..., 0], moved[..., 1], shown], -1)
        if image.crop is not None:
            moved = ops.where(is_inside[..., None], moved, np.float32(0))
        moved = ops.where(shown[..., None] > 0, moved, points)
    if turned is not None and keypoints.flip_pairs:
        count = ops.length(values) if last == len(order) else np.int64(last // len(order))
        exchanged = ops.exchanged(moved, _exchanged(ops, count, keypoints))
        moved = ops.where(turned[0] ^ turned[1], exchanged, moved)
    return ops.reshape(moved, [-1, last])


def _exchanged(ops: Ops, count: Array, keypoints: Keypoints) -> Array:
    """Return the numbers of the points after left and right have changed places."""
    pairs = keypoints.flip_pairs or ()
    others = {one: other for pair in pairs for one, other in (pair, pair[::-1])}
    message = f"the feature {keypoints.feature!r} has fewer points than Keypoints.flip_pairs names"
    named = np.array([others.get(number, number) for number in range(max(others) + 1)], np.int64)
    count = ops.checked(count, count >= len(named), message)
    return ops.concat([named, ops.arange(count)[len(named) :]])
