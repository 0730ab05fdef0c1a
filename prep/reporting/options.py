"""What a caller can ask of a report."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tfshards.prep.option import check_choices, option
from tfshards.schemas import OptionsError
from tfshards.schemas.coordinates import BOX_FORMATS
from tfshards.schemas.errors import check_path


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

    seed: int = option(0, "random seed for the examples that are shown", parse=int, default_text="0")
    source: str | os.PathLike[str] | None = option(
        None, "folder of the inputs, for thumbnails of rejected ones", metavar="FOLDER"
    )
    audit: bool | None = None
    boxes: str | None = option(
        None, "format of boxes", choices=BOX_FORMATS, default_text="as the dataset declares it"
    )

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise OptionsError("seed-type", seed=self.seed)
        if self.source is not None:
            check_path("source", self.source)
        if self.audit not in (None, True, False):
            raise OptionsError("audit-type", audit=self.audit)
        check_choices(self)
