"""What commands print for people, as text; the same facts as JSON where a program would read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tfshards.prep.commit import label_counts
from tfshards.prep.forecast import Forecast
from tfshards.prep.show import Found, description
from tfshards.prep.views.labels import escaped
from tfshards.schemas import Manifest, Schema, one_line
from tfshards.schemas.reading import Json
from tfshards.schemas.sizes import size

_SHOWN_CLASSES = 20
_WORKERS = range(1, 9)


def info_text(manifest: Manifest) -> str:
    """Return a dataset's splits, features, classes and totals."""
    rows = [("split", "examples", "shards", "bytes", "examples a shard")]
    for name, split in manifest.splits.items():
        sizes = [shard.num_examples for shard in split.shards]
        rows.append((name, f"{split.num_examples:,}", f"{len(sizes):,}", size(split.num_bytes), _span(sizes)))
    compression = "" if manifest.compression == "none" else f", {manifest.compression}"
    lines = [
        f"{manifest.name}, build {manifest.build_id}{compression}",
        *_table(rows),
        *_schema_lines(manifest.schema),
    ]
    counts = {name: split.label_counts for name, split in manifest.splits.items()}
    totals = manifest.totals
    lines += class_lines(counts, manifest.schema)
    lines.append(
        f"entries: {totals.entries:,} = {totals.accepted:,} accepted + {totals.rejected:,} rejected"
        f" + {totals.skipped:,} skipped"
    )
    for outcome, reasons in totals.reasons.items():
        lines += [f"  {outcome}: {count:,} {one_line(reason)}" for reason, count in reasons.items()]
    lines += [f"  accepted: {count:,} {one_line(name)}" for name, count in totals.conversions.items()]
    return "\n".join(lines)


def forecast_text(made: Forecast, batch_size: int, *, as_json: bool) -> str:
    """Return what a build would make, with the steps an epoch for 1 to 8 workers of ``batch_size`` each."""
    splits: dict[str, dict[str, Json]] = {}
    sizes = made.listing.sizes
    for name, layout in made.layouts.items():
        num_examples = sum(map(len, layout))
        splits[name] = {
            "num_examples": num_examples,
            "num_shards": len(layout),
            "examples_a_shard": [*map(len, layout)],
            "bytes_a_shard": [int(sizes[shard].sum()) for shard in layout],
            "label_counts": dict(label_counts(made.listing, layout)),
            "steps_an_epoch": {str(w): num_examples // (batch_size * w) for w in _WORKERS},
        }
    if as_json:
        skipped: dict[str, Json] = dict(made.listing.skipped)
        document: dict[str, Json] = {
            "build_id": made.build_id,
            "schema": made.listing.schema.to_json(),
            "splits": dict(splits),
            "skipped": skipped,
        }
        return json.dumps(document)
    rows = [("split", "examples", "shards", "source bytes", "examples a shard", "bytes a shard")]
    steps = [
        (f"steps an epoch, batch {batch_size}", *(f"{w} workers" if w > 1 else "1 worker" for w in _WORKERS))
    ]
    for name, layout in made.layouts.items():
        counts, weights = [*map(len, layout)], [int(sizes[shard].sum()) for shard in layout]
        span = f"{size(min(weights))} to {size(max(weights))}"
        rows.append((name, f"{sum(counts):,}", f"{len(counts):,}", size(sum(weights)), _span(counts), span))
        steps.append((name, *(f"{sum(counts) // (batch_size * w):,}" for w in _WORKERS)))
    lines = [f"would be build {made.build_id}", *_table(rows), *_schema_lines(made.listing.schema)]
    classes = {name: label_counts(made.listing, layout) for name, layout in made.layouts.items()}
    lines += class_lines(classes, made.listing.schema)
    lines += _table(steps)
    lines += [f"skipped: {count:,} {reason}" for reason, count in made.listing.skipped.items()]
    return "\n".join(lines)


def show_text(found: Found, schema: Schema) -> str:
    """Return where an example is and what it holds."""
    lines = [f"split {found.split}, record {found.record} of {found.shard}"]
    lines += [
        f"{feature.name}: {description(feature, schema, found.values[feature.name])}"
        for feature in schema.features
    ]
    return "\n".join(lines)


def _schema_lines(schema: Schema) -> list[str]:
    shapes = [["?" if dim is None else str(dim) for dim in feature.shape] for feature in schema.features]
    parts = [
        f"{escaped(feature.name)} ({feature.kind}, {feature.dtype}{' ' + ' x '.join(shape) if shape else ''})"
        for feature, shape in zip(schema.features, shapes, strict=True)
    ]
    return [f"features: {', '.join(parts)}"]


def class_lines(counts: Mapping[str, Mapping[str, int]], schema: Schema | None = None) -> list[str]:
    """Return a table of the classes, one column a split; the first ones if there are many."""
    names = list(dict.fromkeys(name for split in counts.values() for name in split))
    if all(name.isdecimal() for name in names):
        # numbers without names; a split lists those that it has
        names.sort(key=int)
    if not names:
        many = [feature.name for feature in schema.features if feature.kind == "label"] if schema else []
        known = ", ".join(map(escaped, schema.class_names[:_SHOWN_CLASSES])) if schema else ""
        return (
            [f"{escaped(many[0])}: several classes an example, not counted: {known}"]
            if many
            else ["no labels"]
        )
    rows = [("class", *counts)]
    rows += [
        (escaped(name), *(f"{split.get(name, 0):,}" for split in counts.values()))
        for name in names[:_SHOWN_CLASSES]
    ]
    more = len(names) - _SHOWN_CLASSES
    return _table(rows) + ([f"and {more:,} more class{'es' if more > 1 else ''}"] if more > 0 else [])


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines, the first column flush left and the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
