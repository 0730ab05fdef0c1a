"""Restore the source and the options of a build from the manifest that it wrote."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from tfshards.prep.imaging.options import VERSIONS
from tfshards.prep.planning.options import Options
from tfshards.prep.planning.splits import Membership, split_by_cuts
from tfshards.prep.progress.lines import lines_to, nowhere
from tfshards.prep.sources.base import Listing, Source
from tfshards.prep.sources.kinds import KINDS, Recorded
from tfshards.schemas import InputError, Manifest, OptionsError
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.made import Made
from tfshards.schemas.option import recorded_values
from tfshards.schemas.storage import AnyPath

# A source, or its inputs as they are named on the command line.
Inputs: TypeAlias = "Source | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

# Options of builds that are not options of their sources.
_OF_BUILDS = {*Options().to_json(), "duplicates", "compression", "shards", "seed", "appended", "follow_links"}


def source_or_paths(given: Inputs) -> Source | list[str]:
    """Return a source as it is, and paths as text; raise OptionsError for anything else."""
    paths = [given] if isinstance(given, (str, bytes, os.PathLike)) else given
    if isinstance(paths, Sequence) and all(isinstance(path, (str, bytes, os.PathLike)) for path in paths):
        return [os.fsdecode(path) for path in paths]
    if isinstance(paths, Sequence) or not hasattr(paths, "stage"):
        raise OptionsError("source-not-paths", given=given)
    return paths


def restored_source(manifest: Manifest, inputs: Sequence[str], *, is_grown: bool = False) -> Source:
    """Return the source that a dataset was built from, as far as its manifest records it.

    If ``is_grown``, the inputs may be more than those of the build, or only a part.
    """
    # Links may be followed, since the result is compared with the dataset by digest.
    recorded = Recorded(manifest.schema, manifest.options, is_grown=is_grown, follow_links=True)
    with lines_to(nowhere):
        found: Source = KINDS[kind_of_source(manifest)].source.from_recorded(recorded, inputs)
        return found


def source_to_append(manifest: Manifest, inputs: Sequence[str], *, follow_links: bool) -> Source:
    """Return a source of new examples for a dataset, with the options that the dataset was built with.

    The dataset may have been resharded or merged since. Links are followed if the build did, or with
    ``follow_links``.
    """
    options = _source_options(manifest)
    if follow_links and not any(feature.is_encoded for feature in manifest.schema.features):
        raise OptionsError("follow-links-useless")
    recorded = Recorded(manifest.schema, options, is_grown=True, follow_links=follow_links)
    found: Source = KINDS[str(options["source"])].source.from_recorded(recorded, inputs)
    return found


# Sources that only Python gives: neither the command line nor paths name them.
_OF_PYTHON = ("examples",)


def kind_of_source(manifest: Manifest, *, is_given: bool = False) -> str:
    """Return the name of the kind of source of a build, or raise InputError for other datasets.

    With ``is_given`` there is a source, which may be of a kind that paths do not give.
    """
    kind = manifest.options.get("source")
    if isinstance(kind, str) and kind in _OF_PYTHON:
        if is_given:
            return kind
        raise InputError("examples-of-python", manifest=manifest.name)
    how = f"was made by {kind}" if isinstance(kind, str) else "does not record how it was made"
    if isinstance(kind, str) and kind in KINDS:
        return kind
    raise InputError("not-a-build", manifest=manifest.name, how=how)


def restored_options(manifest: Manifest) -> Options:
    """Return the options of a build, except those that have no effect on the bytes that it writes."""
    recorded = recorded_values(Options, manifest.options)
    held = {"name": manifest.name, "max_rejected": Fraction(1), "compression": manifest.compression}
    return Options(**{**recorded, **held})


def _source_options(manifest: Manifest) -> Mapping[str, Json]:
    """Return the options of a dataset's build; several builds must have equal options of their sources."""
    first, *others = (build.options for build in manifest.made.builds())
    remedy = "build the new examples as a dataset, and merge the two"
    for build in (first, *others):
        if build.get("source") in _OF_PYTHON:
            raise InputError("examples-of-python", manifest=manifest.name)
        if build.get("source") not in KINDS:
            raise InputError(
                "records-no-build", manifest=manifest.name, get=build.get("source"), remedy=remedy
            )
    for other in others:
        names = {*first, *other} - _OF_BUILDS - {*VERSIONS}
        differing = sorted(name for name in names if first.get(name) != other.get(name))
        if differing:
            raise InputError("builds-differ", manifest=manifest.name, differing=differing, remedy=remedy)
    return first


def group_by_of(manifest: Manifest) -> str | None:
    """Return what the build of a dataset grouped examples by when it divided them by ratio, or None."""
    build = _divided(manifest)
    return build.group_by if build else None


def _divided(manifest: Manifest) -> Made | None:
    """Return the first build of a dataset that divided its examples by ratio."""
    return next((build for build in manifest.made.builds() if build.ratios), None)


def added_membership(
    new: Listing, numbers: IntArray, listing: Listing, manifest: Manifest, root: AnyPath
) -> Membership:
    """Return the split of each new example; ``numbers`` are those in the listing of the whole source."""
    splits, cuts = manifest.splits, manifest.split_cuts
    if not len(numbers):
        return Membership({}, cuts)
    if listing.splits:
        if unknown := [split for split in listing.splits if split not in splits]:
            raise InputError("split-not-in-dataset", unknown=unknown[0], root=root, splits=splits)
        examples = {
            split: np.flatnonzero(np.isin(numbers, members)) for split, members in listing.splits.items()
        }
        return Membership({split: found for split, found in examples.items() if len(found)}, cuts)
    build = _divided(manifest)
    if cuts and build:
        ratios = {name: Fraction(ratio) for name, ratio in build.ratios.items()}
        groups = listing.groups
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
