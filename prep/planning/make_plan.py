"""Make a plan: splits, shards and plan id, from the listing alone."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence

import numpy as np

from tfshards.prep.planning.balance import lay_out
from tfshards.prep.planning.options import Options, ShardCounts
from tfshards.prep.planning.plan import Plan, plan_id_of
from tfshards.prep.planning.splits import Membership, split_by_ratio
from tfshards.prep.sources.base import Listing, Reader, Source
from tfshards.prep.sources.classes import quoted
from tfshards.prep.sources.keys import parts_of
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.digests import HASH, digest_of
from tfshards.schemas.errors import check_instance
from tfshards.schemas.json_reader import Json


def check_types(source: Source, seed: int, options: Options) -> None:
    """Raise OptionsError if an argument of ``build`` or ``plan`` has another type or range."""
    if not hasattr(source, "stage"):
        if isinstance(source, (str, os.PathLike)):
            raise OptionsError(f"source={source!r} must be a source, such as ImageFolder({source!r})")
        what = type(source).__name__
        raise OptionsError(f"source= is a {what}; give a source, such as Table({what}) or Examples({what})")
    check_option_types(seed, options)


def check_option_types(seed: int, options: Options) -> None:
    """Raise OptionsError if the seed or the options have another type or range."""
    check_instance("options", options, Options)
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 1 << 63:
        raise OptionsError(f"seed={seed!r} must be an integer from 0 to 2^63 - 1")


def make_plan(
    reader: Reader,
    name: str,
    shards: ShardCounts,
    seed: int,
    options: Options,
    listing: Listing | None = None,
) -> Plan:
    """Return the plan of a build from ``reader``, with the reader's listing or with ``listing``."""
    listing = listing or reader.listing()
    membership = _membership(listing, seed, options)
    num_examples = {split: len(examples) for split, examples in membership.examples.items()}
    by_size = {
        split: math.ceil(int(listing.sizes[examples].sum()) / options.shard_bytes)
        for split, examples in membership.examples.items()
    }
    counts = shards.of_splits(num_examples, by_size, options.shard_size)
    layouts = {
        split: lay_out(examples, counts[split], seed=seed, split=split)
        for split, examples in membership.examples.items()
    }
    recorded = {**reader.options(), **options.to_json()}
    all_options: dict[str, Json] = {**recorded, "shards": dict(counts), "seed": seed}
    warnings = (
        *listing.warnings,
        *_unlike_numbers(listing.schema.class_names),
        *_missing_classes(listing, membership),
    )
    digest = _inputs_digest(listing, membership)
    plan_id = plan_id_of(name, listing.schema, all_options, digest)
    return Plan(name, listing, membership, layouts, plan_id, digest, all_options, warnings)


def _unlike_numbers(class_names: Sequence[str]) -> Iterator[str]:
    """Yield a warning if names that are numbers are in another order than their labels."""
    if not all(name.isdecimal() for name in class_names):
        return
    numbers = [int(name) for name in class_names]
    if numbers != sorted(numbers):
        label = next(label for label, number in enumerate(numbers) if number != label)
        yield (
            f"the class names are numbers, but not the labels, which follow the names sorted as text: class "
            f"{class_names[label]!r} has label {label}; class_names= gives them in another order"
        )


def _missing_classes(listing: Listing, membership: Membership) -> Iterator[str]:
    """Yield a warning for each split that has no examples of classes that other splits have."""
    if listing.labels is None:
        return
    present = np.unique(listing.labels[listing.labels >= 0])
    names = listing.schema.class_names
    for split, examples in membership.examples.items():
        found = listing.labels[examples]
        lacking = np.setdiff1d(present, found).tolist()
        # -1 means no class: a split of such examples lacks none
        if lacking and not np.any(found < 0):
            classes = quoted([names[label] for label in lacking] if names else lacking)
            yield f"the split {split!r} has no examples of {classes}; the classes keep their numbers"


def _membership(listing: Listing, seed: int, options: Options) -> Membership:
    if not options.splits:
        everything = {"train": np.arange(listing.num_examples, dtype=np.int64)}
        return Membership(listing.splits or everything)
    if listing.splits:
        raise InputError(
            f"the source already has the splits {', '.join(listing.splits)}; leave out splits=. To divide "
            "it in another way, give a table with a column 'split'"
        )
    if options.stratify and listing.labels is None:
        raise InputError("stratify=True requires one label per example, which the source does not have")
    groups = listing.groups if options.group_by else None
    if groups is None and listing.shared:
        raise InputError(
            f"several examples share a file, which could be in several splits; group_by={listing.shared!r} "
            "keeps them together"
        )
    strata = listing.labels if options.stratify else None
    return split_by_ratio(listing.keys, options.ratios, seed, strata=strata, groups=groups)


def _inputs_digest(listing: Listing, membership: Membership) -> str:
    """Return a digest of what a listing says of the inputs, except their modification times."""
    digest = HASH()
    digest.update(listing.identity.encode("utf-8", "surrogateescape"))
    for index, part in enumerate(parts_of(listing.keys)):
        digest.update(b"\0" * (index > 0) + part)
    digest.update(json.dumps({split: len(held) for split, held in membership.examples.items()}).encode())
    for numbers in (listing.sizes, listing.labels, *membership.examples.values()):
        digest.update(b"" if numbers is None else np.ascontiguousarray(numbers, "<i8").data)
    return digest_of(digest)
