"""What a build would make: splits, shards and the build's id, from the listing alone."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tfshards.prep.options import DEFAULT_SHARD_SIZE, Options
from tfshards.prep.plan import IntArray, lay_out
from tfshards.prep.sources.listing import Listing, Reader
from tfshards.prep.splits import Membership, split_by_ratio
from tfshards.schemas import FORMAT_VERSION, InputError, OptionsError
from tfshards.schemas.reading import Json

_SHOWN = 5


@dataclass(frozen=True)
class Forecast:
    """What a build would make if no input were rejected.

    Attributes:
        listing: of the source.
        membership: which example is in which split.
        layouts: by split, the example numbers of each shard in the order of writing.
        build_id: 8 hex digits.
        options: all options that change the output, as the manifest holds them.
        warnings: for the person who runs the build.
    """

    listing: Listing
    membership: Membership
    layouts: Mapping[str, list[IntArray]]
    build_id: str
    options: Mapping[str, Json]
    warnings: tuple[str, ...]


def forecast(
    reader: Reader,
    name: str,
    shards: int | None,
    seed: int,
    options: Options,
    listing: Listing | None = None,
) -> Forecast:
    """Return what a build of ``reader`` would make, of its listing or of the one given.

    Raises:
        OptionsError: ``shards`` or ``seed`` is out of range, or excludes another option.
        InputError: the source does not allow what was asked.
    """
    if shards is not None and shards < 1:
        raise OptionsError(f"--shards {shards}: must be at least 1")
    if shards is not None and options.shard_size is not None:
        raise OptionsError("--shards and --shard-size exclude each other: give one")
    if not 0 <= seed < 1 << 63:
        raise OptionsError(f"--seed {seed}: must lie between 0 and 2^63 - 1")
    listing = listing or reader.listing()
    membership = _membership(reader, listing, seed, options)
    counts = _num_shards(listing, membership, shards, options)
    sizes = listing.sizes if options.balance == "bytes" else None
    layouts = {
        split: lay_out(examples, counts[split], seed=seed, split=split, sizes=sizes)
        for split, examples in membership.examples.items()
    }
    all_options: dict[str, Json] = {
        **reader.options(),
        **options.to_json(),
        "shards": dict(counts),
        "seed": seed,
    }
    build_id = _build_id(listing, name, all_options)
    warnings = (*listing.warnings, *_classes_that_lack(listing, membership))
    return Forecast(listing, membership, layouts, build_id, all_options, warnings)


def _classes_that_lack(listing: Listing, membership: Membership) -> Iterator[str]:
    """Yield a line for each split in which classes do not occur that others have."""
    if listing.labels is None:
        return
    present = np.unique(listing.labels)
    names = listing.schema.class_names
    for split, examples in membership.examples.items():
        lacking = np.setdiff1d(present, listing.labels[examples]).tolist()
        if lacking:
            listed = ", ".join(repr(names[label]) if names else str(label) for label in lacking[:_SHOWN])
            more = f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
            yield f"the split {split!r} has no examples of {listed}{more}; the classes keep their numbers"


def too_many_shards(split: str, num_shards: int, num_examples: int) -> str:
    """Return the message for a split with more shards than examples."""
    examples = f"{num_examples} example{'s' if num_examples > 1 else ''}"
    found = f"num_shards={num_shards} exceeds the {examples} of split {split!r}"
    return f"{found}; use at most {num_examples}"


def _membership(reader: Reader, listing: Listing, seed: int, options: Options) -> Membership:
    if not options.splits:
        everything = {"train": np.arange(listing.num_examples, dtype=np.int64)}
        return Membership(listing.splits or everything)
    if listing.splits:
        raise InputError(f"the source has the splits {', '.join(listing.splits)} already; leave out --split")
    if options.stratify and listing.labels is None:
        raise InputError("--stratify needs one label an example, and the source has none")
    groups = reader.groups(listing, options.group_by) if options.group_by else None
    strata = listing.labels if options.stratify else None
    return split_by_ratio(listing.keys, options.ratios, seed, strata=strata, groups=groups)


def _num_shards(
    listing: Listing, membership: Membership, shards: int | None, options: Options
) -> dict[str, int]:
    unknown = sorted(set(options.shards_by_split) - set(membership.examples))
    if unknown:
        known = ", ".join(membership.examples)
        asked = f"--shards {unknown[0]}={options.shards_by_split[unknown[0]]}"
        raise InputError(f"{asked}: there is no such split; the splits are {known} (see --split)")
    if options.shard_size is not None and set(options.shards_by_split) == set(membership.examples):
        raise InputError(
            "--shard-size has no effect, since each split has its --shards; leave out one of them"
        )
    counts = {}
    for split, examples in membership.examples.items():
        by_size = math.ceil(int(listing.sizes[examples].sum()) / (options.shard_size or DEFAULT_SHARD_SIZE))
        at_most = max(1, min(by_size, len(examples)))
        counts[split] = options.shards_by_split.get(split, shards or at_most)
        if counts[split] > len(examples):
            raise InputError(too_many_shards(split, counts[split], len(examples)))
    return counts


def _build_id(listing: Listing, name: str, options: Mapping[str, Json]) -> str:
    """Return a hash of all that decides which bytes are written."""
    digest = hashlib.sha256()
    header = {
        "format_version": FORMAT_VERSION,
        "name": name,
        "schema": listing.schema.to_json(),
        "options": dict(options),
        "identity": listing.identity,
        "skipped": dict(listing.skipped),
    }
    digest.update(json.dumps(header, sort_keys=True).encode("ascii"))
    digest.update(b"\0".join(listing.keys))
    for numbers in (listing.sizes, listing.stamps, listing.labels):
        digest.update(b"" if numbers is None else np.ascontiguousarray(numbers, "<i8").tobytes())
    return digest.hexdigest()[:8]
