"""A plan: what a build would produce, as data, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tfshards.prep.planning.splits import Membership
from tfshards.prep.sources.base import Listing
from tfshards.schemas import Schema
from tfshards.schemas.errors import one_line
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest import FORMAT_VERSION
from tfshards.schemas.names import id_of
from tfshards.schemas.sizes import size
from tfshards.schemas.summary import class_lines, role_lines, schema_lines, span, table

# Numbers of workers for which the steps per epoch are shown.
_WORKER_COUNTS = (1, 2, 4, 8, 16, 32, 64)
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
        notes: other lines for the user, such as which rows stay in one split.
    """

    name: str
    listing: Listing
    membership: Membership
    layouts: Layouts
    plan_id: str
    inputs_digest: str
    options: Mapping[str, Json]
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the table that ``tfshards plan`` prints."""
        return plan_text(self)


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


def plan_text(plan: Plan, batch_size: int = 32, typed: Callable[[str], str] = str) -> str:
    """Return splits, shards, features, classes, and the steps per epoch for 1 to 64 workers.

    ``batch_size`` is that of one worker; ``typed`` returns a message with parameters as flags.
    """
    splits: list[tuple[str, ...]] = [
        ("split", "examples", "shards", "source bytes", "examples per shard", "bytes per shard")
    ]
    workers = [f"{count} worker{'s' if count > 1 else ''}" for count in _WORKER_COUNTS]
    steps: list[tuple[str, ...]] = [(f"steps per epoch, batch {batch_size} per worker", *workers)]
    has_steps = False
    for name, layout in plan.layouts.items():
        counts = [len(shard) for shard in layout]
        total = sum(counts)
        num_bytes = [int(plan.listing.sizes[shard].sum()) for shard in layout]
        low, high = size(min(num_bytes)), size(max(num_bytes))
        of_shard = low if low == high else f"{low} to {high}"
        splits.append((name, f"{total:,}", f"{len(counts):,}", size(sum(num_bytes)), span(counts), of_shard))
        batches, left = zip(*(divmod(total, batch_size * count) for count in _WORKER_COUNTS), strict=True)
        has_steps |= total >= batch_size
        steps.append((name, *(f"{count:,}" for count in batches)))
        if any(left):
            steps.append((f"{name}: examples left over", *(f"{count:,}" for count in left)))
    no_steps = f"no steps: every split has fewer than {batch_size:,} examples, which are one batch"
    lines = [
        *table(splits),
        *schema_lines(plan.listing.schema),
        *role_lines(plan.options),
        *class_lines(label_counts_of(plan.listing, plan.layouts), plan.listing.schema),
        *(table(steps) if has_steps else [no_steps]),
        *(one_line(typed(note)) for note in plan.notes),
        *(f"skipped: {count:,} {reason}" for reason, count in plan.listing.skipped.items()),
    ]
    return "\n".join(lines)


def plan_json(plan: Plan, batch_size: int = 32, typed: Callable[[str], str] = str) -> dict[str, Json]:
    """Return the same facts, with every shard, as a JSON object; the arguments are those of ``plan_text``."""
    splits: dict[str, Json] = {}
    classes = label_counts_of(plan.listing, plan.layouts)
    for name, layout in plan.layouts.items():
        num_examples = sum(map(len, layout))
        splits[name] = {
            "num_examples": num_examples,
            "num_shards": len(layout),
            "examples_per_shard": [*map(len, layout)],
            "bytes_per_shard": [int(plan.listing.sizes[shard].sum()) for shard in layout],
            "label_counts": dict(classes[name]),
            "steps_per_epoch": {str(count): num_examples // (batch_size * count) for count in _WORKER_COUNTS},
            "examples_left_over": {
                str(count): num_examples % (batch_size * count) for count in _WORKER_COUNTS
            },
        }
    return {
        "schema": plan.listing.schema.to_json(),
        "splits": splits,
        "skipped": dict(plan.listing.skipped),
        **({"notes": [*map(typed, plan.notes)]} if plan.notes else {}),
        **({"warnings": [*map(typed, plan.warnings)]} if plan.warnings else {}),
    }
