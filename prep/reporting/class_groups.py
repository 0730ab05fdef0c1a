"""The examples on a page: by class, and with masks or boxes over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfshards.prep.reporting.charts import bars_chart, rank_chart
from tfshards.prep.reporting.glimpse import Catalog, Glimpse, Roles, image_of, read_values
from tfshards.prep.reporting.options import ReportOptions, box_feature, boxes_in, meaning_of
from tfshards.prep.reporting.pictures import Shown, label_name, most_groups, pictures_per_group, shown
from tfshards.schemas import Feature, Manifest, Schema
from tfshards.schemas.storage import AnyPath
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


_SHOWN = 24
# Records whose boxes are read to find out what their numbers mean.
_READ = 200
_SHOWN_CLASSES = 6


def roles_of(root: AnyPath, manifest: Manifest, catalog: Catalog, options: ReportOptions) -> Roles:
    """Return the features from which pictures are drawn; some records are read for the meaning of boxes."""
    schema = manifest.schema
    image, boxes = image_of(schema), box_feature(schema)
    if image is None or not image.is_encoded:
        return Roles(image)
    mask = next((feature for feature in schema.features if feature.kind == "mask"), None)
    if boxes is None:
        return Roles(image, mask)
    values = [
        boxes_in(found[boxes.name])
        for part, places in catalog.by_part(catalog.some(_READ, options.seed).tolist())
        for _, found in read_values(root, manifest, part, [record for _, record in places], _no_tick)
        if not isinstance(found, str)
    ]
    meaning = meaning_of(manifest, boxes, values, options.boxes)
    return Roles(image, mask, meaning, _categories(schema, boxes))


def choose_marked(catalog: Catalog, roles: Roles, seed: int) -> list[int]:
    """Return the rows whose masks and boxes are shown; none without masks and boxes."""
    has_marks = roles.mask is not None or roles.boxes is not None
    return catalog.some(_SHOWN, seed).tolist() if has_marks else []


def marked_examples(
    rows: Sequence[int], seen: Mapping[int, Glimpse], manifest: Manifest, roles: Roles
) -> list[Shown]:
    """Return the examples as a page shows them, with the classes of their boxes as captions."""
    return [shown(seen[row], _caption(seen[row], manifest, roles)) for row in rows]


def marks_note(roles: Roles) -> str:
    """Return what the masks and boxes are, in one sentence; empty without any."""
    parts = [f"mask {roles.mask.name!r}, a color for each number but 0"] if roles.mask else []
    if roles.boxes is not None:
        unit = "fractions of the image" if roles.boxes.is_normalized else "pixels"
        guess = ", a guess from the values; --boxes states it" if roles.boxes.is_guessed else ""
        parts.append(f"boxes {roles.boxes.feature!r} as {roles.boxes.format} in {unit}{guess}")
    return "; ".join(parts)


def _caption(seen: Glimpse, manifest: Manifest, roles: Roles) -> str:
    if roles.boxes is None:
        return label_name(manifest, seen.label)
    if not seen.marks:
        return "no boxes"
    if roles.categories is None:
        return f"{len(seen.marks)} boxes" if len(seen.marks) > 1 else "1 box"
    counts = Counter(label_name(manifest, label) for label in seen.marks)
    named = [f"{count} {name}" for name, count in counts.most_common(_SHOWN_CLASSES)]
    return ", ".join(named) + (", …" if len(counts) > len(named) else "")


def _categories(schema: Schema, boxes: Feature) -> Feature | None:
    """Return the labels with the prefix of the boxes, such as ``objects/``."""
    prefix = boxes.name.rpartition("/")[0]
    lists = [one for one in schema.features if one.kind == "label" and one.is_ragged]
    return next((one for one in lists if one.name.rpartition("/")[0] == prefix), None)


def _no_tick(_: int) -> None:
    return
