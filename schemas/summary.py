"""The summary of a dataset that ``tfshards info`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfshards.schemas.errors import one_line
from tfshards.schemas.manifest import Manifest
from tfshards.schemas.names import rejects_name
from tfshards.schemas.schema import Schema
from tfshards.schemas.sizes import size

_SHOWN_CLASSES = 20


def manifest_text(manifest: Manifest) -> str:
    """Return a table of a dataset's splits, features, classes and totals."""
    rows = [("split", "examples", "shards", "bytes", "examples per shard")]
    for name, split in manifest.splits.items():
        sizes = [shard.num_examples for shard in split.shards]
        rows.append((name, f"{split.num_examples:,}", f"{len(sizes):,}", size(split.num_bytes), span(sizes)))
    compression = "" if manifest.compression == "none" else f", {manifest.compression}"
    lines = [
        f"{manifest.name}, build {manifest.build_id}{compression}",
        *table(rows),
        *schema_lines(manifest.schema),
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
    if manifest.rejects_digest:
        lines.append(f"  {rejects_name(manifest.build_id)} lists the rejected inputs")
    lines += [f"  accepted: {count:,} {one_line(name)}" for name, count in totals.conversions.items()]
    return "\n".join(lines)


def schema_lines(schema: Schema) -> list[str]:
    """Return the line that lists the features with kind, dtype and shape."""
    shapes = [["?" if dim is None else str(dim) for dim in feature.shape] for feature in schema.features]
    parts = [
        f"{escaped(feature.name)} ({feature.kind}, {feature.dtype}{' ' + ' x '.join(shape) if shape else ''})"
        for feature, shape in zip(schema.features, shapes, strict=True)
    ]
    return [f"features: {', '.join(parts)}"]


def class_lines(counts: Mapping[str, Mapping[str, int]], schema: Schema | None = None) -> list[str]:
    """Return a table of the first classes, with a column of counts per split."""
    names = list(dict.fromkeys(name for split in counts.values() for name in split))
    if all(name.isdecimal() for name in names):
        # class numbers; each split lists only those that occur in it
        names.sort(key=int)
    if not names:
        many = [feature.name for feature in schema.features if feature.kind == "label"] if schema else []
        known = ", ".join(map(escaped, schema.class_names[:_SHOWN_CLASSES])) if schema else ""
        return (
            [f"{escaped(many[0])}: several classes per example, not counted: {known}"]
            if many
            else ["no labels"]
        )
    rows = [("class", *counts)]
    rows += [
        (escaped(name), *(f"{split.get(name, 0):,}" for split in counts.values()))
        for name in names[:_SHOWN_CLASSES]
    ]
    more = len(names) - _SHOWN_CLASSES
    return table(rows) + ([f"and {more:,} more class{'es' if more > 1 else ''}"] if more > 0 else [])


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
    return "".join(
        char if char.isprintable() and char != "\\" else char.encode("unicode_escape").decode("ascii")
        for char in name
    )
