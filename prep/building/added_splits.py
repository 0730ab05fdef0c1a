"""Determine the splits of examples that are added to a dataset: by the source, or by cuts of the build."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import cast

import numpy as np

from tfshards.prep.building.restore import builds_of
from tfshards.prep.planning.splits import Membership, split_by_cuts
from tfshards.prep.sources.base import Listing, Reader
from tfshards.schemas import InputError, Manifest
from tfshards.schemas.index import IntArray
from tfshards.schemas.storage import AnyPath


def added_membership(
    new: Listing, numbers: IntArray, listing: Listing, reader: Reader, manifest: Manifest, root: AnyPath
) -> Membership:
    """Return the split of each new example.

    Args:
        new: the new examples, without splits.
        numbers: shape ``(num_examples,)``, their numbers in ``listing``.
        listing: listing of the whole source.
        reader: reader of the source.
        manifest: manifest of the dataset that they are added to.
        root: folder of this dataset.

    Raises:
        InputError: nothing determines the splits, or the dataset does not have one of them.
    """
    splits, cuts = manifest.splits, manifest.split_cuts
    if not len(numbers):
        return Membership({}, cuts)
    if listing.splits:
        unknown = [split for split in listing.splits if split not in splits]
        if unknown:
            raise InputError("split-not-in-dataset", unknown=unknown[0], root=root, splits=splits)
        examples = {
            split: np.flatnonzero(np.isin(numbers, members)) for split, members in listing.splits.items()
        }
        return Membership({split: found for split, found in examples.items() if len(found)}, cuts)
    build = next((build for build in builds_of(manifest.options) if build.get("splits")), None)
    if cuts and build:
        ratios = {name: Fraction(ratio) for name, ratio in cast("Mapping[str, str]", build["splits"]).items()}
        by = cast("str | None", build.get("group_by"))
        groups = reader.groups(listing, by) if by else listing.groups if "same_image" in build else None
        return split_by_cuts(
            new.keys,
            cuts,
            ratios,
            strata=new.labels,
            groups=[groups[number] for number in numbers.tolist()] if groups else None,
        )
    if len(splits) > 1:
        raise InputError("splits-undetermined", root=root, splits=splits)
    return Membership({next(iter(splits)): np.arange(len(numbers), dtype=np.int64)})
