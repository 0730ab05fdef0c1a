"""Write the examples of a dataset to new shards, with another number, balance or compression."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from tfshards.prep.derivation.derive import derive, derived_id, new_dataset
from tfshards.prep.derivation.origin import open_origin
from tfshards.prep.derivation.rewrite import rewrite_shards
from tfshards.prep.derivation.rewrite_plan import RewritePlan
from tfshards.prep.derivation.shard_options import ShardOptions
from tfshards.prep.planning.shard_counts import ShardCounts, Shards, size_warnings
from tfshards.prep.progress.lines import Log, to_stderr
from tfshards.prep.writing.area import BuildArea
from tfshards.schemas import Manifest, Shard, Split
from tfshards.schemas.json_reader import Json


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
    folder, name = new_dataset(dataset, options.name, [origin])
    of = origin.manifest
    num_shards = options.num_shards(of.splits, asked)
    num_examples = {split: held.num_examples for split, held in of.splits.items()}
    for warning in size_warnings(asked, num_shards, num_examples, options.shard_size):
        log(f"warning: {warning}")
    compression = options.compression or of.compression
    recorded: dict[str, Json] = {
        "source": "reshard",
        **options.to_json(num_shards, compression),
        "origin": origin.to_json(),
    }
    outline = replace(
        of,
        name=name,
        build_id=derived_id(name, recorded, [origin]),
        splits={split: Split((), held.label_counts) for split, held in of.splits.items()},
        options=recorded,
        compression=compression,
    )

    def write(area: BuildArea) -> Mapping[str, tuple[Shard, ...]]:
        balance = options.balance or "count"
        return rewrite_shards(RewritePlan(area, name, [origin], num_shards, balance, compression), log)

    return derive(outline, [origin], folder, write, overwrite=overwrite, log=log)
