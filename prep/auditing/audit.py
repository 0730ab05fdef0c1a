"""What deserves a look in a sound dataset: examples in two splits, under two labels, rare classes, odd sizes.

It reads the records, never the sources. Whether the files are what was written is ``verify``'s question.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tfshards.prep.auditing.findings import (
    Finding,
    Instance,
    class_findings,
    class_name,
    example_at,
    size_findings,
)
from tfshards.prep.auditing.repeats import Partners, find_repeats
from tfshards.prep.auditing.similar import DEFAULT_DISTANCE, HASH_BITS, check_distance, require_imagehash
from tfshards.prep.auditing.survey import Survey, compared_features, survey
from tfshards.schemas import Manifest, read_manifest


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        num_examples: by split, largest first.
        label_counts: by split and class, for all classes that there are; empty without labels.
        findings: leaks first.
        notes: what was not looked at, and why.
    """

    num_examples: Mapping[str, int]
    label_counts: Mapping[str, Mapping[str, int]]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def audit(root: str | os.PathLike[str], *, distance: int | None = DEFAULT_DISTANCE) -> Audit:
    """Return what deserves a look in the dataset in ``root``; every record is read once.

    Args:
        root: the dataset's directory.
        distance: images are nearly the same if at most so many of the 256 bits of their perceptual hashes
            differ; None compares bytes alone, which decodes nothing.

    Raises:
        OptionsError: ``distance`` is not allowed.
        InputError: ``root`` is no dataset; a shard is incomplete; ImageHash is missing (``tfshards[audit]``).
        FormatError: the manifest cannot be read; it says why.
        RecordError: a record is damaged, or not what the schema says.
    """
    check_distance(distance)
    manifest = read_manifest(root)
    has_images = any(feature.kind == "image" for feature in manifest.schema.features)
    if has_images and distance is not None:
        require_imagehash()
    seen = survey(Path(root), manifest, is_hashed=has_images and distance is not None)
    counts = _label_counts(seen, manifest)
    findings: list[Finding] = []
    notes = list(_notes(seen, manifest, distance))
    if compared_features(manifest):
        found = find_repeats(seen, distance)
        if not found.is_complete:
            notes.append(
                "too many images are much alike: the search for near ones was cut short, some may be missing"
            )
        what = "images" if has_images else "examples"
        findings += _across_splits(seen, manifest, found.leaks, what)
        findings += _inside_splits(seen, manifest, found.duplicates, what)
        findings += _conflicts(seen, manifest, found.conflicts, what)
    findings += class_findings(counts)
    findings += size_findings(seen, manifest)
    sizes = {name: manifest.splits[name].num_examples for name in seen.splits}
    return Audit(sizes, counts, tuple(findings), tuple(notes))


def _notes(seen: Survey, manifest: Manifest, distance: int | None) -> Iterator[str]:
    compared = compared_features(manifest)
    images = [feature.name for feature in manifest.schema.features if feature.kind == "image"]
    if not compared:
        yield "no feature besides key and label: nothing can occur twice"
    elif not images:
        yield f"no images: only examples of equal {', '.join(compared)} were looked for, not near ones"
    elif distance is None:
        yield "only images of equal bytes were looked for"
    if len(images) > 1:
        yield f"of the images only {images[0]!r} was looked at"
    if seen.num_flat:
        yield f"images nearly of one color, of which only equal bytes were looked for: {seen.num_flat:,}"
    if seen.faults:
        place, fault = next(iter(seen.faults.items()))
        yield f"images that cannot be decoded: {len(seen.faults):,}; the first, {seen.keys[place]}: {fault}"
    if manifest.schema.label is None:
        yield "no labels: classes and conflicts were not looked at"


def _across_splits(seen: Survey, manifest: Manifest, leaks: Partners, what: str) -> Iterator[Finding]:
    own, others = seen.split, seen.split[leaks.partner]
    for split, name in enumerate(seen.splits):
        for other, other_name in enumerate(seen.splits[:split]):
            is_one = (leaks.partner >= 0) & (own == split) & (others == other)
            cases = _pairs(seen, manifest, leaks, is_one)
            if cases:
                total = f"{len(cases):,} of {manifest.splits[name].num_examples:,}"
                text = (
                    f"{what} of {name!r} that are in {other_name!r} too: {total} ({_sureness(leaks, is_one)})"
                )
                yield Finding("leak", text, cases)


def _inside_splits(seen: Survey, manifest: Manifest, duplicates: Partners, what: str) -> Iterator[Finding]:
    for split, name in enumerate(seen.splits):
        is_one = (duplicates.partner >= 0) & (seen.split == split)
        cases = _pairs(seen, manifest, duplicates, is_one)
        if cases:
            total = f"{len(cases):,} of {manifest.splits[name].num_examples:,}"
            text = f"{what} of {name!r} that repeat another of it: {total} ({_sureness(duplicates, is_one)})"
            yield Finding("duplicate", text, cases)


def _conflicts(seen: Survey, manifest: Manifest, conflicts: Partners, what: str) -> Iterator[Finding]:
    is_one = conflicts.partner >= 0
    cases = _pairs(seen, manifest, conflicts, is_one)
    if cases:
        text = f"{what} that have another label elsewhere: {len(cases):,} ({_sureness(conflicts, is_one)})"
        yield Finding("conflict", text, cases)


def _sureness(partners: Partners, is_one: npt.NDArray[np.bool_]) -> str:
    same = int((partners.distance[is_one] < 0).sum())
    return f"{same:,} the same, {int(is_one.sum()) - same:,} nearly"


def _pairs(
    seen: Survey, manifest: Manifest, partners: Partners, is_one: npt.NDArray[np.bool_]
) -> tuple[Instance, ...]:
    places = np.flatnonzero(is_one)
    places = places[np.argsort(partners.distance[places], kind="stable")]
    return tuple(
        Instance(
            "the same" if bits < 0 else f"{bits} of {HASH_BITS} bits differ",
            example_at(seen, manifest, place),
            example_at(seen, manifest, partner),
        )
        for place, partner, bits in zip(
            places.tolist(),
            partners.partner[places].tolist(),
            partners.distance[places].tolist(),
            strict=True,
        )
    )


def _label_counts(seen: Survey, manifest: Manifest) -> dict[str, dict[str, int]]:
    if manifest.schema.label is None:
        return {}
    counted = {
        name: Counter(seen.label[seen.split == split].tolist()) for split, name in enumerate(seen.splits)
    }
    labels = sorted(set().union(*counted.values())) if not manifest.schema.class_names else None
    all_labels = range(len(manifest.schema.class_names)) if labels is None else labels
    return {
        name: {class_name(manifest, label): counts[label] for label in all_labels}
        for name, counts in counted.items()
    }
