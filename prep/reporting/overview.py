"""The parts of a page that manifest and indexes give, and facts about a sample of images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tfshards.prep.reporting.charts import columns_chart, histogram, series_color, size_unit
from tfshards.prep.reporting.glimpse import Catalog, Glimpse
from tfshards.schemas import Manifest, Shard, Split
from tfshards.schemas.errors import counted
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest import FORMAT_VERSION
from tfshards.schemas.sizes import size
from tfshards.schemas.summary import escaped, remedies, span

# Shards whose rows a page has; its charts show all of them.
_SHOWN_SHARDS = 200
_SHOWN_PROBLEMS = 50


@dataclass(frozen=True)
class Guarantee:
    """A statement about the dataset, and whether it holds: None where nothing was checked."""

    name: str
    detail: str
    holds: bool | None


@dataclass(frozen=True)
class SplitPart:
    """One split on the page.

    Attributes:
        name: its name.
        color: its color in all charts.
        split: its entry in the manifest.
        size: its size with a unit.
        examples_per_shard: smallest and largest number.
        bytes_per_shard: smallest and largest size.
        charts: title and SVG of its charts.
        shards: its first shards.
        more: number of further shards.
    """

    name: str
    color: str
    split: Split
    size: str
    examples_per_shard: str
    bytes_per_shard: str
    charts: tuple[tuple[str, str], ...]
    shards: tuple[tuple[Shard, str], ...]
    more: int


@dataclass(frozen=True)
class Conversion:
    """A conversion of images, the number of images, and how to keep what it loses."""

    name: str
    count: int
    remedy: str


def tiles(manifest: Manifest) -> list[tuple[str, str]]:
    """Return name and value of the most important numbers."""
    num_bytes = sum(split.num_bytes for split in manifest.splits.values())
    found = [
        ("examples", f"{manifest.num_examples:,}"),
        ("splits", f"{len(manifest.splits):,}"),
        ("shards", f"{len(manifest.shards):,}"),
        ("size", size(num_bytes)),
    ]
    classes = len(manifest.schema.class_names) or len(
        set().union(*(split.label_counts for split in manifest.splits.values()))
    )
    if classes:
        found.insert(1, ("classes", f"{classes:,}"))
    if manifest.totals.rejected:
        found.append(("rejected", f"{manifest.totals.rejected:,}"))
    return found


def guarantees(manifest: Manifest, catalog: Catalog) -> Iterator[Guarantee]:
    """Yield what holds of the dataset, from its manifest and from the files that a report reads."""
    totals = manifest.totals
    yield Guarantee(
        "No input is lost",
        f"{totals.accepted:,} accepted + {totals.rejected:,} rejected + {totals.skipped:,} skipped "
        f"= {totals.entries:,} entries",
        totals.accepted + totals.rejected + totals.skipped == totals.entries,
    )
    spreads = {
        name: max(counts) - min(counts)
        for name, split in manifest.splits.items()
        if (counts := [shard.num_examples for shard in split.shards])
    }
    by_bytes = manifest.options.get("balance") == "bytes"
    # other tools do not promise balance
    is_adopted = manifest.made.source == "adopt"
    is_even = max(spreads.values(), default=0) <= 1
    detail = ", ".join(f"{escaped(name)}: {counted(spread, 'example')}" for name, spread in spreads.items())
    aim = "; balanced by bytes" if by_bytes and not is_even else ""
    yield Guarantee(
        "Shards are balanced",
        f"difference of the largest and smallest shard: {detail}{aim}",
        is_even or (None if by_bytes or is_adopted else False),
    )
    num_files = sum(len(shard.files) for shard in manifest.shards)
    problems = len(catalog.problems)
    yield Guarantee(
        "Files are complete",
        f"{counted(problems, 'problem')}: listed below"
        if problems
        else f"{counted(num_files, 'file')}: sizes of shards, digests of indexes and labels match",
        not problems,
    )
    yield Guarantee(
        "Every byte has a digest",
        "SHA-256 of each file, CRC-32C of each record; compared by: tfshards verify DATASET --deep",
        None,
    )
    yield Guarantee(
        "Format",
        f"version {FORMAT_VERSION}, build {manifest.build_id}, compression "
        f"{manifest.compression}, schema {manifest.schema.fingerprint}",
        None,
    )


def problems(catalog: Catalog) -> list[str]:
    """Return the first problems of files, as lines."""
    lines = [escaped(str(problem)) for problem in catalog.problems[:_SHOWN_PROBLEMS]]
    left = len(catalog.problems) - len(lines)
    return lines + ([f"and {left:,} more; tfshards verify lists all of them"] if left else [])


def split_parts(manifest: Manifest) -> Iterator[SplitPart]:
    """Yield the splits with their shards and charts."""
    for number, (name, split) in enumerate(manifest.splits.items()):
        examples = [shard.num_examples for shard in split.shards]
        num_bytes = [shard.num_bytes for shard in split.shards]
        low, high = size(min(num_bytes)), size(max(num_bytes))
        color, of = series_color(number), f"of split {escaped(name)}"
        spread = low if low == high else f"{low} to {high}"
        unit, divisor = size_unit(max(num_bytes))
        charts = (
            (
                "Examples per shard",
                columns_chart(examples, color, f"Examples in each shard {of}: {span(examples)}"),
            ),
            (
                f"{unit} per shard",
                columns_chart(
                    [count / divisor for count in num_bytes], color, f"Size of each shard {of}: {spread}"
                ),
            ),
        )
        listed = tuple((shard, size(shard.num_bytes)) for shard in split.shards[:_SHOWN_SHARDS])
        yield SplitPart(
            escaped(name),
            color,
            split,
            size(split.num_bytes),
            span(examples),
            spread,
            charts,
            listed,
            len(split.shards) - len(listed),
        )


def conversions(manifest: Manifest) -> list[Conversion]:
    """Return the conversions of images, the most common first."""
    remedy_of = remedies()
    counted_first = sorted(manifest.totals.conversions.items(), key=lambda item: (-item[1], item[0]))
    return [Conversion(escaped(name), count, remedy_of.get(name, "")) for name, count in counted_first]


def option_rows(options: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Yield name and value of the options of the build as text; those of parts have the name of the part."""
    for name, value in options.items():
        if isinstance(value, dict) and value:
            yield from ((f"{escaped(name)}.{inner}", text) for inner, text in option_rows(value))
        else:
            yield escaped(name), _option_text(value)


def _option_text(value: Json) -> str:
    if value is None or value in ("", [], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return escaped(text if len(text) <= 200 else f"{text[:200]}…")


_SHOWN_SIZES = 8


@dataclass(frozen=True)
class ImageFacts:
    """What a sample of images is like.

    Attributes:
        num_images: number of images whose headers were read.
        num_unreadable: number of images of the sample without a readable header.
        charts: title, median and range, and SVG of each histogram.
        kinds: number of images by format, mode and depth, the most common first.
        sizes: number of images by width x height, the most common first.
        other_sizes: number of further sizes.
    """

    num_images: int
    num_unreadable: int
    charts: tuple[tuple[str, str, str], ...]
    kinds: tuple[tuple[str, int], ...]
    sizes: tuple[tuple[str, int], ...]
    other_sizes: int


def image_facts(sample: Sequence[Glimpse]) -> ImageFacts | None:
    """Return what the images of a sample are like, or None if no header was read."""
    headers = [seen.header for seen in sample if seen.header]
    if not headers:
        return None
    width = np.array([header.width for header in headers], np.float64)
    height = np.array([header.height for header in headers], np.float64)
    num_bytes = np.array([seen.num_bytes for seen in sample if seen.header], np.float64)
    unit, divisor = size_unit(float(num_bytes.max()))
    measures = (
        ("Width", width, "pixels", 1, "1"),
        ("Height", height, "pixels", 1, "1"),
        ("Aspect ratio", width / np.maximum(height, 1), "width / height", 1, "2"),
        ("Encoded size", num_bytes, unit, divisor, "3"),
    )
    kinds = Counter(header.kind for header in headers)
    sizes = Counter(f"{header.width} x {header.height}" for header in headers)
    common = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN_SIZES]
    return ImageFacts(
        len(headers),
        len(sample) - len(headers),
        tuple(
            (
                title,
                _range(values, title),
                histogram(values / by, axis, f"var(--series-{color})", f"{title}: {_range(values, title)}"),
            )
            for title, values, axis, by, color in measures
        ),
        tuple(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
        tuple(common),
        len(sizes) - len(common),
    )


def _range(values: npt.NDArray[np.float64], title: str) -> str:
    low, middle, high = float(values.min()), float(np.median(values)), float(values.max())
    if title == "Encoded size":
        texts = [size(low), size(middle), size(high)]
    elif title in ("Width", "Height"):
        texts = [f"{low:,.0f}", f"{middle:,.0f}", f"{high:,.0f}"]
    else:
        texts = [f"{low:.2f}", f"{middle:.2f}", f"{high:.2f}"]
    return f"all {texts[0]}" if low == high else f"median {texts[1]}, {texts[0]} to {texts[2]}"
