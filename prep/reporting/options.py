"""What a caller can ask of a report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tfshards.prep.option import check_choices
from tfshards.schemas import OptionsError
from tfshards.schemas.errors import check_path

BoxFormat: TypeAlias = Literal[
    "xywh",
    "xywh-normalized",
    "xyxy",
    "xyxy-normalized",
    "cxcywh",
    "cxcywh-normalized",
    "yxyx",
    "yxyx-normalized",
]


@dataclass(frozen=True)
class ReportOptions:
    """Options of a report.

    Attributes:
        seed: random seed for the examples that are shown.
        source: folder of the images from which the dataset was built, for thumbnails of rejected inputs.
        audit: whether to read all records, to find leaks, duplicates and conflicts; by default only of
            datasets with at most 20,000 examples.
        boxes: format of boxes, such as "xyxy"; by default as the dataset declares it.

    Raises:
        OptionsError: an option has a value that is not allowed.
    """

    seed: int = 0
    source: str | os.PathLike[str] | None = None
    audit: bool | None = None
    boxes: BoxFormat | None = None

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise OptionsError("seed-type", seed=self.seed)
        if self.source is not None:
            check_path("source", self.source)
        if self.audit not in (None, True, False):
            raise OptionsError("audit-type", audit=self.audit)
        check_choices(self)
