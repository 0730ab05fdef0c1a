"""A plan: what a build would produce, as data, as text and as JSON, with advice."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tfshards.prep.planning.estimate import Estimate, estimate_json, estimate_lines
from tfshards.prep.planning.options import DEFAULT_SHARD_SIZE
from tfshards.prep.planning.splits import Membership
from tfshards.prep.sources.base import Listing
from tfshards.schemas import Schema
from tfshards.schemas.errors import listed, one_line
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest import FORMAT_VERSION
from tfshards.schemas.names import id_of
from tfshards.schemas.sizes import size
from tfshards.schemas.summary import class_lines, schema_lines, span, table

# For each split, the example numbers of each shard in the order of writing.
Layouts: TypeAlias = Mapping[str, list[IntArray]]

# The tail of a build, in which workers have no shard left, is then about a fifth of its time at most.
_SHARDS_PER_WORKER = 4
# Bytes of a source for whose build the number of workers matters.
_LARGE_BUILD = 1 << 30
# A few small shards do no harm.
_MANY_SHARDS, _SMALL_SHARD = 16, 10 << 20
# Larger shards are repaired, resumed and copied in large pieces.
_LARGE_SHARD = 1 << 30
# Fewer examples of a class say little about it.
_FEW_EXAMPLES = 10
_SHOWN = 3


@dataclass(frozen=True, repr=False)
class Plan:
    """The result of a build if no input is rejected.

    Attributes:
        name: name of the dataset.
        listing: listing of the source.
        membership: examples of each split.
        layouts: layout of each split, see ``Layouts``.
        plan_id: 8 hex digits, equal for equal inputs (see ``inputs_digest``) and options.
        inputs_digest: digest of the keys, sizes, labels and splits of the inputs, but not of their content.
        options: all options that change the output, as the manifest stores them.
        warnings: warnings for the user.
        notes: other lines for the user, such as how evenly whole groups divide the classes.
        estimate: time, memory and bytes of the build, if it was asked for.
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
    estimate: Estimate | None = None

    def __repr__(self) -> str:
        """Return the table that ``tfshards plan`` prints."""
        return plan_text(self)


def plan_id_of(name: str, schema: Schema, options: Mapping[str, Json], inputs_digest: str) -> str:
    """Return a hash of all that determines the bytes of a dataset, except the content of its inputs."""
    header = [FORMAT_VERSION, name, schema.to_json(), dict(options), inputs_digest]
    return id_of(json.dumps(header, sort_keys=True))


def label_counts(listing: Listing, layout: Sequence[IntArray]) -> Mapping[str, int]:
    """Return the number of examples of each class in the shards of a split.

    It is empty without labels, or if an example has no class.
    """
    if listing.labels is None:
        return {}
    values, counts = np.unique(listing.labels[np.concatenate(layout)], return_counts=True)
    found = dict(zip(values.tolist(), counts.tolist(), strict=True))
    names = listing.schema.class_names
    if names and -1 in found:
        return {}
    if names:
        return {name: found.get(label, 0) for label, name in enumerate(names)}
    return {str(label): count for label, count in found.items()}


def shard_advice(plan: Plan) -> Iterator[str]:
    """Yield how many workers the shards of a large build keep busy, and whether shards are small or large."""
    num_shards = sum(map(len, plan.layouts.values()))
    num_bytes = int(plan.listing.sizes.sum())
    if num_bytes >= _LARGE_BUILD:
        workers = max(1, num_shards // _SHARDS_PER_WORKER)
        yield (
            f"{num_shards:,} shards keep {workers:,} worker{'s' if workers > 1 else ''} busy until the build "
            f"ends, with {_SHARDS_PER_WORKER} for each; more workers need more shards"
        )
    if num_shards > _MANY_SHARDS and num_bytes < num_shards * _SMALL_SHARD:
        yield (
            f"{num_shards:,} shards hold only {size(num_bytes // num_shards)} each; fewer are faster to "
            f"read: the default size is {size(DEFAULT_SHARD_SIZE)}, and {size(_SMALL_SHARD)} is enough"
        )
    for split, layout in plan.layouts.items():
        largest = max(int(plan.listing.sizes[shard].sum()) for shard in layout)
        num_examples = sum(map(len, layout))
        if largest > _LARGE_SHARD and num_examples > len(layout):
            enough = min(num_examples, math.ceil(largest * len(layout) / _LARGE_SHARD))
            yield (
                f"the shards of {split!r} hold up to {size(largest)}; with {enough:,} or more, at most "
                f"{size(_LARGE_SHARD)} has to be written again after a crash or a repair: see shards="
            )


def class_advice(counts: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield a line for each split in which classes have few examples.

    Args:
        counts: number of examples of each class, by split. A warning names classes without examples.
    """
    for split, of_class in counts.items():
        few = sorted((count, name) for name, count in of_class.items() if 0 < count < _FEW_EXAMPLES)
        if few:
            are = "1 class has" if len(few) == 1 else f"{len(few):,} classes have"
            some = listed([f"{name!r} ({count:,})" for count, name in few], _SHOWN)
            yield f"{are} fewer than {_FEW_EXAMPLES} examples in {split!r}: {some}"


_WORKER_COUNTS = (1, 2, 4, 8, 16, 32, 64)
_LEFT = ": examples left over"


def plan_text(plan: Plan, batch_size: int = 32, typed: Callable[[str], str] = str) -> str:
    """Return splits, shards, features, classes, and the steps per epoch for 1 to 64 workers.

    Args:
        plan: plan of a build.
        batch_size: number of examples per batch of one worker.
        typed: returns a message with parameters as they are typed, such as flags of the command line.
    """
    rows, steps = _split_rows(plan, batch_size)
    classes = {name: label_counts(plan.listing, layout) for name, layout in plan.layouts.items()}
    lines = [
        *table(rows),
        *schema_lines(plan.listing.schema),
        *class_lines(classes, plan.listing.schema),
        *(_step_lines(steps) or [typed(_no_steps(batch_size))]),
        *_other_lines(plan, classes, typed),
    ]
    return "\n".join(lines)


def _split_rows(plan: Plan, batch_size: int) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the table of splits, and the table of steps, each with its head."""
    head = ("split", "examples", "shards", "source bytes", "examples per shard", "bytes per shard")
    splits: list[tuple[str, ...]] = [head]
    workers = [f"{count} worker{'s' if count > 1 else ''}" for count in _WORKER_COUNTS]
    steps: list[tuple[str, ...]] = [(f"steps per epoch, batch {batch_size} per worker", *workers)]
    for name, layout in plan.layouts.items():
        counts = [len(shard) for shard in layout]
        num_bytes = [int(plan.listing.sizes[shard].sum()) for shard in layout]
        low, high = size(min(num_bytes)), size(max(num_bytes))
        bytes_span = low if low == high else f"{low} to {high}"
        splits.append(
            (name, f"{sum(counts):,}", f"{len(counts):,}", size(sum(num_bytes)), span(counts), bytes_span)
        )
        steps.append((name, *(f"{sum(counts) // (batch_size * count):,}" for count in _WORKER_COUNTS)))
        left = [sum(counts) % (batch_size * count) for count in _WORKER_COUNTS]
        if any(left):
            steps.append((f"{name}{_LEFT}", *(f"{count:,}" for count in left)))
    return splits, steps


def _other_lines(
    plan: Plan, classes: Mapping[str, Mapping[str, int]], typed: Callable[[str], str]
) -> Iterator[str]:
    """Yield advice, notes, the reasons for skipped entries, and the estimate if there is one."""
    yield from map(typed, shard_advice(plan))
    yield from class_advice(classes)
    yield from (one_line(typed(note)) for note in plan.notes)
    yield from (f"skipped: {count:,} {reason}" for reason, count in plan.listing.skipped.items())
    if plan.estimate:
        yield from map(typed, estimate_lines(plan.estimate))


def _step_lines(steps: list[tuple[str, ...]]) -> list[str]:
    """Return the table of steps; nothing if there are none for any number of workers."""
    # one worker has most steps
    has_steps = any(row[1] != "0" for row in steps[1:] if not row[0].endswith(_LEFT))
    return table(steps) if has_steps else []


def _no_steps(batch_size: int) -> str:
    return f"no steps: every split has fewer examples than batch_size={batch_size}"


def plan_json(plan: Plan, batch_size: int = 32, typed: Callable[[str], str] = str) -> dict[str, Json]:
    """Return the same facts, with every shard, as a JSON object; the arguments are those of ``plan_text``."""
    splits: dict[str, Json] = {}
    classes = {name: label_counts(plan.listing, layout) for name, layout in plan.layouts.items()}
    advice = [*map(typed, shard_advice(plan)), *class_advice(classes)]
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
        **({"advice": [*advice]} if advice else {}),
        **({"estimate": estimate_json(plan.estimate, typed)} if plan.estimate else {}),
    }
