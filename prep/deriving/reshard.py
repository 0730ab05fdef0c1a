"""Write the examples of a dataset to new shards, with another number or compression."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from tfshards.prep.building.commit import produce
from tfshards.prep.building.output import claimed, dataset_name, output_folder
from tfshards.prep.deriving.derive import Derived, ShardOptions, commit_next, derived_from_all
from tfshards.prep.deriving.stored import Origin, open_origin
from tfshards.prep.engines.table import find_run
from tfshards.prep.planning.options import Options, ShardCounts, Shards
from tfshards.schemas import Manifest, OptionsError
from tfshards.schemas.errors import check_flags
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import any_path


def reshard(
    source: str | os.PathLike[str],
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    overwrite: bool = False,
    options: ShardOptions | None = None,
    beam_args: Sequence[str] = (),
) -> Manifest:
    """Write the examples of a dataset to other shards, in a new folder or in place.

    Records are copied without being parsed, decoded or encoded. Each split keeps its examples, which is
    verified by digest. An interrupted call resumes when it is repeated.

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
        beam_args: Apache Beam's pipeline options, as for ``build``.

    Returns:
        The new manifest.

    Raises:
        OptionsError: an argument is invalid.
        InputError: ``source`` is not a dataset or is damaged, a split has fewer examples than shards, or
            ``dataset`` already holds other files.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    check_flags(overwrite=overwrite)
    run = find_run(beam_args)
    options = options or ShardOptions()
    counts = ShardCounts.of(shards, options.shard_size)
    root, folder = open_origin(source).root, any_path(dataset)
    is_next = root.real_name() == folder.real_name()
    if is_next and not overwrite:
        raise OptionsError(f"the output {folder} is the input; give another folder, or overwrite=True")

    def derive(origin: Origin) -> Derived:
        name = options.name or (origin.manifest.name if is_next else "")
        recorded: dict[str, Json] = {"source": "reshard", "origin": origin.to_json()}
        outline = replace(
            origin.manifest, name=dataset_name(folder, Options(name=name or None)), options=recorded
        )
        return derived_from_all(outline, [origin], run, options, counts, is_next=is_next)

    def derive_next(origin: Origin) -> Derived | None:
        new = derive(origin)
        # of a dataset that is already the result of this call in place
        made, asked = ({**each.options, "origin": None} for each in (origin.manifest, new.outline))
        return None if origin.manifest.name == new.outline.name and made == asked else new

    if is_next:
        return commit_next(folder, derive_next, is_compared=True)
    folder = output_folder(dataset, root)
    new = derive(open_origin(root))
    with claimed(folder) as state:
        return produce(new, state, overwrite=overwrite)
