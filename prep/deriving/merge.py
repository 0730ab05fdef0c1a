"""Merge several datasets into one, split by split, or each as one split."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

import numpy as np

from tfshards.prep.building.commit import produce
from tfshards.prep.building.output import claimed, dataset_name, output_folder
from tfshards.prep.deriving.derive import ShardOptions, derived_from_all
from tfshards.prep.deriving.stored import Origin, open_origin
from tfshards.prep.engines.table import find_run
from tfshards.prep.planning.options import Options, ShardCounts, Shards
from tfshards.prep.progress.lines import report_warning
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.schemas import InputError, Manifest, OptionsError, Schema, Split, Totals
from tfshards.schemas.errors import check_flags, check_path, check_strings
from tfshards.schemas.json_reader import Json
from tfshards.schemas.keys import each_shard, hash_array, hash_key
from tfshards.schemas.names import name_fault


def merge(
    sources: Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]],
    dataset: str | os.PathLike[str],
    *,
    as_splits: bool = False,
    shards: Shards = None,
    overwrite: bool = False,
    options: ShardOptions | None = None,
    beam_args: Sequence[str] = (),
) -> Manifest:
    """Merge several datasets into one, split by split.

    Each split holds the examples of the splits of the same name, or, if ``sources`` is a dict, those of one
    dataset; this is verified by digest. A key may be in only one of the datasets. All records are written
    into new shards, each of which mixes the datasets.

    Args:
        sources: folders of two or more datasets with the same features and class names; or, where each
            dataset has one split and becomes the split of a name, SPLIT=FOLDER of each with "as_splits", such
            as train=data/a test=data/b, or in Python a dict of them.
        dataset: folder of the new dataset, whose last part is its default name; created if it is missing.
        as_splits: the sources are SPLIT=FOLDER.
        shards: number of new shards of every split, or of single splits by name, such as 64 or val=8; by
            default as many as the datasets have together.
        overwrite: replace another dataset in ``dataset``.
        options: size and compression of the shards, by default the compression of the first dataset, and the
            name of the new dataset.
        beam_args: Apache Beam's pipeline options, as for ``build``.

    Returns:
        The new manifest.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the datasets are incompatible, a split has fewer examples than shards, or ``dataset``
            already holds other files.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    check_flags(as_splits=as_splits, overwrite=overwrite)
    run = find_run(beam_args)
    options = options or ShardOptions()
    counts = ShardCounts.of(shards, options.shard_size)
    sources = _by_split(sources) if as_splits else sources
    names = [*sources] if isinstance(sources, Mapping) else []
    check_strings("sources", names)
    if fault := next(filter(None, map(name_fault, names)), None):
        raise OptionsError(f"the split name {fault}")
    roots = [*sources.values()] if isinstance(sources, Mapping) else sources
    _check_sources(roots)
    origins = [open_origin(root) for root in roots]
    if names:
        origins = [_as_split(origin, name) for origin, name in zip(origins, names, strict=True)]
    folder = output_folder(dataset, *(origin.root for origin in origins))
    first, *others = origins
    for other in others:
        check_same_schema(first.manifest.schema, str(first.root), other.manifest.schema, str(other.root))
    if first.manifest.schema.key is None:
        report_warning("the examples have no keys, so repeated examples cannot be found")
    else:
        check_keys_differ(origins)
    manifests = [origin.manifest for origin in origins]
    splits, totals = joined(manifests, first.manifest.schema)
    recorded: dict[str, Json] = {"source": "merge", "of": [origin.to_json() for origin in origins]}
    # different cuts do not determine the split of a key, nor do cuts of a single split
    cuts = {} if names else first.manifest.split_cuts
    outline = Manifest(
        name=dataset_name(folder, Options(name=options.name)),
        build_id="",
        folder="",
        schema=first.manifest.schema,
        splits=splits,
        totals=totals,
        options={**recorded, "as_splits": [*names]} if names else recorded,
        split_cuts=cuts if all(manifest.split_cuts == cuts for manifest in manifests) else {},
        compression=first.manifest.compression,
    )
    new = derived_from_all(outline, origins, run, options, counts)
    with claimed(folder) as state:
        return produce(new, state, overwrite=overwrite)


def _by_split(sources: object) -> dict[str, str]:
    """Return the folder of each split in texts such as ``train=data/a``."""
    folders: dict[str, str] = {}
    for source in sources if isinstance(sources, (list, tuple)) else ():
        split, equals, folder = str(source).partition("=")
        if not equals or not folder or split in folders:
            raise OptionsError(f"as_splits=True: {source!r} must be SPLIT=FOLDER, with each split given once")
        folders[split] = folder
    return folders


def _check_sources(sources: Sequence[str | os.PathLike[str]]) -> None:
    if isinstance(sources, (str, bytes)) or len(sources) < 2:
        raise OptionsError("merge needs two or more datasets in sources=")
    for root in sources:
        check_path("sources", root)
    real = [os.path.realpath(root) for root in sources]
    twice = next((root for root, path in zip(sources, real, strict=True) if real.count(path) > 1), None)
    if twice is not None:
        raise OptionsError(f"sources= contains {twice} twice; give each dataset once")


def _as_split(origin: Origin, name: str) -> Origin:
    """Return a dataset of one split, with another name of that split."""
    splits = origin.manifest.splits
    if len(splits) > 1:
        raise InputError(f"{origin.root} must have one split to become {name!r}, but has {', '.join(splits)}")
    return replace(origin, manifest=replace(origin.manifest, splits={name: next(iter(splits.values()))}))


def check_keys_differ(origins: Sequence[Origin]) -> None:
    """Check that no key is in two of the datasets, among examples and rejected inputs."""
    hashes = [
        np.concatenate([hash_array(map(hash_key, keys)) for keys in _keys(origin)]) for origin in origins
    ]
    # S compares as V, since all hashes have the same length, and can be sorted
    together = np.concatenate(hashes).view("S16")
    order = np.argsort(together, kind="stable")
    repeated = order[1:][together[order[1:]] == together[order[:-1]]]
    if not len(repeated):
        return
    same = np.flatnonzero(together == together[repeated.min()])
    starts = np.cumsum([0, *map(len, hashes)])
    one, other = np.searchsorted(starts, same[:2], side="right") - 1
    key = next(islice(chain.from_iterable(_keys(origins[one])), int(same[0] - starts[one]), None))
    in_all = "" if len(repeated) == 1 else f" ({len(repeated):,} keys in total)"
    raise InputError(
        f"the key {to_text(key)!r} is in {origins[one].root} and in {origins[other].root}{in_all}; remove "
        "it from one of them with 'tfshards remove'; rows without keys are identified by their numbers: "
        "build them together, as arrays such as x_train and x_test, or as a table with a column of splits"
    )


def _keys(origin: Origin) -> Iterator[list[bytes]]:
    """Yield the keys of each shard of a dataset, then those of its rejected inputs."""
    for _, keys in each_shard(origin.root, origin.manifest.shards):
        yield keys
    yield [to_bytes(reject.key) for reject in origin.rejects()]


def check_same_schema(one: Schema, one_name: str, other: Schema, other_name: str) -> None:
    """Raise InputError about the first feature or class in which two schemas differ, by their owners' names.

    The order of features does not matter, except where it determines which feature holds the class.
    """
    both = one, other
    features = [{repr(feature.name): f"({feature.text})" for feature in schema.features} for schema in both]
    labels = [{"'label'": repr(schema.label.name)} if schema.label else {} for schema in both]
    classes = [{str(label): repr(name) for label, name in enumerate(each.class_names)} for each in both]
    for what, (first, second) in (
        ("the feature", features),
        ("the first scalar feature of kind", labels),
        ("class", classes),
    ):
        for name in {**first, **second}:
            found = first.get(name, "missing"), second.get(name, "missing")
            if found[0] != found[1]:
                difference = f"{what} {name} is {found[0]} in {one_name}, and {found[1]} in {other_name}"
                raise InputError(f"{difference}; build one with the features and class names of the other")


def joined(parts: Sequence[Manifest], schema: Schema) -> tuple[dict[str, Split], Totals]:
    """Return the splits of several datasets, with the shards of each in order, and the sums of their totals.

    A split counts labels if each of its parts does. The totals have what does not follow from the splits and
    the rejected inputs, see ``building.rejects.with_lists``.
    """
    names = dict.fromkeys(name for part in parts for name in part.splits)
    splits = {
        name: _joined_split([part.splits[name] for part in parts if name in part.splits], schema)
        for name in names
    }
    totals = [part.totals for part in parts]
    return splits, Totals(
        entries=0,
        accepted=0,
        skipped=sum(each.skipped for each in totals),
        reasons={"rejected": {}, "skipped": _sum(each.reasons.get("skipped", {}) for each in totals)},
        conversions=_sum(each.conversions for each in totals),
    )


def _joined_split(parts: Sequence[Split], schema: Schema) -> Split:
    counts = _sum(part.label_counts for part in parts)
    names = schema.class_names or sorted(counts, key=int)
    is_counted = all(part.label_counts or not part.num_examples for part in parts)
    shards = tuple(shard for part in parts for shard in part.shards)
    return Split(shards, {name: counts.get(name, 0) for name in names} if is_counted and counts else {})


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    return dict(sorted(sum(map(Counter, counts), Counter[str]()).items()))
