"""Move the boxes of an image as the image is cropped, resized and flipped."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from tfshards.loader.examples.crops import flips_of
from tfshards.loader.options.boxes import Boxes, BoxFormat
from tfshards.loader.options.image import Image
from tfshards.loader.order.ops import Array, Ops
from tfshards.schemas import Feature, OptionsError
from tfshards.schemas.coordinates import Coordinates


def checked_boxes(
    boxes: Boxes | None,
    features: Sequence[Feature],
    images: Mapping[str, Image],
    known: Mapping[str, Coordinates],
) -> Boxes | None:
    """Return the options of boxes with their format and the name of their image.

    Args:
        boxes: the options.
        features: the delivered features.
        images: options of the images that are decoded, by feature.
        known: the coordinates that the dataset declares, by feature.
    """
    if boxes is None:
        return None
    by_name = {feature.name: feature for feature in features}
    for name in (boxes.feature, *boxes.along):
        if name not in by_name:
            listed = ", ".join(map(repr, by_name))
            raise OptionsError("boxes-not-delivered", name=name, known=listed)
    feature, stored = by_name[boxes.feature], known.get(boxes.feature)
    is_one = feature.shape == (4,)
    has_boxes = feature.holds_numbers and (is_one or feature.shape == (None, 4))
    if not has_boxes or (stored and not stored.are_boxes):
        raise OptionsError("boxes-feature", feature=feature.name, kind=feature.kind, shape=feature.shape)
    for name in boxes.along:
        if not by_name[name].shape or by_name[name].is_encoded or is_one:
            raise OptionsError("boxes-along-feature", name=name)
    if stored is None and boxes.format is None:
        raise OptionsError("boxes-format-unknown", feature=feature.name)
    if stored and not _agrees(boxes.format, boxes.normalized, stored):
        raise OptionsError(
            "boxes-format-stored",
            format=boxes.format,
            normalized=boxes.normalized,
            annotated=feature.name,
            described=_described(feature.name, stored, boxes.along),
        )
    if stored:
        order = cast("BoxFormat", stored.order)
        boxes = replace(boxes, format=order, normalized=stored.is_normalized)
    boxes = replace(boxes, normalized=bool(boxes.normalized), image=image_of(boxes.image, features, images))
    left = [] if is_one else [name for name in _beside(boxes.feature, features) if name not in boxes.along]
    if left and images[str(boxes.image)].crop is not None:
        raise OptionsError("boxes-left-out", left=left[0], feature=boxes.feature)
    return boxes


def image_of(given: str | None, features: Sequence[Feature], images: Mapping[str, Image]) -> str:
    """Return the decoded image that is given, or the only one."""
    ones = [feature for feature in features if feature.is_image]
    found = [feature.name for feature in ones if feature.name in images]
    image = found[0] if given is None and len(found) == 1 else given
    if image is None or image not in found:
        raise OptionsError("boxes-image-decoded", image=image, known=", ".join(map(repr, found)) or "none")
    return image


def unmoved_boxes(
    moved: Collection[str],
    features: Sequence[Feature],
    images: Mapping[str, Image],
    known: Mapping[str, Coordinates],
) -> list[str]:
    """Return warnings about boxes and keypoints that are delivered as stored while their image is not.

    Args:
        moved: features that move with their image.
        features: the delivered features.
        images: options of the images that are decoded, by feature.
        known: the coordinates that the dataset declares, by feature.
    """
    decoded = [images[feature.name] for feature in features if feature.name in images]
    warnings = []
    for feature in features:
        stored = known.get(feature.name)
        if stored is None or feature.name in moved:
            continue
        # fractions of an image stay true as it is resized
        if any(image.crop or image.flip or (image.size and not stored.is_normalized) for image in decoded):
            along = tuple(_beside(feature.name, features)) if feature.is_ragged else ()
            how = (
                f"boxes with boxes=loader.{_described(feature.name, stored, along)}"
                if stored.are_boxes
                else f"keypoints with keypoints=loader.Keypoints({feature.name!r})"
            )
            warnings.append(
                f"{feature.name!r} is delivered as stored, but its images are resized, cropped or flipped; "
                f"move the {how}, or leave them out with select="
            )
    return warnings


def _agrees(order: str | None, normalized: bool | None, stored: Coordinates) -> bool:
    return order in (None, stored.order) and normalized in (None, stored.is_normalized)


def _described(name: str, stored: Coordinates, along: Sequence[str]) -> str:
    normalized = ", normalized=True" if stored.is_normalized else ""
    names = f", along={tuple(along)!r}" if along else ""
    return f"Boxes({name!r}, {stored.order!r}{names}{normalized})"


def _beside(name: str, features: Sequence[Feature]) -> Iterator[str]:
    """Yield the other lists that have the prefix of a feature, such as ``objects/``."""
    prefix, slash, _ = name.rpartition("/")
    for feature in features:
        if slash and feature.is_ragged and feature.name != name and feature.name.rpartition("/")[0] == prefix:
            yield feature.name


def moved_boxes(
    ops: Ops,
    values: Mapping[str, Array],
    boxes: Boxes,
    image: Image,
    region: Array,
    draws: Mapping[str, Array],
) -> dict[str, Array]:
    """Return the boxes of one example as they are in the delivered image, and the features along them.

    Args:
        ops: the library of the arrays.
        values: values of the example; boxes have shape ``(n, 4)``, or ``(4,)``.
        boxes: their options.
        image: the options of their image.
        region: ``[height, width, top, left, height, width]`` int32 of the stored image and of its crop.
        draws: the random values of the example.

    Returns:
        By name: boxes of shape ``(m, 4)`` float32, or ``(4,)``, and the other features with ``m`` values.
    """
    moved = {name: values[name] for name in boxes.along}
    given = values[boxes.feature]
    is_one = len(given.shape) == 1
    stored = _sound(ops, ops.reshape(ops.cast(given, "float32"), [-1, 4]), boxes)
    moved[boxes.feature] = ops.reshape(stored, [4]) if is_one else stored
    if image.size is None and image.flip is None:
        return moved
    order = str(boxes.format)
    sides, corner, cut = ops.unstack(ops.cast(ops.reshape(region, [3, 2]), "float32"))
    starts, ends = _edges(stored, order)
    if boxes.normalized:
        starts, ends = starts * sides, ends * sides
    if image.crop is not None:
        starts, ends, is_kept = _clipped(ops, starts - corner, ends - corner, cut, boxes.min_visible)
        for name in boxes.along:
            message = f"the feature {name!r} must have one value for each box"
            is_along = ops.length(moved[name]) == ops.length(is_kept)
            moved[name] = ops.kept(ops.checked(moved[name], is_along, message), is_kept)
        if not is_one:
            starts, ends = ops.kept(starts, is_kept), ops.kept(ends, is_kept)
    size = cut if image.size is None else np.array(image.size, np.float32)
    starts, ends = starts * (size / cut), ends * (size / cut)
    if image.flip is not None:
        turned = ops.stack(flips_of(image, draws), 0)
        starts, ends = ops.where(turned, size - ends, starts), ops.where(turned, size - starts, ends)
    if boxes.normalized:
        starts, ends = starts / size, ends / size
    found = _in_format(ops, starts, ends, order)
    moved[boxes.feature] = ops.reshape(found, [4]) if is_one else found
    return moved


def _sound(ops: Ops, stored: Array, boxes: Boxes) -> Array:
    """Return the boxes, after an assertion that they are finite and have no negative width or height."""
    starts, ends = _edges(stored, str(boxes.format))
    # NaN fails each comparison
    is_sound = ops.every(abs(stored) < np.inf) & ops.every(ends >= starts)
    message = (
        f"the feature {boxes.feature!r} has a box with NaN, an infinite number, or a negative width or "
        f"height as {boxes.format!r}; check Boxes.format, or correct the boxes and build again"
    )
    return ops.checked(stored, is_sound, message)


def _edges(boxes: Array, kind: str) -> tuple[Array, Array]:
    """Return the top and left edges, and the bottom and right edges, each of shape ``(n, 2)``."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if kind == "yxyx":
        return first, second
    first, second = first[:, ::-1], second[:, ::-1]
    if kind == "xywh":
        return first, first + second
    if kind == "cxcywh":
        return first - second / 2, first + second / 2
    return first, second


def _in_format(ops: Ops, starts: Array, ends: Array, kind: str) -> Array:
    first, second = (starts, ends) if kind == "yxyx" else (starts[:, ::-1], ends[:, ::-1])
    if kind == "xywh":
        second = second - first
    elif kind == "cxcywh":
        first, second = (first + second) / 2, second - first
    return ops.stack([first[:, 0], first[:, 1], second[:, 0], second[:, 1]], 1)


def _clipped(
    ops: Ops, starts: Array, ends: Array, sides: Array, min_visible: float
) -> tuple[Array, Array, Array]:
    """Return the edges clipped to an image of these sides, and which boxes are visible enough."""
    clipped = [ops.minimum(ops.maximum(each, np.float32(0)), sides) for each in (starts, ends)]
    seen, whole = clipped[1] - clipped[0], ends - starts
    area = seen[:, 0] * seen[:, 1]
    return *clipped, (area > 0) & (area >= np.float32(min_visible) * (whole[:, 0] * whole[:, 1]))
