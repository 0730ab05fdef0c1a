"""Draw the charts of docs/benchmarks.md from the tables of that page, as SVG files in docs/images.

Each chart has a bar for each row of one table, of the median in one column. A test compares the files.

Usage: python benchmarks/charts.py
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
FOLDER = ROOT / "docs" / "images"
WIDTH, ROW, NAMES, BARS = 760, 24, 320, 340
OWN, OTHER, TEXT = "#1f6f8b", "#b8c4c9", "#24292f"


class Chart(NamedTuple):
    """A chart: the name of its file, the heading of its table, the column of its bars, what they are."""

    name: str
    heading: str
    column: int
    unit: str


CHARTS = (
    Chart("training", "### One core", 2, "images per CPU second"),
    Chart("accuracy", "### Accuracy", 1, "top-1, %"),
    Chart("building", "## Photos to shards", 3, "photos a second"),
    Chart("reading", "### Arrays of 784 bytes", 1, "examples a second"),
    Chart("random-access", "### Without TensorFlow", 1, "examples a second"),
)


def rows_of(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table after a heading, without its first two lines."""
    section = page.partition(f"\n{heading}\n")[2]
    lines = section[section.index("\n|") + 1 :].splitlines()
    table = lines[
        : next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def median(cell: str) -> float:
    """Return the first number of a cell."""
    return float(re.match(r"[\d,.]+", cell)[0].replace(",", ""))


def draw(chart: Chart, page: str) -> str:
    """Return a chart as SVG."""
    rows = [(row[0].replace("`", ""), row[chart.column]) for row in rows_of(page, chart.heading)]
    most = max(median(cell) for _, cell in rows)
    height = ROW * (len(rows) + 1) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13" fill="{TEXT}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{NAMES}" y="17">{escape(chart.unit)}</text>',
    ]
    for number, (name, cell) in enumerate(rows, 1):
        top, length = ROW * number + 4, BARS * median(cell) / most
        color = OWN if re.match("tfshards|Records|batches|load|JPEG|pixels", name) else OTHER
        parts += [
            f'<text x="{NAMES - 8}" y="{top + 15}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{NAMES}" y="{top + 3}" width="{length:.1f}" height="{ROW - 8}" fill="{color}"/>',
            f'<text x="{NAMES + length + 6:.1f}" y="{top + 15}">{escape(cell.partition(" (")[0])}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Write all charts."""
    page = PAGE.read_text()
    for chart in CHARTS:
        (FOLDER / f"{chart.name}.svg").write_text(draw(chart, page))


if __name__ == "__main__":
    main()
