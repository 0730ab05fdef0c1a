"""Why inputs are rejected, and what conversions of accepted ones lose: two tables."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Reason(str, Enum):
    """A reason; its value is what a rejects file and a manifest hold.

    Attributes:
        meaning: the condition, for the documentation.
    """

    def __new__(cls, value: str, meaning: str) -> Reason:
        """Return the member with its meaning."""
        reason = str.__new__(cls, value)
        reason._value_ = value
        reason.meaning = meaning
        return reason

    __hash__ = str.__hash__
    __str__ = str.__str__
    meaning: str

    def __format__(self, spec: str) -> str:
        """Return the value."""
        return format(str(self), spec)

    EMPTY = "empty", "no bytes"
    UNREADABLE = "unreadable", "not an image of a known format"
    DAMAGED = "damaged", "truncated, broken, or with more or fewer pixels than its header says"
    TOO_LARGE = (
        "too large",
        "above `--max-pixels` (89,000,000), 1 GiB, 10,000 frames, 100 scans of a progressive "
        "JPEG, or a side above 1,000,000",
    )
    ANIMATED = "animated", "several frames or pages, without `--animation first`"
    UNSUPPORTED = (
        "unsupported",
        "no rule says what its values mean, an image has no place for them (bands, bits, signs), or the "
        "package that reads it is not installed",
    )
    MISMATCH = (
        "mismatch",
        "a mask has another size than its image, or may belong to it before or after it is turned upright",
    )
    BOXES = (
        "boxes do not fit",
        "the stated size is another one than the image has, or nothing shows whether its boxes "
        "refer to the upright image",
    )
    ANNOTATION = (
        "invalid annotation",
        "COCO or YOLO annotates it with an unknown class, a box of three numbers or the like",
    )
    OUTSIDE = (
        "box outside",
        "a box or keypoint has NaN, an infinite number or a negative width or height, or is outside of its "
        "image, without `--outside-boxes clip` or `keep`",
    )
    MISSING = "missing", "a table names a file that does not exist, or an image has no mask"
    DUPLICATE = "duplicate", "`--duplicates drop`; not counted against the limit"


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
    Loss(
        "32 bits to 8",
        "depth=16 keeps values up to 65535",
        "with 32 bits per sample: reduced to 8, by dividing values up to 65535 by 256",
    ),
    Loss(
        "float to 8 bits",
        "'tfshards build arrays' stores arrays of them as they are",
        "of floating point numbers: reduced to 8 bits",
    ),
    Loss(
        "alpha over white",
        "alpha='keep' and channels=4 store it",
        "with transparency: drawn over white",
    ),
    Loss("first frame", "no option stores the others: extract them before the build"),
    Loss(
        "color profile ignored",
        "no option applies it: convert images that are not sRGB before the build",
    ),
)
