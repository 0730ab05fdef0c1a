"""Boxes and keypoints of an image file: check them, and move them into the image as it is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.prep.imaging.masks import SIDEWAYS, Geometry
from tfshards.prep.imaging.reasons import ImageError, Reason
from tfshards.schemas.coordinates import Coordinates

Outside: TypeAlias = Literal["reject", "clip", "keep"]
Reference: TypeAlias = Literal["file", "upright"]
Floats: TypeAlias = npt.NDArray[np.float64]

# Left, top, right and bottom edge from the four numbers of a box.
_EDGES: Mapping[str, list[list[float]]] = {
    "xyxy": [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]],
    "yxyx": [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]],
    "xywh": [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]],
    "cxcywh": [[1, 0, -0.5, 0], [0, 1, 0, -0.5], [1, 0, 0.5, 0], [0, 1, 0, 0.5]],
}
_NUMBERS = {order: np.linalg.inv(matrix) for order, matrix in _EDGES.items()}
# What rounding may add to a side: as a share, and in pixels at least.
_SLACK, _SLACK_PIXELS = 0.01, 1.0
_SHOWN = 60


def edges_of(boxes: npt.ArrayLike, order: str) -> Floats:
    """Return left, top, right and bottom edge of boxes, shape ``(n, 4)``."""
    edges: Floats = np.asarray(boxes, np.float64).reshape(-1, 4) @ np.array(_EDGES[order]).T
    return edges


def check_numbers(name: str, values: Sequence[float], coordinates: Coordinates) -> None:
    """Raise ImageError unless all numbers are finite, and no box has a negative width or height."""
    rows = _rows(values, coordinates)
    is_wrong = ~np.isfinite(rows).all(axis=1)
    if coordinates.are_boxes:
        with np.errstate(invalid="ignore"):
            edges = edges_of(rows, coordinates.order)
            is_wrong |= (edges[:, 2:] < edges[:, :2]).any(axis=1)
    _raise_first(name, rows, is_wrong, f"as {coordinates}, this is not finite or has a negative side")


def placed(
    name: str,
    values: Sequence[float],
    coordinates: Coordinates,
    view: Geometry,
    size: tuple[int, int],
    outside: Outside,
) -> tuple[Sequence[float], list[str]]:
    """Return boxes or keypoints as they are in the stored image, and names of what was done.

    Keypoints with a visibility of 0 are not labeled, and stay as they are.

    Args:
        name: name of their feature, for messages.
        values: the numbers, one box or keypoint after another.
        coordinates: what the numbers are.
        view: size of the pixels to which they refer, and the EXIF orientation that turns these upright.
        size: width and height of the stored image.
        outside: what to do about those that reach out of the image by more than 1 % of a side, or 1 pixel.

    Raises:
        ImageError: a number is wrong, or a box or keypoint is outside of the image.
    """
    check_numbers(name, values, coordinates)
    rows = _rows(values, coordinates)
    is_given = rows[:, 2] > 0 if coordinates.order == "xyv" else np.ones(len(rows), np.bool_)
    # the corners of boxes, or the keypoints, in pixels: shape (n, number of points, 2)
    edges = edges_of(rows, coordinates.order) if coordinates.are_boxes else rows[:, :2]
    points = edges.reshape(len(rows), 2 if coordinates.are_boxes else 1, 2)
    sides = np.array(view.raw, np.float64)
    if coordinates.is_normalized:
        points = points * sides
    what, notes, start = ("boxes" if coordinates.are_boxes else "keypoints"), [], points
    pixels = "{:g} x {:g} pixels".format(*sides)
    if outside == "clip":
        points = np.clip(points, 0, sides)
        is_lost = (points[:, 0] == points[:, -1]).any(axis=1) & (start[:, 0] != start[:, -1]).all(axis=1)
        _raise_first(name, rows, is_lost, f"lies outside of the image, which has {pixels}")
        notes += [f"{what} clipped"] if (points != start)[is_given].any() else []
    elif outside == "reject":
        slack = np.maximum(_SLACK_PIXELS, _SLACK * sides)
        is_out = ((points < -slack) | (points > sides + slack)).any(axis=(1, 2)) & is_given
        _raise_first(name, rows, is_out, f"reaches out of the image, which has {pixels}")
    if view.orientation != 1:
        points, sides = _turned(points, view), np.array(view.upright, np.float64)
        notes += [f"{what} turned"] if is_given.any() else []
    scale = np.array(size, np.float64) / sides
    is_scaled = not coordinates.is_normalized and bool((scale != 1).any())
    if not notes and not is_scaled:
        # exactly as they are
        return values, notes
    points = points / sides if coordinates.is_normalized else points * scale
    flat = points.reshape(len(rows), 2 * points.shape[1])
    moved = flat @ _NUMBERS[coordinates.order].T if coordinates.are_boxes else flat
    rows[is_given, : moved.shape[1]] = moved[is_given]
    return rows.ravel().tolist(), notes


def _rows(values: Sequence[float], coordinates: Coordinates) -> Floats:
    width = 4 if coordinates.are_boxes else len(coordinates.order)
    return np.array(values, np.float64).reshape(-1, width)


def _raise_first(name: str, rows: Floats, is_wrong: npt.ArrayLike, fault: str) -> None:
    wrong = np.flatnonzero(is_wrong)
    if len(wrong):
        first = int(wrong[0])
        shown = ", ".join(f"{number:g}" for number in rows[first])
        raise ImageError(Reason.OUTSIDE, f"{name}[{first}] is [{shown}]: {fault}")


def _turned(points: Floats, file: Geometry) -> Floats:
    """Return points of the pixels in a file, as pairs of corners or one by one, in the upright image."""
    # the orientations that mirror columns and rows, and then those that exchange them
    across, down = (file.orientation in mirrored for mirrored in ((2, 3, 7, 8), (3, 4, 6, 7)))
    seen = np.where((across, down), np.array(file.raw) - points, points)
    found = seen[..., ::-1] if file.orientation in SIDEWAYS else seen
    # the first corner is the left upper one again
    return np.concatenate([found.min(axis=1, keepdims=True), found.max(axis=1, keepdims=True)], axis=1)[
        :, : points.shape[1]
    ]
