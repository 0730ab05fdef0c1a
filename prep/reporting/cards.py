"""Examples and inputs as a page shows them: as cards, and in groups by class."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tfshards.prep.reporting.catalog import Catalog
from tfshards.prep.reporting.glimpse import Glimpse, Roles
from tfshards.schemas import Manifest

# What the templates print; they escape characters that are not printable, and those of HTML.
Values: TypeAlias = dict[str, object]

# Thumbnails of a page: photos of 96 pixels have about 2 KB each as text in the page.
_MOST_PICTURES = 4_000
_FEWEST, _MOST = 2, 16
_SIDES = {400: 160, 1_600: 128, _MOST_PICTURES: 96}
_SHOWN_CLASSES = 6


def card(
    name: str,
    caption: str = "",
    *,
    picture: bytes | None = None,
    sides: tuple[int, int] = (0, 0),
    fault: str = "",
) -> Values:
    """Return an example or an input: its key, and its thumbnail as WebP or why there is none."""
    uri = f"data:image/webp;base64,{base64.b64encode(picture).decode('ascii')}" if picture else ""
    width, height = sides
    return {"name": name, "caption": caption, "uri": uri, "width": width, "height": height, "fault": fault}


def card_of(seen: Glimpse, caption: str = "") -> Values:
    """Return an example with its split and number."""
    place = f"{seen.split}:{seen.number}"
    found = card(seen.key, caption, picture=seen.picture, sides=seen.size, fault=seen.fault)
    return {**found, "split": seen.split, "place": place}


def label_name(manifest: Manifest, label: int | None) -> str:
    """Return the name of a class, or its number where classes have no names."""
    if label is None:
        return ""
    names = manifest.schema.class_names
    if not names:
        return str(label)
    return "no class" if label < 0 else names[label]


def chosen_groups(catalog: Catalog, seed: int) -> dict[str, list[int]]:
    """Return the rows of the catalog to show, by name of the class, or of the split without classes."""
    manifest = catalog.manifest
    if catalog.labels is not None:
        labels = sorted(set(catalog.labels.tolist()))[: _MOST_PICTURES // _FEWEST]
        chosen = catalog.some_of_each(_per_group(len(labels)), seed)
        return {label_name(manifest, label): chosen[label] for label in labels}
    count = 3 * _per_group(len(manifest.splits))
    by_split: dict[str, list[int]] = {name: [] for name in manifest.splits}
    for part, rows in catalog.by_part(catalog.some(count * len(by_split), seed)):
        by_split[part.split] += rows.values()
    return {name: rows[:count] for name, rows in by_split.items() if rows}


def _per_group(num_groups: int) -> int:
    return max(_FEWEST, min(_MOST, _MOST_PICTURES // max(1, num_groups)))


def groups(
    chosen: Mapping[str, Sequence[int]],
    seen: Mapping[int, Glimpse],
    manifest: Manifest,
    counts: Mapping[str, Mapping[str, int]],
) -> list[Values]:
    """Return the chosen examples by class, or by split without classes, with the number of all of them."""

    def total(name: str) -> int:
        if manifest.schema.label is None:
            return manifest.splits[name].num_examples
        return sum(own.get(name, 0) for own in counts.values())

    return [
        {"name": name, "number": total(name), "examples": [card_of(seen[row]) for row in rows]}
        for name, rows in chosen.items()
    ]


def marks_note(roles: Roles) -> str:
    """Return what the masks, boxes and keypoints are, in one sentence; empty without any."""
    parts = [f"mask {roles.mask.name!r}, a color for each number but 0"] if roles.mask else []
    if roles.boxes is not None:
        how = (
            f"as {roles.boxes.format}" if roles.boxes.format else "are not drawn: --boxes states their format"
        )
        parts.append(f"boxes {roles.boxes.feature!r} {how}")
    if roles.points is not None:
        parts.append(f"keypoints {roles.points.feature!r} as {roles.points.format}")
    return "; ".join(parts)


def marked(
    rows: Sequence[int], seen: Mapping[int, Glimpse], manifest: Manifest, roles: Roles
) -> list[Values]:
    """Return examples with masks and boxes, with the classes of their boxes as captions."""

    def caption(one: Glimpse) -> str:
        if roles.boxes is None or not roles.boxes.format:
            return label_name(manifest, one.label)
        if roles.boxes.categories is None or not one.marks:
            return f"boxes: {len(one.marks)}"
        counts = Counter(label_name(manifest, label) for label in one.marks)
        named = [f"{count} {name}" for name, count in counts.most_common(_SHOWN_CLASSES)]
        return ", ".join(named) + (", …" if len(counts) > len(named) else "")

    return [card_of(seen[row], caption(seen[row])) for row in rows]


def side_of(num_pictures: int) -> int:
    """Return the side in pixels of the square that each of so many thumbnails fits."""
    return next((side for most, side in _SIDES.items() if num_pictures <= most), min(_SIDES.values()))
