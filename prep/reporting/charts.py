"""Draw the charts of a page as static SVG, in the colors of the page, light or dark."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tfshards.schemas.json_reader import Json
from tfshards.schemas.summary import escaped

# Vega reserves room for the axes outside of it. Charts are as wide as a phone, and stand side by side.
_WIDTH, _HEIGHT = 320, 130
_ROW_HEIGHT = 17
# A wide page makes charts a little larger.
_LARGEST_SCALE = 1.15
_BINS = 30
# The style of the page has another font for the text of charts.
_FONT = "sans-serif"
_AXIS: dict[str, Json] = {
    "labelColor": "var(--muted)",
    "titleColor": "var(--muted)",
    "gridColor": "var(--line)",
    "domainColor": "var(--line-strong)",
    "tickColor": "var(--line-strong)",
    "labelFont": _FONT,
    "titleFont": _FONT,
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
    "aria": False,
}
# The font of the page may be wider than the one that Vega measures.
_PADDING: dict[str, Json] = {"left": 14, "right": 10, "top": 6, "bottom": 2}
_VALUES: dict[str, Json] = {
    "tickCount": 4,
    "labelExpr": "format(datum.value, datum.value < 1000 ? '.3~g' : '~s')",
}
_SIZE = re.compile(r'^<svg[^>]*? width="([\d.]+)" height="([\d.]+)"')


def series_color(number: int) -> str:
    """Return the color of a split, as a color of the page."""
    return f"var(--series-{number % 6 + 1})"


def size_unit(num_bytes: float) -> tuple[str, int]:
    """Return the unit in which a number of bytes is shown on an axis, and its number of bytes."""
    units = ("bytes", "KiB", "MiB", "GiB")
    power = min(len(units) - 1, max(0, int(math.log(max(num_bytes, 1), 1024))))
    return units[power], 1024**power


def histogram(values: npt.NDArray[np.float64], title: str, color: str, label: str) -> str:
    """Return a histogram of positive values, with bins of equal ratio where they span two decades.

    Args:
        values: shape ``(n,)``, not empty.
        title: title of the horizontal axis.
        color: a color of the page.
        label: what the chart shows, for people who do not see it.
    """
    low, high = float(values.min()), float(values.max())
    is_log = low > 0 and high / low >= 100
    if low == high:
        low, high = low * 0.9 - 0.5, high * 1.1 + 0.5
    edges = np.geomspace(low, high, _BINS + 1) if is_log else np.linspace(low, high, _BINS + 1)
    counts, _ = np.histogram(values, np.r_[edges[:-1], math.nextafter(edges[-1], math.inf)])
    rows: list[Json] = [
        {"from": float(left), "to": float(right), "count": int(count), "zero": 0}
        for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    scale: Json = {"type": "log" if is_log else "linear", "zero": False, "nice": False}
    axis: Json = {**_VALUES, "grid": False, "tickCount": 5}
    encoding: dict[str, Json] = {
        "x": {"field": "from", "type": "quantitative", "title": title, "scale": scale, "axis": axis},
        "x2": {"field": "to"},
        "y": {"field": "zero", "type": "quantitative", "title": None, "axis": _VALUES},
        "y2": {"field": "count"},
    }
    mark: Json = {"type": "rect", "color": color, "stroke": "var(--card)", "strokeWidth": 1}
    return drawn({"data": {"values": rows}, "mark": mark, "encoding": encoding}, label)


def bars_chart(counts: Mapping[str, Mapping[str, int]], label: str) -> str:
    """Return horizontal bars: for each class the share of each split's examples.

    Args:
        counts: number of examples by split and class, for the same classes in each split.
        label: what the chart shows, for people who do not see it.
    """
    rows: list[Json] = [
        {"class": escaped(name), "split": escaped(split), "share": count / max(1, sum(own.values()))}
        for split, own in counts.items()
        for name, count in own.items()
    ]
    names: list[Json] = [escaped(name) for name in next(iter(counts.values()))]
    splits: list[Json] = [escaped(split) for split in counts]
    colors: list[Json] = [series_color(number) for number in range(len(splits))]
    names_axis: Json = {"labelLimit": 100, "domain": False, "ticks": False}
    share_axis: Json = {"format": "~%", "tickCount": 4}
    encoding: dict[str, Json] = {
        "y": {"field": "class", "type": "nominal", "sort": names, "title": None, "axis": names_axis},
        "yOffset": {"field": "split", "sort": splits},
        "x": {"field": "share", "type": "quantitative", "title": "share of the split", "axis": share_axis},
        "color": {"field": "split", "scale": {"domain": splits, "range": colors}, "legend": None},
    }
    height = max(8 * len(splits), _ROW_HEIGHT) * len(names) + 8
    spec: dict[str, Json] = {"data": {"values": rows}, "mark": {"type": "bar"}, "encoding": encoding}
    return drawn({**spec, "width": _WIDTH - 60, "height": height}, label)


def drawn(spec: Mapping[str, Json], label: str) -> str:
    """Return a specification of Vega-Lite as SVG that is scaled by the page, without roles inside."""
    import vl_convert

    config: Json = {
        "background": "transparent",
        "view": {"stroke": None},
        "axis": _AXIS,
        "aria": False,
        "font": _FONT,
    }
    whole = {"width": _WIDTH, "height": _HEIGHT, "config": config, "padding": _PADDING, **spec}
    svg = vl_convert.vegalite_to_svg(json.dumps(whole))
    size = _SIZE.match(svg)
    assert size, svg[:200]
    text = escaped(label).replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    most = float(size[1]) * _LARGEST_SCALE
    opening = f'<svg role="img" aria-label="{text}" style="max-width: {most:.0f}px"'
    # the marks have no meaning of their own: the label describes the chart, a table has its numbers
    return opening + re.sub(r' (role|aria-\w+)="[^"]*"', "", svg[size.end() :])
