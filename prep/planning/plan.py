"""A plan: what a build would produce, as data, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tfshards.prep.planning.splits import Membership
from tfshards.prep.sources.base import Listing
from tfshards.schemas import Schema
from tfshards.schemas.errors import size
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest import FORMAT_VERSION
from tfshards.schemas.names import id_of
from tfshards.schemas.summary import class_lines, role_lines, schema_lines, span, table

# For each split, the example numbers of each shard in the order of writing.
Layouts: TypeAlias = Mapping[str, list[IntArray]]


@dataclass(frozen=True, repr=False)
class Plan:
    """The result of a build if no input is rejected.

    Attributes:
        name: name of the dataset.
        listing: listing of the source.
        membership: examples of each split.
        layouts: layout of each split, see ``Layouts``.
        plan_id: hex digits, equal for equal inputs (see ``inputs_digest``) and options.
        inputs_digest: digest of the keys, sizes, labels and splits of the inputs, but not of their content.
        options: all options that change the output, as the manifest stores them.
        warnings: warnings for the user.
    """

    name: str
    listing: Listing
    membership: Membership
    layouts: Layouts
    plan_id: str
    inputs_digest: str
    options: Mapping[str, Json]
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        """Return what ``tfshards plan`` prints: tables of splits, features and classes."""
        splits: list[tuple[str, ...]] = [
            ("split", "examples", "shards", "source bytes", "examples per shard", "bytes per shard")
        ]
        for name, layout in self.layouts.items():
            counts = [len(shard) for shard in layout]
            num_bytes = [int(self.listing.sizes[shard].sum()) for shard in layout]
            low, high = size(min(num_bytes)), size(max(num_bytes))
            of_shard = low if low == high else f"{low} to {high}"
            total = f"{sum(counts):,}", f"{len(counts):,}", size(sum(num_bytes))
            splits.append((name, *total, span(counts), of_shard))
        lines = [
            *table(splits),
            *schema_lines(self.listing.schema),
            *role_lines(self.options),
            *class_lines(label_counts_of(self.listing, self.layouts), self.listing.schema),
            *(f"skipped: {count:,} {reason}" for reason, count in self.listing.skipped.items()),
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Json]:
        """Return the same facts, with every shard."""
        classes = label_counts_of(self.listing, self.layouts)
        splits: dict[str, Json] = {
            name: {
                "num_examples": sum(map(len, layout)),
                "num_shards": len(layout),
                "examples_per_shard": [*map(len, layout)],
                "bytes_per_shard": [int(self.listing.sizes[shard].sum()) for shard in layout],
                "label_counts": dict(classes[name]),
            }
            for name, layout in self.layouts.items()
        }
        return {
            "schema": self.listing.schema.to_json(),
            "splits": splits,
            "skipped": dict(self.listing.skipped),
            **({"warnings": [*self.warnings]} if self.warnings else {}),
        }


def plan_id_of(name: str, schema: Schema, options: Mapping[str, Json], inputs_digest: str) -> str:
    """Return a hash of all that determines the bytes of a dataset, except the content of its inputs."""
    header = [FORMAT_VERSION, name, schema.to_json(), dict(options), inputs_digest]
    return id_of(json.dumps(header, sort_keys=True))


def label_counts(labels: IntArray | None, schema: Schema) -> dict[str, int]:
    """Return the number of examples of each class, as a manifest has it: nothing if one has no class."""
    if labels is None:
        return {}
    values, counts = np.unique(labels, return_counts=True)
    found = dict(zip(values.tolist(), counts.tolist(), strict=True))
    if not schema.class_names:
        return {str(label): count for label, count in found.items()}
    if -1 in found:
        return {}
    return {name: found.get(label, 0) for label, name in enumerate(schema.class_names)}


def label_counts_of(listing: Listing, layouts: Layouts) -> dict[str, dict[str, int]]:
    """Return the number of examples of each class in the shards of each split."""
    labels = listing.labels
    return {
        split: label_counts(None if labels is None else labels[np.concatenate(layout)], listing.schema)
        for split, layout in layouts.items()
    }
