"""The sizes, aspect ratios, bytes and depths of a sample of images, as charts and a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tfshards.prep.reporting.charts import histogram, size_unit
from tfshards.prep.reporting.glimpse import Glimpse
from tfshards.schemas.sizes import size

_SHOWN_SIZES = 8


@dataclass(frozen=True)
class ImageFacts:
    """What a sample of images is like.

    Attributes:
        num_images: number of images whose headers were read.
        num_unreadable: number of images of the sample without a readable header.
        charts: title, median and range, and SVG of each histogram.
        kinds: number of images by format, mode and depth, the most common first.
        sizes: number of images by width x height, the most common first.
        other_sizes: number of further sizes.
    """

    num_images: int
    num_unreadable: int
    charts: tuple[tuple[str, str, str], ...]
    kinds: tuple[tuple[str, int], ...]
    sizes: tuple[tuple[str, int], ...]
    other_sizes: int


def image_facts(sample: Sequence[Glimpse]) -> ImageFacts | None:
    """Return what the images of a sample are like, or None if no header was read."""
    headers = [seen.header for seen in sample if seen.header]
    if not headers:
        return None
    width = np.array([header.width for header in headers], np.float64)
    height = np.array([header.height for header in headers], np.float64)
    num_bytes = np.array([seen.num_bytes for seen in sample if seen.header], np.float64)
    unit, divisor = size_unit(float(num_bytes.max()))
    measures = (
        ("Width", width, "pixels", 1, "1"),
        ("Height", height, "pixels", 1, "1"),
        ("Aspect ratio", width / np.maximum(height, 1), "width / height", 1, "2"),
        ("Encoded size", num_bytes, unit, divisor, "3"),
    )
    kinds = Counter(header.kind for header in headers)
    sizes = Counter(f"{header.width} x {header.height}" for header in headers)
    common = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN_SIZES]
    return ImageFacts(
        len(headers),
        len(sample) - len(headers),
        tuple(
            (
                title,
                _range(values, title),
                histogram(values / by, axis, f"var(--series-{color})", f"{title}: {_range(values, title)}"),
            )
            for title, values, axis, by, color in measures
        ),
        tuple(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
        tuple(common),
        len(sizes) - len(common),
    )


def _range(values: npt.NDArray[np.float64], title: str) -> str:
    low, middle, high = float(values.min()), float(np.median(values)), float(values.max())
    if title == "Encoded size":
        texts = [size(low), size(middle), size(high)]
    elif title in ("Width", "Height"):
        texts = [f"{low:,.0f}", f"{middle:,.0f}", f"{high:,.0f}"]
    else:
        texts = [f"{low:.2f}", f"{middle:.2f}", f"{high:.2f}"]
    return f"all {texts[0]}" if low == high else f"median {texts[1]}, {texts[0]} to {texts[2]}"
