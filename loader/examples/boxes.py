"""Move the boxes of an image as the image is cropped, resized and flipped, in the graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import tensorflow as tf

from tfshards.loader.examples.images import flips_of
from tfshards.loader.options.image import Boxes, Image
from tfshards.schemas import Feature, OptionsError

# The feature with the boxes of annotations, and how each form of annotations stores them.
_ANNOTATED = "objects/bbox"
_STORED: Mapping[str, Boxes] = {
    "coco": Boxes(_ANNOTATED, "xywh"),
    "yolo": Boxes(_ANNOTATED, "cxcywh", normalized=True),
}


def checked_boxes(
    boxes: Boxes | None, features: Sequence[Feature], images: Mapping[str, Image], recorded: object
) -> Boxes | None:
    """Return the options of boxes with the name of their image."""
    if boxes is None:
        return None
    by_name = {feature.name: feature for feature in features}
    for name in (boxes.feature, *boxes.along):
        if name not in by_name:
            known = ", ".join(map(repr, by_name))
            raise OptionsError("boxes-not-delivered", name=name, known=known)
    feature = by_name[boxes.feature]
    if feature.kind not in ("int", "float") or feature.shape != (None, 4):
        raise OptionsError("boxes-feature", feature=feature.name, kind=feature.kind, shape=feature.shape)
    for name in boxes.along:
        if not by_name[name].shape or by_name[name].is_encoded:
            raise OptionsError("boxes-along-feature", name=name)
    stored = _stored(recorded) if boxes.feature == _ANNOTATED else None
    if stored and (stored.format, stored.normalized) != (boxes.format, boxes.normalized):
        raise OptionsError(
            "boxes-format-stored",
            format=boxes.format,
            normalized=boxes.normalized,
            annotated=_ANNOTATED,
            described=_described(stored, boxes.along),
        )
    found = [name for name in images if by_name[name].kind == "image"]
    if boxes.image is None and len(found) == 1:
        boxes = replace(boxes, image=found[0])
    if boxes.image is None or boxes.image not in found:
        known = ", ".join(map(repr, found)) or "none"
        raise OptionsError("boxes-image-decoded", image=boxes.image, known=known)
    left = [name for name in _beside(boxes.feature, features) if name not in boxes.along]
    if left and images[boxes.image].crop is not None:
        raise OptionsError("boxes-left-out", left=left[0], feature=boxes.feature)
    return boxes


def unmoved_boxes(
    boxes: Boxes | None, features: Sequence[Feature], images: Mapping[str, Image], recorded: object
) -> str | None:
    """Return a warning if boxes of annotations are delivered as stored while their image is not.

    The arguments are those of ``checked_boxes``.
    """
    stored = _stored(recorded)
    if stored is None or _ANNOTATED not in [feature.name for feature in features]:
        return None
    if boxes is not None and boxes.feature == _ANNOTATED:
        return None
    decoded = [images[feature.name] for feature in features if feature.name in images]
    # fractions of an image stay true as it is resized
    if not any(
        image.crop or image.flip or (image.size is not None and not stored.normalized) for image in decoded
    ):
        return None
    return (
        f"{_ANNOTATED!r} is delivered as stored, but its images are resized, cropped or flipped; move the "
        f"boxes with boxes=loader.{_described(stored, tuple(_beside(_ANNOTATED, features)))}, or leave them "
        "out with select="
    )


def _stored(recorded: object) -> Boxes | None:
    """Return the options of boxes that a build's options mention, at any depth, as a form of annotations."""
    if isinstance(recorded, Mapping):
        if recorded.get("source") == "table" and recorded.get("form") in _STORED:
            return _STORED[str(recorded["form"])]
        recorded = list(recorded.values())
    if not isinstance(recorded, list):
        return None
    return next(filter(None, map(_stored, recorded)), None)


def _described(boxes: Boxes, along: Sequence[str]) -> str:
    normalized = ", normalized=True" if boxes.normalized else ""
    names = f", along={tuple(along)!r}" if along else ""
    return f"Boxes({boxes.feature!r}, {boxes.format!r}{names}{normalized})"


def _beside(name: str, features: Sequence[Feature]) -> Iterator[str]:
    """Yield the other lists that have the prefix of a feature, such as ``objects/``."""
    prefix, slash, _ = name.rpartition("/")
    for feature in features:
        if slash and feature.is_ragged and feature.name != name and feature.name.rpartition("/")[0] == prefix:
            yield feature.name


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
        region: ``[height, width, top, left, height, width]`` int32 of the stored image and of its crop.

    Returns:
        By name: boxes of shape ``(m, 4)`` float32, and the other features with ``m`` values.
    """
    moved = {name: values[name] for name in boxes.along}
    stored = _sound(tf.cast(values[boxes.feature], tf.float32), boxes)
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
            message = f"the feature {name!r} must have one value for each box"
            count = tf.debugging.assert_equal(tf.shape(moved[name])[0], tf.shape(is_kept)[0], message)
            with tf.control_dependencies([count]):
                moved[name] = tf.boolean_mask(moved[name], is_kept)
    size = cut if image.size is None else tf.constant(image.size, tf.float32)
    starts, ends = starts * (size / cut), ends * (size / cut)
    if image.flip is not None:
        turned = tf.stack(flips_of(image, draws))
        starts, ends = tf.where(turned, size - ends, starts), tf.where(turned, size - starts, ends)
    if boxes.normalized:
        starts, ends = starts / size, ends / size
    moved[boxes.feature] = _in_format(starts, ends, boxes.format)
    return moved


def _sound(stored: tf.Tensor, boxes: Boxes) -> tf.Tensor:
    """Return the boxes, after an assertion that they are finite and have no negative width or height."""
    starts, ends = _edges(stored, boxes.format)
    # NaN fails the comparison, too
    is_sound = tf.reduce_all(tf.math.is_finite(stored)) & tf.reduce_all(ends >= starts)
    message = (
        f"the feature {boxes.feature!r} has a box with NaN, an infinite number, or a negative width or "
        f"height as {boxes.format!r}; check Boxes.format, or correct the boxes and build again"
    )
    with tf.control_dependencies([tf.debugging.assert_equal(is_sound, True, message)]):
        return tf.identity(stored)


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
