"""Move the boxes and keypoints of an image as the image is cropped, resized and flipped.

Corners of boxes and keypoints are points, ``(y, x)``, for which there is one map.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from tfshards.loader.examples.crops import flips_of
from tfshards.loader.examples.ops import Array, Ops
from tfshards.loader.options.boxes import Boxes, Keypoints
from tfshards.loader.options.image import Image
from tfshards.loader.options.validation import invalid
from tfshards.schemas import Feature, OptionsError
from tfshards.schemas.coordinates import Coordinates

Points: TypeAlias = "Boxes | Keypoints"
Options = TypeVar("Options", Boxes, Keypoints)


def checked_points(
    boxes: Boxes | None,
    keypoints: Keypoints | None,
    features: Sequence[Feature],
    images: Mapping[str, Image],
    known: Mapping[str, Coordinates],
) -> tuple[Points, ...]:
    """Return the options of keypoints and of boxes, with their formats and the names of their images.

    Keypoints come first, since boxes that are removed take theirs with them.

    Args:
        boxes: the options of boxes.
        keypoints: the options of keypoints.
        features: the delivered features.
        images: options of the images that are decoded, by feature.
        known: the coordinates that the dataset declares, by feature.
    """
    found: list[Points] = []
    if keypoints is not None:
        feature = _feature_of(
            keypoints, features, "(k, 2), (None, 2) or (None, 2k), or with 3 for each point"
        )
        keypoints = _as_declared(keypoints, feature, images, features, known)
        _check_keypoints(keypoints, feature, images)
        found.append(keypoints)
    if boxes is not None:
        feature = _feature_of(boxes, features, "(None, 4) or (4,)")
        is_one = feature.shape == (4,)
        if not is_one and feature.shape != (None, 4):
            raise _wrong_feature(boxes, features, "(None, 4) or (4,)")
        boxes = _as_declared(boxes, feature, images, features, known)
        _check_along(boxes, features, is_one=is_one, is_cropped=images[str(boxes.image)].crop is not None)
        found.append(boxes)
    return tuple(found)


def _feature_of(options: Points, features: Sequence[Feature], shapes: str) -> Feature:
    found = next((feature for feature in features if feature.name == options.feature), None)
    if found is None or not found.holds_numbers or not found.shape:
        raise _wrong_feature(options, features, shapes)
    return found


def _wrong_feature(options: Points, features: Sequence[Feature], shapes: str) -> OptionsError:
    delivered = ", ".join(f"{each.name!r} {each.kind} {each.shape}" for each in features)
    allowed = f"a delivered feature of numbers of shape {shapes}; there are {delivered}"
    return invalid(f"{type(options).__name__}.feature", options.feature, allowed)


def _as_declared(
    options: Options,
    feature: Feature,
    images: Mapping[str, Image],
    features: Sequence[Feature],
    known: Mapping[str, Coordinates],
) -> Options:
    """Return the options with the format that is declared or given, and the name of the image."""
    name, stored = type(options).__name__, known.get(feature.name)
    given = options.format, options.normalized
    if stored is None and options.format is None:
        raise invalid(f"{name}.format", None, f"given: the dataset does not declare that of {feature.name!r}")
    if stored is not None:
        if stored.are_boxes != isinstance(options, Boxes):
            raise invalid(f"{name}.feature", feature.name, f"another one: it is declared as {stored}")
        declared = stored.order, stored.is_normalized
        if any(one not in (None, other) for one, other in zip(given, declared, strict=True)):
            allowed = (
                f"(format, normalized) as the dataset declares {feature.name!r}, {declared}; leave them out"
            )
            raise invalid(f"{name}.format", given, allowed)
        options = replace(options, format=cast("Any", stored.order), normalized=stored.is_normalized)
    decoded = [each.name for each in features if each.is_image and each.name in images]
    image = decoded[0] if options.image is None and len(decoded) == 1 else options.image
    if image not in decoded:
        raise invalid(
            f"{name}.image", options.image, f"a decoded image: {', '.join(decoded) or 'there is none'}"
        )
    return replace(options, normalized=bool(options.normalized), image=image)


def _check_keypoints(keypoints: Keypoints, feature: Feature, images: Mapping[str, Image]) -> None:
    size, last = len(str(keypoints.format)), feature.shape[-1]
    if len(feature.shape) != 2 or not last or last % size:
        allowed = f"of shape (k, {size}), (None, {size}) or (None, {size}k), not {feature.shape}"
        raise invalid("Keypoints.feature", feature.name, allowed)
    # of an image, or of each of its objects; None if it varies
    count = feature.shape[0] if last == size else last // size
    most = max((number for pair in keypoints.flip_pairs or () for number in pair), default=-1)
    if keypoints.flip_pairs is None and images[str(keypoints.image)].flip is not None:
        allowed = (
            f"given with Image.flip, which exchanges left and right of {feature.name!r}; () without pairs"
        )
        raise invalid("Keypoints.flip_pairs", None, allowed)
    if count is not None and most >= count:
        allowed = f"numbers of the {count} points of {feature.name!r}, from 0"
        raise invalid("Keypoints.flip_pairs", keypoints.flip_pairs, allowed)


def _check_along(boxes: Boxes, features: Sequence[Feature], *, is_one: bool, is_cropped: bool) -> None:
    lists = [each.name for each in features if each.shape and not each.is_encoded and not is_one]
    if not {*boxes.along} <= {*lists}:
        raise invalid("Boxes.along", boxes.along, "delivered features with one value for each box")
    left = [] if is_one else [name for name in _beside(boxes.feature, features) if name not in boxes.along]
    if left and is_cropped:
        allowed = (
            f"with {left[0]!r}, which has the prefix of {boxes.feature!r}, but would keep values of boxes "
            "that a crop removes; or leave it out with select="
        )
        raise invalid("Boxes.along", boxes.along, allowed)


def _beside(name: str, features: Sequence[Feature]) -> Iterator[str]:
    """Yield the other lists that have the prefix of a feature, such as ``objects/``."""
    prefix, slash, _ = name.rpartition("/")
    for feature in features:
        if slash and feature.is_ragged and feature.name != name and feature.name.rpartition("/")[0] == prefix:
            yield feature.name


def moved_points(
    ops: Ops,
    values: Mapping[str, Array],
    points: Sequence[Points],
    name: str,
    image: Image,
    region: Array,
    draws: Mapping[str, Array],
) -> dict[str, Array]:
    """Return the values of an example with keypoints and boxes as the delivered image shows them.

    Args:
        ops: the library of the arrays.
        values: values of the example: boxes of shape ``(n, 4)`` or ``(4,)``, keypoints as in ``Keypoints``.
        points: the options of keypoints and boxes, in the order of ``checked_points``.
        name: the name of the image.
        image: the options of the image.
        region: ``[height, width, top, left, height, width]`` int32 of the stored image and of its crop.
        draws: the random values of the example.

    Returns:
        By name: keypoints and boxes float32, boxes and the features along them without removed boxes.
    """
    moved = dict(values)
    for options in points:
        if options.image != name:
            continue
        move = _move_boxes if isinstance(options, Boxes) else _move_keypoints
        view = _View(ops, bool(options.normalized), image, region, draws)
        move(view, moved, options)  # type: ignore[arg-type]
    return moved


class _View:
    """What the delivered image shows of the stored one, as a map of points ``(..., 2)`` float32."""

    def __init__(
        self, ops: Ops, is_normalized: bool, image: Image, region: Array, draws: Mapping[str, Array]
    ) -> None:
        self.ops, self.image, self._is_normalized = ops, image, is_normalized
        self._sides, self._corner, self.cut = ops.unstack(ops.cast(ops.reshape(region, [3, 2]), "float32"))
        self.turned = None if image.flip is None else flips_of(image, draws)

    @property
    def is_whole(self) -> bool:
        """Whether the image is delivered as it is stored."""
        return self.image.size is None and self.image.flip is None

    def in_crop(self, points: Array) -> Array:
        """Return stored points in pixels of the crop."""
        return (points * self._sides if self._is_normalized else points) - self._corner

    def delivered(self, points: Array) -> Array:
        """Return points of the crop as they are delivered."""
        size = self.cut if self.image.size is None else np.array(self.image.size, np.float32)
        points = points * (size / self.cut)
        if self.turned is not None:
            points = self.ops.where(self.ops.stack(self.turned, 0), size - points, points)
        return points / size if self._is_normalized else points


def _finite(ops: Ops, values: Array) -> tuple[Array, Array]:
    """Return the stored numbers as float32, and whether all of them are finite."""
    stored = ops.cast(values, "float32")
    # NaN fails the comparison, too
    return stored, ops.all_of(ops.reshape(abs(stored) < np.inf, [-1]))


def _move_boxes(view: _View, moved: dict[str, Array], boxes: Boxes) -> None:
    ops, values, order = view.ops, moved[boxes.feature], str(boxes.format)
    stored, is_finite = _finite(ops, ops.reshape(values, [-1, 4]))
    starts, ends = _edges(stored, order)
    message = (
        f"the feature {boxes.feature!r} has a box with NaN, an infinite number, or a negative width or "
        f"height as {boxes.format!r}; check Boxes.format, or correct the boxes and build again"
    )
    is_sound = is_finite & ops.all_of(ops.reshape(ends >= starts, [-1]))
    stored = ops.checked(stored, is_sound, message)
    if not view.is_whole:
        starts, ends = map(view.in_crop, _edges(stored, order))
        if view.image.crop is not None:
            whole = ends - starts
            starts, ends = (
                ops.minimum(ops.maximum(each, np.float32(0)), view.cut) for each in (starts, ends)
            )
            seen = ends - starts
            area = seen[:, 0] * seen[:, 1]
            is_kept = (area > 0) & (area >= np.float32(boxes.min_visible) * (whole[:, 0] * whole[:, 1]))
            for name in boxes.along:
                text = f"the feature {name!r} must have one value for each box"
                is_along = ops.length(moved[name]) == ops.length(is_kept)
                moved[name] = ops.kept(ops.checked(moved[name], is_along, text), is_kept)
            if len(values.shape) == 2:
                starts, ends = ops.kept(starts, is_kept), ops.kept(ends, is_kept)
        starts, ends = view.delivered(starts), view.delivered(ends)
        # a flip exchanges them
        stored = _in_format(ops, ops.minimum(starts, ends), ops.maximum(starts, ends), order)
    moved[boxes.feature] = ops.reshape(stored, [4]) if len(values.shape) == 1 else stored


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


def _move_keypoints(view: _View, moved: dict[str, Array], keypoints: Keypoints) -> None:
    ops, values, order = view.ops, moved[keypoints.feature], str(keypoints.format)
    stored, is_finite = _finite(ops, values)
    message = f"the feature {keypoints.feature!r} has a keypoint with NaN or an infinite number"
    stored = moved[keypoints.feature] = ops.checked(stored, is_finite, message)
    if view.is_whole:
        return
    last = int(values.shape[-1])
    # one object of all points, or one of each row
    rows = [1, -1] if last == len(order) else [-1, last // len(order)]
    points = ops.reshape(stored, [*rows, len(order)])
    places = view.in_crop(points[..., 1::-1])
    is_inside = ops.all_of((places >= 0) & (places <= view.cut))
    found = view.delivered(places)[..., ::-1]
    if order == "xyv":
        shown = points[..., 2]
        found = ops.stack([found[..., 0], found[..., 1], shown], -1)
        if view.image.crop is not None:
            found = ops.where(is_inside[..., None], found, np.float32(0))
        found = ops.where(shown[..., None] > 0, found, points)
    if view.turned is not None and keypoints.flip_pairs:
        count = ops.length(values) if last == len(order) else np.int64(last // len(order))
        exchanged = ops.exchanged(found, _exchanged(ops, count, keypoints))
        found = ops.where(view.turned[0] ^ view.turned[1], exchanged, found)
    moved[keypoints.feature] = ops.reshape(found, [-1, last])


def _exchanged(ops: Ops, count: Array, keypoints: Keypoints) -> Array:
    """Return the numbers of the points after left and right have changed places."""
    pairs = keypoints.flip_pairs or ()
    others = {one: other for pair in pairs for one, other in (pair, pair[::-1])}
    message = f"the feature {keypoints.feature!r} has fewer points than Keypoints.flip_pairs names"
    named = np.array([others.get(number, number) for number in range(max(others) + 1)], np.int64)
    count = ops.checked(count, count >= len(named), message)
    return ops.concat([named, ops.arange(count)[len(named) :]])
