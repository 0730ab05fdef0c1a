"""Write the examples of a dataset to new shards, with another number, balance or compression."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from tfshards.prep.building.commit import complete
from tfshards.prep.building.output import claimed, dataset_name
from tfshards.prep.building.output_state import up_to_date
from tfshards.prep.planning.options import Options, ShardCounts, Shards
from tfshards.prep.progress.lines import Log, to_stderr
from tfshards.prep.rewriting.commit import commit_new, digest_of_origins, new_dataset
from tfshards.prep.rewriting.layout import Rewrite
from tfshards.prep.rewriting.new_shards import NewShards, ShardOptions
from tfshards.prep.rewriting.origin import open_origin
from tfshards.prep.writing.area import BuildArea
from tfshards.schemas import InputError, Manifest, OptionsError, Split, read_manifest
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import AnyPath, any_path, is_same


def reshard(
    source: str | os.PathLike[str],
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    overwrite: bool = False,
    options: ShardOptions | None = None,
    log: Log = to_stderr,
) -> Manifest:
    """Write the dataset ``source`` to the folder ``dataset`` with new shards and return the new manifest.

    Records are copied without being parsed, decoded or encoded. Each split keeps its examples, which is
    verified by digest. An interrupted call resumes when it is repeated.

    With ``overwrite``, ``dataset`` may be ``source`` itself. As in a build, the dataset is the old one until
    the new one is committed, and the old shards stay until the next build or ``prune``.

    Args:
        source: folder of a dataset.
        dataset: folder of the new dataset; created if it is missing.
        shards: number of shards of each split, or a dict by split; by default as many as ``source`` has.
        overwrite: replace another dataset in ``dataset``.
        options: size, balance and compression of the new shards, and the name of the new dataset.
        log: receives status lines.

    Raises:
        OptionsError: an argument is invalid.
        InputError: ``source`` is not a dataset or is damaged, a split has fewer examples than shards, or
            ``dataset`` already holds other files.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    options = options or ShardOptions()
    asked = ShardCounts.of(shards)
    asked.check_shard_size(options.shard_size)
    origin = open_origin(source)
    of, folder = origin.manifest, any_path(dataset)
    is_in_place = is_same(origin.root, folder)
    if is_in_place and not overwrite:
        raise OptionsError("reshard-onto-itself", dataset=folder)
    if is_in_place:
        name = dataset_name(folder, Options(name=options.name or of.name))
    else:
        folder, name = new_dataset(dataset, options.name, [origin])
    new = NewShards.of([origin], of.splits, asked, options)
    recorded: dict[str, Json] = {"source": "reshard", **new.to_json(), "origin": origin.to_json()}
    if is_in_place and _is_done(of, name, recorded):
        return _complete(folder, of, log)
    outline = replace(
        of,
        name=name,
        build_id="",
        splits={split: Split((), held.label_counts) for split, held in of.splits.items()},
        options=recorded,
        inputs_digest=digest_of_origins([origin]),
        compression=new.compression,
    )

    def plan(area: BuildArea) -> Rewrite:
        if is_in_place:
            _check_unchanged(folder, of)
        return new.rewrite(area, name)

    return commit_new(outline, [origin], folder, plan, overwrite=overwrite, log=log)


def _is_done(of: Manifest, name: str, wanted: Mapping[str, Json]) -> bool:
    """Return whether a dataset is already the result of this call in place."""
    options = {key: value for key, value in of.options.items() if key != "origin"}
    return of.name == name and options == {key: value for key, value in wanted.items() if key != "origin"}


def _complete(folder: AnyPath, manifest: Manifest, log: Log) -> Manifest:
    """Complete the commit of an earlier call in place, which may have been killed after it."""
    with claimed(folder):
        _check_unchanged(folder, manifest)
        complete(manifest, folder, log)
    log(up_to_date(folder, is_compared=False))
    return manifest


def _check_unchanged(folder: AnyPath, manifest: Manifest) -> None:
    """Raise InputError if another process has replaced the dataset before it was locked."""
    if read_manifest(folder) != manifest:
        raise InputError("reshard-overtaken", folder=folder)
