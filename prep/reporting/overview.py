"""The parts of a page that manifest and indexes give, and facts about a sample of images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tfshards.prep.building.made import made_of
from tfshards.prep.imaging.reasons import LOSSES
from tfshards.prep.reporting.cards import Values
from tfshards.prep.reporting.catalog import Catalog
from tfshards.prep.reporting.charts import bars_chart, histogram, series_color, size_unit
from tfshards.prep.reporting.glimpse import Glimpse
from tfshards.schemas import Manifest
from tfshards.schemas.errors import counted
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest import FORMAT_VERSION

# More classes than these have no chart; the table has a bar for each number.
_MOST_BARS = 40
_SHOWN_SIZES = 8


def class_counts(manifest: Manifest) -> dict[str, dict[str, int]]:
    """Return the number of examples by split and class, for all classes; empty without labels."""
    counts = {name: split.label_counts for name, split in manifest.splits.items()}
    if not any(counts.values()):
        return {}
    numbers = sorted(set().union(*counts.values()), key=lambda name: (len(name), name))
    names = manifest.schema.class_names or numbers
    return {split: {name: own.get(name, 0) for name in names} for split, own in counts.items()}


def overview(catalog: Catalog, counts: Mapping[str, Mapping[str, int]]) -> Values:
    """Return what the manifest shows, and problems of the files."""
    manifest, remedy_of = catalog.manifest, {loss.conversion: loss.remedy for loss in LOSSES}
    classes = list(next(iter(counts.values()), {}))
    largest = [max(own.values(), default=0) or 1 for own in counts.values()]
    label = f"Examples of {len(classes):,} classes in the splits {', '.join(counts)}"
    return {
        "manifest": manifest,
        "format": FORMAT_VERSION,
        "guarantees": list(_guarantees(catalog)),
        "problems": catalog.problems,
        "colors": {name: series_color(place) for place, name in enumerate(manifest.splits)},
        "class_chart": bars_chart(counts, label) if 0 < len(classes) <= _MOST_BARS else "",
        # for each class its examples in each split, and these as percentages of the largest class
        "classes": {
            name: [
                (own[name], round(100 * own[name] / most, 1))
                for own, most in zip(counts.values(), largest, strict=True)
            ]
            for name in classes
        },
        "options": dict(_options(manifest.options)),
        "conversions": [
            (name, count, remedy_of.get(name, ""))
            for name, count in _most_common(manifest.totals.conversions)
        ],
        "reasons": {outcome: _most_common(reasons) for outcome, reasons in manifest.totals.reasons.items()},
    }


def _most_common(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _guarantees(catalog: Catalog) -> Iterator[tuple[str, str, bool | None]]:
    """Yield what holds of the dataset, with details, and whether it holds: None where nothing was checked."""
    manifest, totals = catalog.manifest, catalog.manifest.totals
    yield (
        "No input is lost",
        f"{totals.accepted:,} accepted + {totals.rejected:,} rejected + {totals.skipped:,} skipped "
        f"= {totals.entries:,} entries",
        totals.accepted + totals.rejected + totals.skipped == totals.entries,
    )
    counts = {name: [shard.num_examples for shard in split.shards] for name, split in manifest.splits.items()}
    spreads = {name: max(own) - min(own) for name, own in counts.items() if own}
    # other tools do not promise balance
    is_promised = made_of(manifest).source != "adopt"
    is_even = max(spreads.values(), default=0) <= 1
    detail = ", ".join(f"{name}: {counted(spread, 'example')}" for name, spread in spreads.items())
    yield (
        "Shards are balanced",
        f"difference of the largest and smallest shard: {detail}",
        is_even or (False if is_promised else None),
    )
    problems = len(catalog.problems)
    num_files = sum(len(shard.files) for shard in manifest.shards)
    sound = f"{counted(num_files, 'file')}: sizes of shards, digests of indexes, labels and keys match"
    found = f"{counted(problems, 'problem')}: listed below" if problems else sound
    yield "Files are complete", found, not problems


def _options(options: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield name and value of the options of the build as text; those of parts have the name of the part."""
    for name, value in options.items():
        if isinstance(value, dict) and value:
            yield from _options(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield prefix + name, "yes" if value else "no"
        else:
            is_empty = value is None or value in ("", [], {})
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield prefix + name, "none" if is_empty else text if len(text) <= 200 else f"{text[:200]}…"


def image_facts(sample: Sequence[Glimpse]) -> Values | None:
    """Return what the images of a sample are like, or None if no header was read."""
    headers = [seen.header for seen in sample if seen.header]
    if not headers:
        return None
    width = np.array([header.size[0] for header in headers], np.float64)
    height = np.array([header.size[1] for header in headers], np.float64)
    num_bytes = np.array([seen.num_bytes for seen in sample if seen.header], np.float64)
    unit, divisor = size_unit(float(num_bytes.max()))
    measures = (
        ("Width", width, "pixels", "{:,.0f}", 1),
        ("Height", height, "pixels", "{:,.0f}", 1),
        ("Aspect ratio", width / np.maximum(height, 1), "width / height", "{:.2f}", 2),
        ("Encoded size", num_bytes / divisor, unit, f"{{:.1f}} {unit}", 3),
    )
    charts = []
    for title, values, axis, form, color in measures:
        low, middle, high = (form.format(value) for value in np.quantile(values, [0, 0.5, 1]))
        spread = f"all {low}" if low == high else f"median {middle}, {low} to {high}"
        chart = histogram(values, axis, f"var(--series-{color})", f"{title}: {spread}")
        charts.append((title, spread, chart))
    sizes = _most_common(Counter("{} x {}".format(*header.size) for header in headers))
    return {
        "num_images": len(headers),
        "num_unreadable": len(sample) - len(headers),
        "charts": charts,
        "kinds": _most_common(Counter(header.kind for header in headers)),
        "sizes": sizes[:_SHOWN_SIZES],
        "other_sizes": max(0, len(sizes) - _SHOWN_SIZES),
    }
