"""The charts of a report, and its contact sheet as a picture."""

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from tests.pictures import image_file
from tfshards.prep.imaging.stored import encoded_small, thumbnail
from tfshards.prep.reporting.cards import contact_sheet
from tfshards.prep.reporting.charts import bars_chart, histogram, size_unit
from tfshards.prep.reporting.glimpse import Glimpse

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


def seen(color: str | None) -> Glimpse:
    picture = Image.new("RGB", (50, 30), color) if color else None
    return Glimpse("train", 0, "key", picture=encoded_small(picture) if picture else None, size=(50, 30))


def test_a_contact_sheet_has_a_row_for_each_class_and_room_for_missing_pictures():
    examples = {0: seen("red"), 1: seen(None), 2: seen("blue")}
    sheet = contact_sheet({"cat": [0, 1], "a long name of a class " * 9: [2]}, examples)
    with Image.open(io.BytesIO(sheet)) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    red = np.argwhere((pixels[..., 0] > 200) & (pixels[..., 2] < 60))
    blue = np.argwhere((pixels[..., 2] > 200) & (pixels[..., 0] < 60))
    assert 1300 < len(red) < 1700 > len(blue) > 1300
    assert red[:, 1].max() < blue[:, 1].min() or red[:, 0].max() < blue[:, 0].min()
    assert contact_sheet({"cat": [0]}, examples) == contact_sheet({"cat": [0]}, examples)


def test_a_bomb_is_not_decoded():
    file = image_file(Image.new("1", (9_500, 9_500)))
    with pytest.raises(ValueError, match="9500 x 9500 pixels; at most 89000000"):
        thumbnail(file, 64)
