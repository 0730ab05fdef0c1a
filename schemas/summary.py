"""Summaries of datasets for people: text as ``tfshards info`` prints it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfshards.schemas.errors import listed, one_line
from tfshards.schemas.json_reader import Json
from tfshards.schemas.schema import Schema

# More classes than these are summed up by those with most and with fewest examples.
SHOWN_CLASSES = 20
# Characters of the name of a class in a summary.
_SHOWN_NAME = 40


def schema_lines(schema: Schema) -> list[str]:
    """Return the line that lists the features with kind, dtype and shape."""
    parts = [f"{escaped(feature.name)} ({feature.text})" for feature in schema.features]
    return [f"features: {', '.join(parts)}"]


def role_lines(options: Mapping[str, Json]) -> list[str]:
    """Return the line that lists the columns with a role, if the source of a dataset had any."""
    columns = options.get("columns")
    if not isinstance(columns, Mapping) or not columns:
        return []
    return [f"columns: {', '.join(f'{escaped(name)} {role}' for name, role in columns.items())}"]


def class_lines(counts: Mapping[str, Mapping[str, int]], schema: Schema | None = None) -> list[str]:
    """Return a table of the classes in the order of their numbers, with a column of counts per split.

    With many classes, it has those with the most and the fewest examples.
    """
    names = _class_order(counts, schema)
    if not names:
        return [_uncounted(schema)]

    def rows(names: Sequence[str]) -> list[tuple[str, ...]]:
        shown = [_cut(escaped(name)) for name in names]
        found = [[f"{split.get(name, 0):,}" if split else "-" for split in counts.values()] for name in names]
        return [(name, *cells) for name, cells in zip(shown, found, strict=True)]

    head = [("class", *counts)]
    if len(names) <= SHOWN_CLASSES:
        return table([*head, *rows(names)])
    # of equal classes, the first ones
    names.sort(key=lambda name: -sum(split.get(name, 0) for split in counts.values()))
    half = SHOWN_CLASSES // 2
    left = len(names) - SHOWN_CLASSES
    more = (f"and {left:,} more class{'es' if left > 1 else ''}", *("" for _ in counts))
    return [line.rstrip() for line in table([*head, *rows(names[:half]), more, *rows(names[-half:])])]


def _class_order(counts: Mapping[str, Mapping[str, int]], schema: Schema | None) -> list[str]:
    """Return the classes that occur, in the order of their numbers."""
    names = list(dict.fromkeys(name for split in counts.values() for name in split))
    if schema is not None and schema.class_names:
        # by their numbers, also those that only a later split has
        names.sort(key={name: label for label, name in enumerate(schema.class_names)}.__getitem__)
    elif all(name.isdecimal() for name in names):
        # class numbers; each split lists only those that occur in it
        names.sort(key=int)
    return names


def _uncounted(schema: Schema | None) -> str:
    """Return a line about classes of which each example has several, or about their absence."""
    many = [feature.name for feature in schema.features if feature.is_label] if schema else []
    if not many or schema is None:
        return "no labels"
    names = [_cut(escaped(name)) for name in schema.class_names]
    what = "examples have several" if schema[many[0]].is_ragged else "some examples have none (-1)"
    several = f"{escaped(many[0])}: classes are not counted, since {what}"
    return f"{several}; the classes are {listed(names, SHOWN_CLASSES)}" if names else several


def _cut(name: str) -> str:
    """Return a long name without its middle."""
    kept = (_SHOWN_NAME - 1) // 2
    return name if len(name) <= _SHOWN_NAME else f"{name[: _SHOWN_NAME - 1 - kept]}…{name[-kept:]}"


def span(values: Sequence[int]) -> str:
    """Return the smallest and the largest value as text, or only one if they are equal."""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as aligned lines; the first column is left-aligned, the others are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def escaped(name: str) -> str:
    r"""Return ``name`` with backslashes, control characters and surrogates escaped, such as ``\n``."""
    return one_line(name.replace("\\", r"\\"))
