"""Merge several datasets into one, split by split, or each as one split."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

import numpy as np

from tfshards.prep.building.output import dataset_name, output_folder
from tfshards.prep.deriving.derive import commit_new, derived_from_all
from tfshards.prep.deriving.joining import check_same_schema, joined
from tfshards.prep.deriving.options import ShardOptions
from tfshards.prep.deriving.stored import Origin, open_origin
from tfshards.prep.engines.table import EngineName, find_run
from tfshards.prep.planning.options import Options, ShardCounts, Shards
from tfshards.prep.progress.lines import Log, report_warning, takes_log, to_stderr
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.schemas import InputError, Manifest, OptionsError
from tfshards.schemas.errors import check_path, check_strings
from tfshards.schemas.json_reader import Json
from tfshards.schemas.keys import each_shard, hash_array, hash_key


@takes_log
def merge(
    sources: Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]],
    dataset: str | os.PathLike[str],
    *,
    as_splits: bool = False,
    shards: Shards = None,
    overwrite: bool = False,
    options: ShardOptions | None = None,
    engine: EngineName | None = None,
    beam_args: Sequence[str] = (),
    log: Log = to_stderr,
) -> Manifest:
    """Merge several datasets into one, split by split.

    Each split holds the examples of the splits of the same name, which is verified by digest. A key may be in
    only one of the datasets. Without ``shards`` and options of shards, the existing shards are linked under
    new names, or copied if the file system has no hard links; their sizes may differ. Otherwise new shards
    are written, each of which mixes the datasets.

    If ``sources`` is a dict, each dataset becomes the split of that name. All records are written into new
    shards, since the key of each example becomes ``SPLIT/KEY``, so that keys stay unique.

    Args:
        sources: folders of two or more datasets with the same features and class names; or, where each
            dataset has one split and becomes the split of a name, SPLIT=FOLDER of each with "as_splits", such
            as train=data/a test=data/b, or in Python a dict of them.
        dataset: folder of the new dataset, whose last part is its default name; created if it is missing.
        as_splits: the sources are SPLIT=FOLDER.
        shards: number of new shards of every split, or of single splits by name, such as 64 or val=8; by
            default the shards of all datasets are linked or copied unchanged.
        overwrite: replace another dataset in ``dataset``.
        options: size and compression of new shards, and the name of the new dataset.
        engine: engine that writes the shards: "local", all cores of this machine, or "beam", Apache Beam.
        beam_args: Apache Beam's pipeline options, as for ``build``.
        log: receives status lines.

    Returns:
        The new manifest.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the datasets are incompatible, a split has fewer examples than shards, or ``dataset``
            already holds other files.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    run = find_run(engine, beam_args)
    options = options or ShardOptions()
    counts = ShardCounts.of(shards, options.shard_size)
    sources = _by_split(sources) if as_splits else sources
    splits_of_roots = [*sources] if isinstance(sources, Mapping) else []
    check_strings("sources", splits_of_roots)
    roots = [*sources.values()] if isinstance(sources, Mapping) else sources
    _check_sources(roots)
    names = splits_of_roots or [""] * len(roots)
    origins = [open_origin(root, split) for root, split in zip(roots, names, strict=True)]
    folder = output_folder(dataset, *(origin.root for origin in origins))
    name = dataset_name(folder, Options(name=options.name))
    has_new_keys = any(origin.prefix for origin in origins)
    is_mixed = has_new_keys or counts != ShardCounts() or not options.keeps_shards
    for other in origins[1:]:
        _check_same(origins[0], other, is_mixed=is_mixed)
    if not origins[0].has_keys:
        report_warning("the examples have no keys, so repeated examples cannot be found")
    elif not splits_of_roots:
        # with the splits before them, keys of different datasets differ
        check_keys_differ(origins)
    manifests = [origin.manifest for origin in origins]
    splits, totals = joined(manifests, manifests[0].schema)
    recorded: dict[str, Json] = {"source": "merge", "of": [origin.to_json() for origin in origins]}
    # different cuts do not determine the split of a key, nor do cuts of a single split
    cuts = {} if splits_of_roots else manifests[0].split_cuts
    outline = Manifest(
        name=name,
        build_id="",
        folder="",
        schema=manifests[0].schema,
        splits=splits,
        totals=totals,
        options={**recorded, "as_splits": [*splits_of_roots]} if splits_of_roots else recorded,
        split_cuts=cuts if all(manifest.split_cuts == cuts for manifest in manifests) else {},
        compression=manifests[0].compression,
    )
    new = derived_from_all(outline, origins, run, options, counts if is_mixed else None)
    return commit_new(new, folder, overwrite=overwrite)


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
        raise OptionsError("merge-too-few")
    for root in sources:
        check_path("sources", root)
    real = [os.path.realpath(root) for root in sources]
    twice = next((root for root, path in zip(sources, real, strict=True) if real.count(path) > 1), None)
    if twice is not None:
        raise OptionsError("merge-repeated", twice=os.fspath(twice))


def _check_same(first: Origin, other: Origin, *, is_mixed: bool) -> None:
    """Raise InputError unless two datasets have the same features, classes and, unless mixed, compression."""
    check_same_schema(first.manifest.schema, str(first.root), other.manifest.schema, str(other.root))
    one, two = first.manifest.compression, other.manifest.compression
    if one != two and not is_mixed:
        raise InputError(
            "merge-compressions-differ",
            root=first.root,
            compression=one,
            root2=other.root,
            compression2=two,
        )


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
        "keys-overlap", key=to_text(key), root=origins[one].root, root2=origins[other].root, in_all=in_all
    )


def _keys(origin: Origin) -> Iterator[list[bytes]]:
    """Yield the keys of each shard of a dataset, then those of its rejected inputs."""
    for _, keys in each_shard(origin.root, origin.manifest.shards):
        yield keys
    yield [to_bytes(reject.key) for reject in origin.rejects()]
