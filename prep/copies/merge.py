"""Several datasets as one, split by split, without a record being written again unless that is asked for."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfshards.prep.area import BuildArea
from tfshards.prep.commit import rejects_text
from tfshards.prep.copies.compare import class_difference, feature_difference
from tfshards.prep.copies.copying import Copying, copy_shards
from tfshards.prep.copies.dealing import Dealing
from tfshards.prep.copies.derived import derive, derived_id, join_splits, new_dataset
from tfshards.prep.copies.keys import check_keys_differ, has_keys
from tfshards.prep.copies.linking import Linking, link_shards
from tfshards.prep.copies.origin import Origin, open_origin
from tfshards.prep.files import bytes_digest
from tfshards.prep.progress import Talk, to_stderr
from tfshards.schemas import (
    InputError,
    Manifest,
    OptionsError,
    Shard,
    Split,
    Totals,
)
from tfshards.schemas.reading import Json


def merge(
    roots: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    dealing: Dealing | None = None,
    *,
    name: str | None = None,
    overwrite: bool = False,
    talk: Talk = to_stderr,
) -> Manifest:
    """Make one dataset of those in ``roots``, in the directory ``out``, and return its manifest.

    Each split holds the examples of the splits of that name, which is proved by their digest. No key may
    stand in two datasets. Without ``dealing`` the shards stay as they are, under new names: they are linked
    where the file system allows it, and copied elsewhere; so they need not be of equal size.

    Args:
        roots: two datasets or more, with the same features and class names.
        out: the new one's directory; made if it is missing.
        dealing: deals the examples to new shards, in each of which the datasets are mixed.
        name: of the new dataset; by default the last part of ``out``.
        overwrite: replace another dataset in ``out``.
        talk: is given each line about its course.

    Raises:
        OptionsError: an argument is wrong by itself.
        InputError: the datasets cannot become one, or the output does not allow what was asked.
        BuildError: it ended before its commit; the same call goes on where it ended.
    """
    _check_roots(roots)
    origins = [open_origin(root) for root in roots]
    folder, name = new_dataset(out, name, origins)
    for other in origins[1:]:
        _check_same(origins[0], other)
        if dealing is None and other.manifest.compression != origins[0].manifest.compression:
            raise InputError(
                f"{origins[0].root} is of compression {origins[0].manifest.compression}, {other.root} of "
                f"{other.manifest.compression}; give --compression to write the shards anew"
            )
    outline = _outline(origins, name, dealing)

    def write(area: BuildArea) -> Mapping[str, tuple[Shard, ...]]:
        if has_keys(origins[0]):
            check_keys_differ(origins)
        else:
            talk("warning: the examples have no keys, by which to tell that none stands in two datasets")
        if dealing is None:
            return link_shards(Linking(area, name, origins), talk)
        counts = dealing.num_shards(_splits(origins))
        return copy_shards(Copying(area, name, origins, counts, dealing.balance, outline.compression), talk)

    return derive(outline, origins, folder, write, overwrite=overwrite, talk=talk)


def _check_roots(roots: Sequence[str | os.PathLike[str]]) -> None:
    if isinstance(roots, (str, bytes)) or len(roots) < 2:
        raise OptionsError(f"merge: {roots!r} must be two datasets or more")
    real = [os.path.realpath(root) for root in roots]
    twice = next((root for root, path in zip(roots, real, strict=True) if real.count(path) > 1), None)
    if twice is not None:
        raise OptionsError(f"merge: {os.fspath(twice)} is given twice; give each dataset once")


def _check_same(first: Origin, other: Origin) -> None:
    """Raise InputError if the examples of two datasets cannot stand in one."""
    whose = first.manifest.schema, str(first.root), other.manifest.schema, str(other.root)
    difference = feature_difference(*whose)
    if difference:
        raise InputError(
            f"{difference}; datasets that become one need the same features: build one of them again"
        )
    difference = class_difference(*whose)
    if difference:
        raise InputError(
            f"{difference}; datasets that become one need the same classes: build {other.root} again with "
            f"--labels-from {first.root}, or both with the same --labels"
        )


def _outline(origins: Sequence[Origin], name: str, dealing: Dealing | None) -> Manifest:
    """Return the manifest of the dataset, but for its shards."""
    manifests = [origin.manifest for origin in origins]
    splits = _splits(origins)
    compression = (dealing and dealing.compression) or manifests[0].compression
    options: dict[str, Json] = {"source": "merge", "of": [origin.to_json() for origin in origins]}
    if dealing is not None:
        options |= dealing.to_json(dealing.num_shards(splits), compression)
    rejects = [reject for origin in origins for reject in origin.rejects()]
    cuts = manifests[0].split_cuts
    return Manifest(
        name,
        derived_id(name, options, origins),
        manifests[0].schema,
        {split: replace(held, shards=()) for split, held in splits.items()},
        _totals([manifest.totals for manifest in manifests]),
        options,
        # where they differ, no one rule says which key belongs in which split
        cuts if all(manifest.split_cuts == cuts for manifest in manifests) else {},
        compression,
        bytes_digest(rejects_text(rejects)) if rejects else "",
    )


def _splits(origins: Sequence[Origin]) -> dict[str, Split]:
    """Return the splits of all datasets, each with its shards in all of them."""
    found: dict[str, Split] = {}
    names = dict.fromkeys(name for origin in origins for name in origin.manifest.splits)
    for name in names:
        parts = [origin.manifest.splits[name] for origin in origins if name in origin.manifest.splits]
        found[name] = join_splits(parts, origins[0].manifest.schema)
    return found


def _totals(parts: Sequence[Totals]) -> Totals:
    def together(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
        return dict(sorted(sum(map(Counter, counts), Counter[str]()).items()))

    reasons = {
        outcome: together([part.reasons.get(outcome, {}) for part in parts])
        for outcome in ("rejected", "skipped")
    }
    return Totals(
        entries=sum(part.entries for part in parts),
        accepted=sum(part.accepted for part in parts),
        rejected=sum(part.rejected for part in parts),
        skipped=sum(part.skipped for part in parts),
        reasons=reasons,
        conversions=together([part.conversions for part in parts]),
    )
