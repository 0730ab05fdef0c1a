"""Summaries of datasets for people: text as ``tfshards info`` prints it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfshards.schemas.errors import listed, one_line
from tfshards.schemas.json_reader import Json
from tfshards.schemas.schema import Schema

# Of more classes than these, those with most examples are listed.
_SHOWN_CLASSES = 20


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

    With many classes, it has those with the most examples.
    """
    names = _class_order(counts, schema)
    if not names:
        return [_uncounted(schema)]

    def rows(names: Sequence[str]) -> list[tuple[str, ...]]:
        shown = map(escaped, names)
        found = [[f"{split.get(name, 0):,}" if split else "-" for split in counts.values()] for name in names]
        return [(name, *cells) for name, cells in zip(shown, found, strict=True)]

    head = [("class", *counts)]
    if len(names) <= _SHOWN_CLASSES:
        return table([*head, *rows(names)])
    # of equal classes, the first ones
    names.sort(key=lambda name: -sum(split.get(name, 0) for split in counts.values()))
    more = f"and {len(names) - _SHOWN_CLASSES:,} more classes, none of them larger (--json has all)"
    return [*table([*head, *rows(names[:_SHOWN_CLASSES])]), more]


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
    what = "examples have several" if schema[many[0]].is_ragged else "some examples have none (-1)"
    several = f"{escaped(many[0])}: classes are not counted, since {what}"
    names = [*map(escaped, schema.class_names)]
    return f"{several}; the classes are {listed(names, _SHOWN_CLASSES)}" if names else several


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
