"""The charts of the benchmarks, drawn from the tables of the page, so that both show the same figures."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tfshards.prep.reporting.charts import drawn
from tfshards.schemas.json_reader import Json


def add_charts(markdown: str, path: Path) -> str:
    """Return the page with a chart before each table that the file names.

    Args:
        markdown: the page.
        path: file with a list of charts: ``heading`` of the section, ``column`` of its first table that has
            it, and ``title``, the title of the axis.

    Raises:
        ValueError: a section has no table with the column.
    """
    for chart in json.loads(path.read_text()):
        markdown = _with_chart(markdown, chart["heading"], chart["column"], chart["title"])
    return markdown


def _with_chart(markdown: str, heading: str, column: str, title: str) -> str:
    start = re.search(rf"^#+ {re.escape(heading)}$", markdown, re.M)
    tables = re.compile(r"(?:^\|.*\n)+", re.M).finditer(markdown, start.end()) if start else iter(())
    for table in tables:
        names, _, *rows = [_cells(line) for line in table[0].splitlines()]
        if column in names:
            found = [(row[0], row[names.index(column)]) for row in rows]
            values = {name: _number(text) for name, text in found if text}
            figure = f'<figure class="chart">{_bars(values, title, heading)}</figure>\n\n'
            return markdown[: table.start()] + figure + markdown[table.start() :]
    raise ValueError(f"the section {heading!r} has no table with the column {column!r}")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def _number(text: str) -> float:
    """Return the first number of a cell such as ``8,540`` or ``2.9 (2.7-3.0)``."""
    found = re.match(r"-?[\d,]+(?:\.\d+)?", text)
    if found is None:
        raise ValueError(f"the cell {text!r} has no number")
    return float(found[0].replace(",", ""))


def _bars(values: dict[str, float], title: str, heading: str) -> str:
    rows: list[Json] = [
        {"name": name, "value": value, "is_ours": "tfshards" in name} for name, value in values.items()
    ]
    names: list[Json] = [*values]
    ours: list[Json] = ["var(--chart-ours)", "var(--chart-other)"]
    y: Json = {
        "field": "name",
        "type": "nominal",
        "sort": names,
        "title": None,
        "axis": {"labelLimit": 260, "domain": False, "ticks": False},
    }
    axis: Json = {"tickCount": 4, "labelExpr": "format(datum.value, datum.value < 1000 ? '.3~g' : '~s')"}
    x: Json = {"field": "value", "type": "quantitative", "title": title, "axis": axis}
    color: Json = {
        "field": "is_ours",
        "type": "nominal",
        "scale": {"domain": [True, False], "range": ours},
        "legend": None,
    }
    spec: dict[str, Json] = {
        "data": {"values": rows},
        "mark": {"type": "bar", "height": {"band": 0.7}},
        "encoding": {"y": y, "x": x, "color": color},
        "width": 400,
        # the font of the page may be wider than the one that Vega measures
        "padding": {"left": 30, "right": 20, "top": 6, "bottom": 2},
        "height": 24 * len(rows) + 8,
    }
    return drawn(spec, f"{heading}: {title}; the table below has the figures")
