"""Move the boxes of an image as the image is cropped, resized and flipped, in the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import tensorflow as tf

from tfshards.loader.examples.augment import flips_of
from tfshards.loader.options.boxes import Boxes
from tfshards.loader.options.image import Image
from tfshards.schemas import Feature, OptionsError


def checked_boxes(
    boxes: Boxes | None, features: Sequence[Feature], images: Mapping[str, Image]
) -> Boxes | None:
    """Return the options of boxes with the name of their image.

    Args:
        boxes: options, or None.
        features: the features that are delivered.
        images: options of decoded images by feature.

    Raises:
        OptionsError: a feature is not delivered or has another shape, or the image is not known.
    """
    if boxes is None:
        return None
    by_name = {feature.name: feature for feature in features}
    for name in (boxes.feature, *boxes.along):
        if name not in by_name:
            known = ", ".join(map(repr, by_name))
            raise OptionsError(f"boxes= names {name!r}, which is not a delivered feature; those are {known}")
    feature = by_name[boxes.feature]
    if feature.kind not in ("int", "float") or feature.shape != (None, 4):
        raise OptionsError(
            f"boxes= names {feature.name!r}, of kind {feature.kind!r} and shape {feature.shape}; boxes are "
            "numbers of shape (None, 4)"
        )
    for name in boxes.along:
        if not by_name[name].shape or by_name[name].is_encoded:
            raise OptionsError(f"Boxes.along names {name!r}, which does not hold one value for each box")
    found = [name for name in images if by_name[name].kind == "image"]
    if boxes.image is None and len(found) == 1:
        return replace(boxes, image=found[0])
    if boxes.image not in images:
        known = ", ".join(map(repr, images)) or "none"
        raise OptionsError(f"Boxes.image={boxes.image!r} must name a decoded image; those are {known}")
    return boxes


def moved_boxes(
    values: Mapping[str, tf.Tensor],
    boxes: Boxes,
    image: Image,
    region: tf.Tensor,
    draws: Mapping[str, tf.Tensor],
) -> dict[str, tf.Tensor]:
    """Return the boxes of one example as they are in the delivered image, and the features along them.

    Args:
        values: values of the example; boxes have shape ``(n, 4)``.
        boxes: options of the boxes.
        image: options of their image.
        region: ``[height, width, top, left, height, width]`` int32 of the stored image and of its crop.
        draws: random draws for the example, from ``augment.draws_of``.

    Returns:
        By name: boxes of shape ``(m, 4)`` float32, and the other features with ``m`` values.
    """
    moved = {name: values[name] for name in boxes.along}
    stored = tf.cast(values[boxes.feature], tf.float32)
    moved[boxes.feature] = stored
    if image.size is None and image.flip is None:
        return moved
    sides, corner, cut = tf.unstack(tf.cast(tf.reshape(region, [3, 2]), tf.float32))
    starts, ends = _edges(stored, boxes.format)
    if boxes.normalized:
        starts, ends = starts * sides, ends * sides
    if image.crop is not None:
        starts, ends, is_kept = _clipped(starts - corner, ends - corner, cut, boxes.min_visible)
        starts, ends = tf.boolean_mask(starts, is_kept), tf.boolean_mask(ends, is_kept)
        for name in boxes.along:
            moved[name] = _kept(moved[name], is_kept, name)
    size = cut if image.size is None else tf.constant(image.size, tf.float32)
    starts, ends = starts * (size / cut), ends * (size / cut)
    if image.flip is not None:
        turned = tf.stack(flips_of(image, draws))
        starts, ends = tf.where(turned, size - ends, starts), tf.where(turned, size - starts, ends)
    if boxes.normalized:
        starts, ends = starts / size, ends / size
    moved[boxes.feature] = _in_format(starts, ends, boxes.format)
    return moved


def _edges(boxes: tf.Tensor, kind: str) -> tuple[tf.Tensor, tf.Tensor]:
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


def _in_format(starts: tf.Tensor, ends: tf.Tensor, kind: str) -> tf.Tensor:
    if kind == "yxyx":
        return tf.concat([starts, ends], axis=1)
    first, second = starts[:, ::-1], ends[:, ::-1]
    if kind == "xywh":
        second -= first
    elif kind == "cxcywh":
        first, second = (first + second) / 2, second - first
    return tf.concat([first, second], axis=1)


def _clipped(
    starts: tf.Tensor, ends: tf.Tensor, sides: tf.Tensor, min_visible: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the edges clipped to an image of these sides, and which boxes are visible enough."""
    clipped = tf.clip_by_value(starts, 0.0, sides), tf.clip_by_value(ends, 0.0, sides)
    area, whole = (tf.reduce_prod(end - start, axis=1) for start, end in (clipped, (starts, ends)))
    return *clipped, (area > 0) & (area >= min_visible * whole)


def _kept(values: tf.Tensor, is_kept: tf.Tensor, name: str) -> tf.Tensor:
    message = f"the feature {name!r} must have one value for each box"
    count = tf.debugging.assert_equal(tf.shape(values)[0], tf.shape(is_kept)[0], message)
    with tf.control_dependencies([count]):
        return tf.boolean_mask(values, is_kept)
