"""The charts of a report."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from tests.pictures import image_file
from tfshards.prep.imaging.stored import thumbnail
from tfshards.prep.reporting.charts import bars_chart, histogram, size_unit

COLOR = "var(--series-1)"
MARK = re.compile(r'<path d="M([\d.e-]+),([\d.e-]+)h([\d.e-]+)v([\d.e-]+)')


def bars(svg: str) -> list[tuple[float, float]]:
    """Width and height of each bar, in the order of the chart."""
    return [(float(match[3]), float(match[4])) for match in MARK.finditer(svg)]


def test_a_histogram_has_every_value_also_the_largest_one():
    svg = histogram(np.array([1.0, 1, 2, 9]), "pixels", COLOR, "sizes")
    shown = [height for _, height in bars(svg) if height]
    assert sorted(shown) == pytest.approx([max(shown) / 2, max(shown) / 2, max(shown)])


@pytest.mark.parametrize("values", [[5.0], [64.0, 64.0], [1.0, 100_000.0], [0.0, 0.0]])
def test_a_histogram_of_any_range_is_drawn(values):
    assert len(bars(histogram(np.array(values), "pixels", COLOR, "sizes"))) == 30


def test_bars_are_shares_of_each_split():
    svg = bars_chart({"train": {"cat": 30, "dog": 10}, "val": {"cat": 1, "dog": 3}}, "classes")
    widths = [width for width, _ in bars(svg)]
    assert widths == pytest.approx([max(widths), max(widths) / 3, max(widths) / 3, max(widths)])


def test_charts_are_well_formed_and_the_same_each_time():
    label = '<b> & "quotes"'
    drawn = [bars_chart({"<split>": {"<script>": 1, "a&b": 2}}, label) for _ in range(2)]
    assert drawn[0] == drawn[1]
    root = ElementTree.fromstring(drawn[0])
    assert root.get("aria-label") == label
    assert "<script>" in "".join(root.itertext())
    assert not root.findall(".//script")


@pytest.mark.parametrize(
    ("num_bytes", "unit"), [(0, "bytes"), (1023, "bytes"), (1024, "KiB"), (5 << 20, "MiB"), (5 << 50, "GiB")]
)
def test_axes_of_bytes_have_a_unit(num_bytes, unit):
    assert size_unit(num_bytes)[0] == unit


def test_a_bomb_is_not_decoded():
    file = image_file(Image.new("1", (9_500, 9_500)))
    with pytest.raises(ValueError, match="9500 x 9500 pixels; at most 89000000"):
        thumbnail(file, 64)
