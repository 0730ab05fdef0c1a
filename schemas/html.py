"""Tables of HTML, as notebooks show values of this package (``_repr_html_``)."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tfshards.schemas.errors import one_line

# Rows of a table; a notebook with more of them is slow.
MAX_ROWS = 1_000


def html_table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table, of which the first column is the heading of each row; text is escaped.

    Args:
        caption: text above the table.
        head: headings of the columns.
        rows: the cells; of more than ``MAX_ROWS`` rows the first ones are shown, and the others counted.
    """
    left = len(rows) - MAX_ROWS
    more = f"<p>and {left:,} more</p>" if left > 0 else ""
    return (
        f"<table><caption>{_safe(caption)}</caption><thead><tr>{_cells('th', head)}</tr></thead><tbody>"
        + "".join(f"<tr>{_cells('th', row[:1])}{_cells('td', row[1:])}</tr>" for row in rows[:MAX_ROWS])
        + f"</tbody></table>{more}"
    )


def html_lines(lines: Sequence[str]) -> str:
    """Return lines as a paragraph; text is escaped."""
    return f"<p>{'<br>'.join(map(_safe, lines))}</p>"


def _cells(tag: str, cells: Sequence[str]) -> str:
    return "".join(f"<{tag}>{_safe(cell)}</{tag}>" for cell in cells)


def _safe(text: str) -> str:
    return escape(one_line(text))
