"""What of a source a dataset does not hold yet, and in which of its splits that belongs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import cast

import numpy as np

from tfshards.prep.area import Reject
from tfshards.prep.copies.compare import class_difference, feature_difference
from tfshards.prep.copies.keys import Hashes, hash_keys, read_keys
from tfshards.prep.copies.origin import Origin, ShardReader
from tfshards.prep.example import example_encoder
from tfshards.prep.images import decoder_versions
from tfshards.prep.plan import BoolArray, IntArray
from tfshards.prep.sources.image_folder import ImageFolder
from tfshards.prep.sources.listing import Accepted, Listing, Reader, RowKeys, to_bytes
from tfshards.prep.splits import Membership, split_by_cuts
from tfshards.schemas import InputError, Schema
from tfshards.schemas.reading import Json

# What a build of the same examples may say otherwise.
_NO_MATTER = {"source", "follow_links", "split_column"}
# Rows that are known by their number alone, and are compared with what the dataset holds under it.
_ROWS_COMPARED = 64


@dataclass(frozen=True)
class Newcomers:
    """The inputs of a source that a dataset does not hold.

    Attributes:
        listing: of these alone, with the dataset's splits, class names and class numbers.
        cuts: of the splits, see ``Manifest.split_cuts``.
        num_known: how many inputs of the source the dataset holds, or has rejected as they are.
        rejects: what it has rejected and what was not changed since.
    """

    listing: Listing
    cuts: Mapping[str, Json]
    num_known: int
    rejects: list[Reject]


def find_newcomers(reader: Reader, origin: Origin) -> Newcomers:
    """Return what of the source the dataset does not know: by its key, or since it was rejected and changed.

    Raises:
        InputError: the source's examples cannot stand in the dataset, or nothing says in which split.
        BuildError: a record of the dataset is damaged.
    """
    listing = reader.listing()
    _check_options(reader, origin)
    listing = _with_classes(listing, reader, origin)
    keys = read_keys(origin, f"keys of {origin.manifest.name}")
    is_known = np.isin(hash_keys(listing.keys), np.concatenate(keys))
    _check_rows(listing, reader, origin, is_known, keys)
    kept = []
    for reject in origin.rejects():
        number = listing.find(reject.key)
        if number is not None and (listing.sizes[number], listing.stamps[number]) != (
            reject.size,
            reject.stamp,
        ):
            continue
        kept.append(reject)
        if number is not None:
            is_known[number] = True
    # sorted as bytes, which numbers of rows are not
    numbers = np.array(sorted(np.flatnonzero(~is_known).tolist(), key=listing.keys.__getitem__), np.int64)
    new = replace(
        listing,
        keys=[listing.keys[number] for number in numbers.tolist()],
        sizes=listing.sizes[numbers],
        stamps=listing.stamps[numbers],
        labels=None if listing.labels is None else listing.labels[numbers],
        splits=None,
    )
    membership = _membership(new, numbers, listing, reader, origin)
    new = replace(new, splits=membership.examples)
    return Newcomers(new, membership.cuts, int(is_known.sum()), kept)


def _with_classes(listing: Listing, reader: Reader, origin: Origin) -> Listing:
    """Return the listing with the dataset's class names, and its numbers of them."""
    schema, own = origin.manifest.schema, listing.schema
    difference = feature_difference(schema, str(origin.root), own, "the source")
    if difference:
        raise InputError(f"{difference}; what is appended needs the dataset's features")
    if isinstance(reader, ImageFolder) and listing.labels is not None:
        number = {name: place for place, name in enumerate(schema.class_names)}
        unknown = [name for name in own.class_names if name not in number]
        if unknown:
            raise InputError(
                f"the source has the class {unknown[0]!r}, and {origin.root} has not; its classes stay what "
                "they are: build it again to add one"
            )
        numbers = np.array([number[name] for name in own.class_names], dtype=np.int64)
        return replace(
            listing,
            schema=Schema(own.features, schema.class_names),
            labels=numbers[listing.labels],
        )
    difference = class_difference(schema, str(origin.root), own, "the source")
    if difference:
        raise InputError(f"{difference}; what is appended needs the dataset's class names")
    if listing.labels is None or schema.class_names:
        return listing
    known = {int(label) for split in origin.manifest.splits.values() for label in split.label_counts}
    new = sorted(set(np.unique(listing.labels).tolist()) - known) if known else []
    if new:
        told = (
            f"the class {new[0]} had no examples in {origin.root} so far: a model of its classes has no place"
        )
        return replace(listing, warnings=(*listing.warnings, f"{told} for it"))
    return listing


def _check_options(reader: Reader, origin: Origin) -> None:
    """Raise InputError if the source's options are known to be other ones than the dataset's."""
    options = reader.options()
    names = sorted(set(options) - _NO_MATTER - set(decoder_versions()))
    builds = [
        build for build in builds_of(origin.manifest.options) if build.get("source") == options["source"]
    ]
    differing = [[name for name in names if build.get(name) != options[name]] for build in builds]
    if builds and all(differing):
        name = differing[0][0]
        raise InputError(
            f"{origin.root} was built with {name}={builds[0].get(name)!r}, and this is {options[name]!r}; "
            "what is appended needs the options of the build"
        )


def builds_of(options: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    """Yield the options of the builds that a dataset comes from, through what was resharded and merged."""
    if options.get("source") == "reshard":
        origins = [options["origin"]]
    elif options.get("source") == "merge":
        origins = cast("list[Json]", options["of"])
    else:
        yield options
        return
    for origin in origins:
        yield from builds_of(cast("Mapping[str, Mapping[str, Json]]", origin)["options"])


def _membership(
    new: Listing, numbers: IntArray, listing: Listing, reader: Reader, origin: Origin
) -> Membership:
    """Return in which split each of the new examples belongs; ``numbers`` are theirs in the whole listing."""
    splits, cuts = origin.manifest.splits, origin.manifest.split_cuts
    if not len(numbers):
        return Membership({}, cuts)
    if listing.splits:
        unknown = [split for split in listing.splits if split not in splits]
        if unknown:
            raise InputError(
                f"the source has the split {unknown[0]!r}, and {origin.root} has only {', '.join(splits)}"
            )
        places = {
            split: np.flatnonzero(np.isin(numbers, members)) for split, members in listing.splits.items()
        }
        return Membership({split: found for split, found in places.items() if len(found)}, cuts)
    build = next((build for build in builds_of(origin.manifest.options) if build.get("splits")), None)
    if cuts and build:
        ratios = {name: Fraction(ratio) for name, ratio in cast("Mapping[str, str]", build["splits"]).items()}
        by = cast("str | None", build.get("group_by"))
        groups = reader.groups(listing, by) if by else None
        return split_by_cuts(
            new.keys,
            cuts,
            ratios,
            strata=new.labels,
            groups=[groups[number] for number in numbers.tolist()] if groups else None,
        )
    if len(splits) > 1:
        raise InputError(
            f"nothing says in which of the splits {', '.join(splits)} of {origin.root} the new examples "
            "belong: it was not split by ratios; let the source name their splits, as by folders"
        )
    return Membership({next(iter(splits)): np.arange(len(numbers), dtype=np.int64)})


def _check_rows(
    listing: Listing, reader: Reader, origin: Origin, is_known: BoolArray, keys: Sequence[Hashes]
) -> None:
    """Raise InputError if rows that the dataset should hold, by their numbers, are others there.

    Some of them are compared. Rows of new arrays have the numbers of old ones, too: nothing else would tell.
    """
    if not isinstance(listing.keys, RowKeys) or any(f.kind == "image" for f in listing.schema.features):
        return
    known = np.flatnonzero(is_known)
    some = known[np.linspace(0, max(0, len(known) - 1), min(len(known), _ROWS_COMPARED)).astype(np.int64)]
    rows = listing.rows(some)
    encode = example_encoder(listing.schema)
    together, ends = np.concatenate(keys), np.cumsum([len(shard) for shard in keys])
    hashes = hash_keys([to_bytes(row.key) for row in rows])
    for row, key, outcome in zip(rows, hashes, reader.read(rows, listing.schema), strict=True):
        place = int(np.flatnonzero(together == key)[0])
        shard = int(np.searchsorted(ends, place, side="right"))
        held = ShardReader(origin, origin.manifest.shards[shard])
        found, _ = held.read(place - int(ends[shard]) + len(keys[shard]))
        held.close()
        assert isinstance(outcome, Accepted)
        if found[12:-4] != b"".join(encode(outcome.values)):
            raise InputError(
                f"row {row.key} of the source is not row {row.key} of {origin.root}: rows are known by their "
                "numbers; give what the dataset was built of, with the new rows behind the old ones"
            )
