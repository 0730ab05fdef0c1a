"""Draw the charts of a page as static SVG, in the colors of the page, light or dark."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tfshards.schemas.summary import escaped

# Specifications of Vega-Lite without their values, and their common configuration.
_CHARTS = Path(__file__).with_name("templates") / "charts.json"
# Vega reserves room for the axes outside of it. Charts are as wide as a phone, and stand side by side.
_WIDTH, _HEIGHT = 320, 130
_ROW_HEIGHT = 17
# The font of the page may be wider than the one that Vega measures.
_PADDING = {"left": 14, "right": 10, "top": 6, "bottom": 2}
# A wide page makes charts a little larger.
_LARGEST_SCALE = 1.15
_BINS = 30
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
    """Return a histogram of positive values, with bins of equal ratio where they span two decades."""
    low, high = float(values.min()), float(values.max())
    is_log = low > 0 and high / low >= 100
    if low == high:
        low, high = low * 0.9 - 0.5, high * 1.1 + 0.5
    edges = np.geomspace(low, high, _BINS + 1) if is_log else np.linspace(low, high, _BINS + 1)
    counts, _ = np.histogram(values, np.r_[edges[:-1], math.nextafter(edges[-1], math.inf)])
    spec = _chart("histogram")
    spec["mark"]["color"] = color
    spec["encoding"]["x"]["title"] = title
    spec["encoding"]["x"]["scale"]["type"] = "log" if is_log else "linear"
    bins = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
    rows = [{"from": left, "to": right, "count": count, "zero": 0} for left, right, count in bins]
    return drawn({**spec, "data": {"values": rows}}, label)


def bars_chart(counts: Mapping[str, Mapping[str, int]], label: str) -> str:
    """Return horizontal bars: for each class the share of each split's examples."""
    names = [escaped(name) for name in next(iter(counts.values()))]
    splits = [escaped(split) for split in counts]
    spec = _chart("bars")
    spec["encoding"]["y"]["sort"] = names
    spec["encoding"]["yOffset"]["sort"] = splits
    spec["encoding"]["color"]["scale"] = {"domain": splits, "range": [*map(series_color, range(len(splits)))]}
    rows = [
        {"class": escaped(name), "split": escaped(split), "share": count / max(1, sum(own.values()))}
        for split, own in counts.items()
        for name, count in own.items()
    ]
    height = max(8 * len(splits), _ROW_HEIGHT) * len(names) + 8
    return drawn({**spec, "data": {"values": rows}, "width": _WIDTH - 60, "height": height}, label)


def _chart(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_CHARTS.read_text(encoding="utf-8"))[name]
    return found


def drawn(spec: Mapping[str, object], label: str) -> str:
    """Return a chart of Vega-Lite as SVG that the page scales, with a label for people who do not see it."""
    import vl_convert

    whole = {"width": _WIDTH, "height": _HEIGHT, "config": _chart("config"), "padding": _PADDING, **spec}
    svg = vl_convert.vegalite_to_svg(json.dumps(whole))
    size = _SIZE.match(svg)
    assert size, svg[:200]
    text = escaped(label).replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    most = float(size[1]) * _LARGEST_SCALE
    opening = f'<svg role="img" aria-label="{text}" style="max-width: {most:.0f}px"'
    # the marks have no meaning of their own: the label describes the chart, a table has its numbers
    return opening + re.sub(r' (role|aria-\w+)="[^"]*"', "", svg[size.end() :])
