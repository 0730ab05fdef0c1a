"""Write the examples of a dataset to new shards, with another number or compression."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from tfshards.prep.building.output import dataset_name, output_folder
from tfshards.prep.deriving.derive import Derived, commit_new, commit_next, derived_from_all
from tfshards.prep.deriving.options import ShardOptions
from tfshards.prep.deriving.stored import Origin, open_origin
from tfshards.prep.engines.table import EngineName, find_run
from tfshards.prep.planning.options import Options, ShardCounts, Shards
from tfshards.prep.progress.lines import Log, takes_log, to_stderr
from tfshards.schemas import Manifest, OptionsError
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import any_path
from tfshards.schemas.storage.any_path import real_name


@takes_log
def reshard(
    source: str | os.PathLike[str],
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    overwrite: bool = False,
    options: ShardOptions | None = None,
    engine: EngineName | None = None,
    beam_args: Sequence[str] = (),
    log: Log = to_stderr,
) -> Manifest:
    """Write the examples of a dataset to other shards, in a new folder or in place.

    Records are copied without being parsed, decoded or encoded, and whole shards as files. Each split keeps
    its examples, which is verified by digest. An interrupted call resumes when it is repeated.

    With ``overwrite``, ``dataset`` may be ``source`` itself. As in a build, the dataset is the old one until
    the new one is committed, and the old shards stay until ``prune``. Shards that are already as asked for
    are not written again.

    Args:
        source: folder of a dataset.
        dataset: folder of the new dataset, whose last part is its default name; created if it is missing.
            With "overwrite" it may be the source.
        shards: number of shards of every split, or of single splits by name, such as 64 or val=8; by default
            as many as before.
        overwrite: replace another dataset in ``dataset``.
        options: size and compression of the new shards, and the name of the new dataset.
        engine: engine that writes the shards: "local", all cores of this machine, or "beam", Apache Beam.
        beam_args: Apache Beam's pipeline options, as for ``build``.
        log: receives status lines.

    Returns:
        The new manifest.

    Raises:
        OptionsError: an argument is invalid.
        InputError: ``source`` is not a dataset or is damaged, a split has fewer examples than shards, or
            ``dataset`` already holds other files.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    run = find_run(engine, beam_args)
    options = options or ShardOptions()
    counts = ShardCounts.of(shards, options.shard_size)

    def derive(origin: Origin, name: str, *, is_next: bool) -> Derived:
        recorded: dict[str, Json] = {"source": "reshard", "origin": origin.to_json()}
        outline = replace(origin.manifest, name=name, options=recorded)
        return derived_from_all(outline, [origin], run, options, counts, is_next=is_next)

    def derive_next(origin: Origin) -> Derived | None:
        new = derive(origin, options.name or origin.manifest.name, is_next=True)
        # of a dataset that is already the result of this call in place
        made, asked = ({**each.options, "origin": None} for each in (origin.manifest, new.outline))
        return None if origin.manifest.name == new.outline.name and made == asked else new

    origin, folder = open_origin(source), any_path(dataset)
    if real_name(origin.root) != real_name(folder):
        folder = output_folder(dataset, origin.root)
        name = dataset_name(folder, Options(name=options.name))
        return commit_new(derive(origin, name, is_next=False), folder, overwrite=overwrite)
    if not overwrite:
        raise OptionsError("reshard-onto-itself", dataset=folder)
    dataset_name(folder, Options(name=options.name or origin.manifest.name))
    return commit_next(folder, derive_next)
