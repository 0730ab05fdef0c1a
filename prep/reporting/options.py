"""What a caller can ask of a report, and what the four numbers of boxes mean."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt

from tfshards.prep.imaging.stored import Edges
from tfshards.prep.records.example import Decoded
from tfshards.schemas import Feature, Manifest, OptionsError, Schema
from tfshards.schemas.option import check_choices, check_path, option

# The names are those of ``loader.Boxes``.
BoxFormat: TypeAlias = Literal["xywh", "xyxy", "cxcywh", "yxyx"]
BOX_FORMATS: tuple[str, ...] = get_args(BoxFormat)

# Boxes may reach a little out of their image.
_LARGEST_SHARE = 1.5
_OF_SOURCES: Mapping[str, tuple[BoxFormat, bool]] = {"coco": ("xywh", False), "yolo": ("cxcywh", True)}


@dataclass(frozen=True)
class BoxMeaning:
    """What four numbers of a feature mean.

    Attributes:
        feature: name of the feature.
        format: order of the numbers, as for ``loader.Boxes``.
        is_normalized: whether they are fractions of the width and the height rather than pixels.
        is_guessed: whether the values suggested it, and nothing states it.
    """

    feature: str
    format: BoxFormat
    is_normalized: bool
    is_guessed: bool

    def edges(self, values: npt.NDArray[np.float64], size: tuple[int, int]) -> list[Edges]:
        """Return the edges of finite boxes as fractions of an image.

        Args:
            values: shape ``(boxes, 4)``.
            size: width and height of the image in pixels.
        """
        x, y = (1.0, 1.0) if self.is_normalized else map(float, size)
        kept = values[np.isfinite(values).all(axis=1)]
        corners = _corners(kept, self.format) / np.array([x, y, x, y])
        return [cast("Edges", tuple(row)) for row in corners.tolist()]


def box_feature(schema: Schema) -> Feature | None:
    """Return the first feature that can be boxes: numbers of shape ``(None, 4)`` or ``(4,)``, named so."""
    shaped = [
        feature
        for feature in schema.features
        if feature.kind in ("float", "int") and feature.shape in ((None, 4), (4,))
    ]
    return next((feature for feature in shaped if "box" in feature.name.lower()), None)


def boxes_in(values: Decoded) -> npt.NDArray[np.float64]:
    """Return the values of a feature of boxes with the shape ``(boxes, 4)``."""
    return np.asarray(values, np.float64).reshape(-1, 4)


def meaning_of(
    manifest: Manifest, feature: Feature, values: Sequence[npt.NDArray[np.float64]], given: BoxFormat | None
) -> BoxMeaning:
    """Return what the numbers of boxes mean: as given, as the source of the dataset defines it, or a guess.

    Args:
        manifest: the manifest of the dataset.
        feature: the feature.
        values: boxes of some images, each of shape ``(boxes, 4)``.
        given: the format that the user has stated.
    """
    boxes = np.concatenate([np.zeros((0, 4)), *values])
    boxes = boxes[np.isfinite(boxes).all(axis=1)]
    is_normalized = bool(len(boxes)) and float(np.abs(boxes).max()) <= _LARGEST_SHARE
    stated = _OF_SOURCES.get(str(manifest.options.get("form")))
    if given is not None:
        return BoxMeaning(feature.name, given, is_normalized, False)
    if stated is not None:
        return BoxMeaning(feature.name, *stated, False)
    if (boxes[:, 2:] >= boxes[:, :2]).all():
        # TensorFlow Datasets stores fractions with y first
        return BoxMeaning(feature.name, "yxyx" if is_normalized else "xyxy", is_normalized, True)
    fits = is_normalized and bool((_corners(boxes, "xywh").max(axis=0, initial=0) > 1.01).any())
    return BoxMeaning(feature.name, "cxcywh" if fits else "xywh", is_normalized, True)


def _corners(boxes: npt.NDArray[np.float64], order: BoxFormat) -> npt.NDArray[np.float64]:
    """Return left, top, right and bottom edges, shape ``(boxes, 4)``."""
    one, two, three, four = boxes.T
    if order == "yxyx":
        columns = [two, one, four, three]
    elif order == "xywh":
        columns = [one, two, one + three, two + four]
    elif order == "cxcywh":
        columns = [one - three / 2, two - four / 2, one + three / 2, two + four / 2]
    else:
        columns = [one, two, three, four]
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class ReportOptions:
    """Options of a report.

    Attributes:
        seed: random seed for the examples that are shown.
        source: folder of the images from which the dataset was built, for thumbnails of rejected inputs.
        audit: whether to read all records, to find leaks, duplicates and conflicts; by default only of
            datasets with at most 20,000 examples.
        boxes: order of the four numbers of a box, as for ``loader.Boxes``; by default known from ``--from``,
            else guessed from the values.

    Raises:
        OptionsError: an option has a value that is not allowed.
    """

    seed: int = option(0, "random seed for the examples that are shown", parse=int, default_text="0")
    source: str | os.PathLike[str] | None = option(
        None, "folder of the inputs, for thumbnails of rejected ones", metavar="FOLDER"
    )
    audit: bool | None = None
    boxes: BoxFormat | None = option(
        None,
        "order of the four numbers of a box",
        choices=BOX_FORMATS,
        default_text="known from --from, or guessed",
    )

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise OptionsError("seed-type", seed=self.seed)
        if self.source is not None:
            check_path("source", self.source)
        if self.audit not in (None, True, False):
            raise OptionsError("audit-type", audit=self.audit)
        check_choices(self)
