"""Find the inputs that have changed since their examples were written, reading as few of them as possible."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tfshards.prep.building.contents import comparison_line, differing
from tfshards.prep.building.inputs_file import RecordedInputs, read_inputs
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.progress.lines import Log
from tfshards.prep.rewriting.keys import KnownExamples
from tfshards.prep.rewriting.origin import Origin
from tfshards.prep.sources.base import Listing, Reader
from tfshards.prep.sources.keys import hash_key
from tfshards.prep.writing.shard_names import build_of
from tfshards.schemas.index import IntArray


class ChangedInputs(NamedTuple):
    """Known inputs that differ from their examples.

    Attributes:
        changed: their numbers.
        relabeled: numbers of other inputs, whose examples differ only in the label, in a relabeled dataset.
    """

    changed: IntArray
    relabeled: IntArray


def find_changed(
    listing: Listing, reader: Reader, known: KnownExamples, examples: IntArray, log: Log, *, checksum: bool
) -> ChangedInputs:
    """Return the known inputs whose label, split or content differs from their example.

    The content is compared of inputs whose size or time is not the recorded one, or not recorded. If labels
    were corrected in the dataset, another label alone is not a change of the input.

    Args:
        listing: listing of the source.
        reader: reader of the source.
        known: examples of the dataset.
        examples: shape ``(num_examples,)``, number of the example of each input, or -1.
        log: receives a line if contents are compared.
        checksum: compare the content of all known inputs.
    """
    numbers = np.flatnonzero(examples >= 0)
    held = examples[numbers]
    is_changed = np.zeros(len(numbers), dtype=np.bool_)
    labels = known.labels()
    relabeled = np.zeros(len(numbers), dtype=np.bool_)
    if labels is not None and listing.labels is not None:
        has_other_label = labels[held] != listing.labels[numbers]
        if known.origin.manifest.made.has("relabeled"):
            relabeled = has_other_label
            # contents are compared with the labels that the examples have
            with_held = listing.labels.copy()
            with_held[numbers] = labels[held]
            listing = replace(listing, labels=with_held)
        else:
            is_changed |= has_other_label
    splits = known.splits()
    for split, members in (listing.splits or {}).items():
        is_changed |= np.isin(numbers, members) & (splits[held] != split)
    may_differ = np.ones(len(numbers), np.bool_) if checksum else _may_differ(listing, known.origin, numbers)
    suspects = np.flatnonzero(~is_changed & may_differ)
    if len(suspects):
        log(comparison_line(len(suspects), "which may have changed", checksum=checksum))
        checksums = known.checksums[held[suspects]].tolist()
        is_changed |= np.isin(numbers, differing(listing, reader, numbers[suspects], checksums))
    return ChangedInputs(numbers[is_changed], numbers[relabeled & ~is_changed])


def recorded_inputs(origin: Origin) -> dict[bytes, tuple[int, int]]:
    """Return the size and the time of each input of the builds of a dataset, as far as they are recorded."""
    recorded: dict[bytes, tuple[int, int]] = {}
    for build_id in sorted({build_of(shard.path) for shard in origin.manifest.shards}):
        inputs = read_inputs(origin.root, build_id)
        if inputs is not None:
            recorded |= zip(
                inputs.keys, zip(inputs.sizes.tolist(), inputs.stamps.tolist(), strict=True), strict=True
            )
    return recorded


def inputs_without(origin: Origin, removed: Collection[bytes]) -> RecordedInputs | None:
    """Return what the builds of a dataset have recorded of their inputs, without some of them.

    Args:
        origin: the dataset.
        removed: hashes of the keys of the inputs that are left out.

    Returns:
        The inputs by key, with neither labels nor splits, which only a repair needs; None if nothing is
        recorded of any.
    """
    found = sorted(
        (key, each) for key, each in recorded_inputs(origin).items() if hash_key(key) not in removed
    )
    if not found:
        return None
    numbers = np.array([each for _, each in found], np.int64).reshape(-1, 2)
    return RecordedInputs([key for key, _ in found], numbers[:, 0], numbers[:, 1], None, {})


def _may_differ(listing: Listing, origin: Origin, numbers: IntArray) -> BoolArray:
    """Return for each input whether its size or time is not the recorded one, or not recorded."""
    recorded = recorded_inputs(origin)
    now = zip(listing.sizes[numbers].tolist(), listing.stamps[numbers].tolist(), strict=True)
    keys = (listing.keys[number] for number in numbers.tolist())
    return np.array([recorded.get(key) != each for key, each in zip(keys, now, strict=True)], np.bool_)
