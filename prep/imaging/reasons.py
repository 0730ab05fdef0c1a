"""Why inputs are rejected, and what conversions of accepted ones lose."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Reason(str, Enum):
    """Why an input is rejected: what a rejects file and a manifest hold, and docs/rules.md explains."""

    __hash__ = str.__hash__
    __str__ = str.__str__

    EMPTY = "empty"
    UNREADABLE = "unreadable"
    DAMAGED = "damaged"
    TOO_LARGE = "too large"
    ANIMATED = "animated"
    UNSUPPORTED = "unsupported"
    MISMATCH = "mismatch"
    BOXES = "boxes do not fit"
    ANNOTATION = "invalid annotation"
    OUTSIDE = "box outside"
    MISSING = "missing"
    DUPLICATE = "duplicate"


@dataclass(eq=False)
class ImageError(ValueError):
    """An image is rejected, or cannot be decoded.

    Attributes:
        reason: why.
        detail: an explanation without control characters.
    """

    reason: Reason
    detail: str

    def __str__(self) -> str:
        """Return the explanation."""
        return self.detail


class Loss(NamedTuple):
    """A conversion that loses something, how to keep that, and what a build warns about, if anything."""

    conversion: str
    remedy: str
    done: str | None = None


LOSSES = (
    Loss(
        "16 bits to 8",
        "depth=16 keeps their values",
        "with more than 8 bits per sample: reduced to the upper 8, so that 4095 of 16 bits becomes 15",
    ),
    Loss(
        "16 bits of color to 8",
        "'tfshards build arrays' stores arrays of them as they are",
        "with more than 8 bits per sample in color: reduced to 8",
    ),
    Loss("alpha over white", "channels=4 stores it", "with transparency: drawn over white"),
    Loss("first frame", "no option stores the others: extract them before the build"),
    Loss(
        "color profile ignored",
        "no option applies it: convert images that are not sRGB before the build",
    ),
)
