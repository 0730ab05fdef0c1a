"""Merge several datasets into one, split by split, or each as one split."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfshards.prep.building.commit import rejects_text
from tfshards.prep.planning.options import ShardCounts, Shards
from tfshards.prep.progress.lines import Log, as_warning, to_stderr
from tfshards.prep.rewriting.commit import commit_new, digest_of_origins, join_splits, new_dataset
from tfshards.prep.rewriting.keys import check_keys_differ
from tfshards.prep.rewriting.layout import Rewrite, linked_layout
from tfshards.prep.rewriting.new_shards import NewShards, ShardOptions
from tfshards.prep.rewriting.origin import Origin, class_difference, feature_difference, open_origin
from tfshards.prep.writing.area import BuildArea
from tfshards.schemas import InputError, Manifest, OptionsError, Split, Totals
from tfshards.schemas.files import bytes_digest
from tfshards.schemas.json_reader import Json
from tfshards.schemas.option import check_path, check_strings


def merge(
    sources: Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]],
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    overwrite: bool = False,
    options: ShardOptions | None = None,
    log: Log = to_stderr,
) -> Manifest:
    """Merge the datasets ``sources`` into a new one in the folder ``dataset`` and return its manifest.

    Each split holds the examples of the splits of the same name, which is verified by digest. A key may be in
    only one of the datasets. Without ``shards`` and options of shards, the existing shards are linked under
    new names, or copied if the file system has no hard links; their sizes may differ. Otherwise new shards
    are written, each of which mixes the datasets.

    If ``sources`` is a dict, each dataset becomes the split of that name. All records are written into new
    shards, since the key of each example becomes ``SPLIT/KEY``, so that keys stay unique.

    Args:
        sources: folders of two or more datasets with the same features and class names; or a dict of them by
            the name of the split that each becomes, such as ``{"train": "data/a", "test": "data/b"}``, where
            each dataset has one split.
        dataset: folder of the new dataset; created if it is missing.
        shards: number of new shards of each split, or a dict by split.
        overwrite: replace another dataset in ``dataset``.
        options: size, balance and compression of new shards, and the name of the new dataset.
        log: receives status lines.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the datasets are incompatible, a split has fewer examples than shards, or ``dataset``
            already holds other files.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    options = options or ShardOptions()
    asked = ShardCounts.of(shards)
    asked.check_shard_size(options.shard_size)
    as_splits = [*sources] if isinstance(sources, Mapping) else []
    check_strings("sources", as_splits)
    roots = [*sources.values()] if isinstance(sources, Mapping) else sources
    _check_sources(roots)
    names = as_splits or [""] * len(roots)
    origins = [open_origin(root, split) for root, split in zip(roots, names, strict=True)]
    folder, name = new_dataset(dataset, options.name, origins)
    for other in origins[1:]:
        _check_same(origins[0], other)
    has_keys = origins[0].has_keys
    is_linked = options.keeps_shards and asked == ShardCounts() and not (as_splits and has_keys)
    if is_linked:
        _check_compression(origins)
    splits = _splits(origins)
    recorded: dict[str, Json] = {"source": "merge", "of": [origin.to_json() for origin in origins]}
    if as_splits:
        recorded["as_splits"] = [*as_splits]
    new = None if is_linked else NewShards.of(origins, splits, asked, options)
    if new:
        recorded |= new.to_json()
    compression = new.compression if new else origins[0].manifest.compression
    outline = replace(_outline(origins, name, splits, recorded), compression=compression)

    def plan(area: BuildArea) -> Rewrite:
        # with the splits before them, keys of different datasets differ
        if has_keys and not as_splits:
            check_keys_differ(origins)
        if not has_keys:
            log(as_warning("the examples have no keys, so repeated examples cannot be found"))
        if new:
            return new.rewrite(area, name)
        return Rewrite(
            verb="merge",
            area=area,
            name=name,
            origins=origins,
            splits={split: linked_layout(origins, split) for split in splits},
            in_order=True,
            compression=compression,
            verifies_kept=True,
        )

    return commit_new(outline, origins, folder, plan, overwrite=overwrite, log=log)


def _check_sources(sources: Sequence[str | os.PathLike[str]]) -> None:
    if isinstance(sources, (str, bytes)) or len(sources) < 2:
        given = "one was" if isinstance(sources, (str, bytes)) or len(sources) == 1 else "none were"
        raise OptionsError("merge-too-few", given=given)
    for root in sources:
        check_path("sources", root)
    real = [os.path.realpath(root) for root in sources]
    twice = next((root for root, path in zip(sources, real, strict=True) if real.count(path) > 1), None)
    if twice is not None:
        raise OptionsError("merge-repeated", twice=os.fspath(twice))


def _check_same(first: Origin, other: Origin) -> None:
    """Raise InputError unless the two datasets have the same features and classes."""
    both = first.manifest.schema, str(first.root), other.manifest.schema, str(other.root)
    difference = feature_difference(*both)
    if difference:
        raise InputError("merge-features-differ", difference=difference)
    difference = class_difference(*both)
    if difference:
        raise InputError("merge-classes-differ", difference=difference, root=other.root, root2=first.root)


def _check_compression(origins: Sequence[Origin]) -> None:
    """Raise InputError unless all datasets have the same compression."""
    first = origins[0]
    for other in origins[1:]:
        if other.manifest.compression != first.manifest.compression:
            raise InputError(
                "merge-compressions-differ",
                root=first.root,
                compression=first.manifest.compression,
                root2=other.root,
                compression2=other.manifest.compression,
            )


def _outline(
    origins: Sequence[Origin], name: str, splits: Mapping[str, Split], options: Mapping[str, Json]
) -> Manifest:
    """Return the manifest of the new dataset, without shards."""
    manifests = [origin.manifest for origin in origins]
    rejects = [reject for origin in origins for reject in origin.rejects()]
    # different cuts do not determine the split of a key, nor do cuts of a single split
    cuts = {} if "as_splits" in options else manifests[0].split_cuts
    return Manifest(
        name=name,
        build_id="",
        schema=manifests[0].schema,
        splits={split: replace(held, shards=()) for split, held in splits.items()},
        totals=_totals([manifest.totals for manifest in manifests]),
        options=options,
        split_cuts=cuts if all(manifest.split_cuts == cuts for manifest in manifests) else {},
        rejects_digest=bytes_digest(rejects_text(rejects)) if rejects else "",
        inputs_digest=digest_of_origins(origins),
    )


def _splits(origins: Sequence[Origin]) -> dict[str, Split]:
    """Return all splits, each with its shards in all datasets."""
    found: dict[str, Split] = {}
    names = dict.fromkeys(name for origin in origins for name in origin.manifest.splits)
    for name in names:
        parts = [origin.manifest.splits[name] for origin in origins if name in origin.manifest.splits]
        found[name] = join_splits(parts, origins[0].manifest.schema)
    return found


def _totals(parts: Sequence[Totals]) -> Totals:
    """Return the sums of the totals of all datasets."""

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
