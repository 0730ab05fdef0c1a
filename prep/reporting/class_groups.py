"""The classes on a page: how many examples each has in each split, and the examples shown of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfshards.prep.reporting.catalog import Catalog
from tfshards.prep.reporting.charts import bars_chart, rank_chart
from tfshards.prep.reporting.glimpse import Glimpse
from tfshards.prep.reporting.pictures import Shown, label_name, most_groups, pictures_per_group, shown
from tfshards.schemas import Manifest
from tfshards.schemas.summary import escaped

# More classes than these are drawn by their rank.
_MOST_BARS = 40


@dataclass(frozen=True)
class ClassRow:
    """One class, with a number of examples for each split.

    Attributes:
        name: its name, or its number.
        counts: numbers of examples, in the order of the splits.
        shares: the same as percentages of the largest class of each split.
    """

    name: str
    counts: tuple[int, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Group:
    """Examples of one class, or of one split where there are no classes."""

    name: str
    count: int
    examples: tuple[Shown, ...]


def class_counts(manifest: Manifest) -> dict[str, dict[str, int]]:
    """Return the number of examples by split and class, for all classes; empty without labels."""
    counts = {name: split.label_counts for name, split in manifest.splits.items()}
    names = list(manifest.schema.class_names) or sorted(
        set().union(*counts.values()), key=lambda name: (len(name), name)
    )
    if not any(counts.values()):
        return {}
    return {split: {name: own.get(name, 0) for name in names} for split, own in counts.items()}


def class_rows(counts: Mapping[str, Mapping[str, int]]) -> list[ClassRow]:
    """Return a row for each class, in the order of the class numbers."""
    largest = [max(own.values(), default=0) or 1 for own in counts.values()]
    return [
        ClassRow(
            escaped(name),
            tuple(own[name] for own in counts.values()),
            tuple(
                round(100 * own[name] / most, 1) for own, most in zip(counts.values(), largest, strict=True)
            ),
        )
        for name in next(iter(counts.values()), {})
    ]


def class_chart(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Return the chart of classes as SVG; empty without labels."""
    shown_counts = {
        escaped(split): {escaped(name): count for name, count in own.items()} for split, own in counts.items()
    }
    number = len(next(iter(shown_counts.values()), {}))
    if not number:
        return ""
    label = (
        f"Examples of {number:,} classes in the splits {', '.join(shown_counts)}; the table has the numbers"
    )
    return bars_chart(shown_counts, label) if number <= _MOST_BARS else rank_chart(shown_counts, label)


def chosen_groups(manifest: Manifest, catalog: Catalog, seed: int) -> dict[str, list[int]]:
    """Return the rows of the catalog to show, by name of the class, or of the split without classes."""
    if catalog.labels is not None:
        labels = sorted(set(catalog.labels.tolist()))[: most_groups()]
        chosen = catalog.some_of_each(pictures_per_group(len(labels)), seed)
        return {label_name(manifest, label): chosen[label] for label in labels}
    count = 3 * pictures_per_group(len(manifest.splits))
    by_split: dict[str, list[int]] = {name: [] for name in manifest.splits}
    for part, records in catalog.by_part(catalog.some(count * len(by_split), seed).tolist()):
        by_split[part.split] += [row for row, _ in records]
    return {escaped(name): rows[:count] for name, rows in by_split.items() if rows}


def groups(
    chosen: Mapping[str, Sequence[int]], seen: Mapping[int, Glimpse], counts: Mapping[str, int]
) -> list[Group]:
    """Return the chosen examples as the page shows them.

    Args:
        chosen: rows by name of the group.
        seen: the examples, by row.
        counts: number of all examples of each group.
    """
    return [
        Group(name, counts.get(name, 0), tuple(shown(seen[row]) for row in rows))
        for name, rows in chosen.items()
    ]
