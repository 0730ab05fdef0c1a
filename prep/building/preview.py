"""Plan a build without executing it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tfshards.prep.building.output import dataset_name, output_folder
from tfshards.prep.building.output_state import check_usable, inspect_output
from tfshards.prep.planning.make_plan import check_types, make_plan
from tfshards.prep.planning.options import Options, ShardCounts, Shards
from tfshards.prep.planning.plan import Plan
from tfshards.prep.sources.base import Source


def plan(
    source: Source,
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    seed: int = 0,
    options: Options | None = None,
) -> Plan:
    """Return what ``build`` would produce with the same arguments; nothing is written to ``dataset``.

    No image is decoded.

    Args:
        source: inputs of the build, such as ``ImageFolder("photos/")``.
        dataset: folder of the dataset.
        shards: number of shards of every split, or a dict of them by split; by default as many as
            ``options.shard_size`` gives.
        seed: random seed for the splits by ratio and the order of examples.
        options: all other options.

    Returns:
        The plan. Printed, it is the table that ``tfshards plan`` prints; ``warnings`` are the lines that a
        build would log.

    Raises:
        OptionsError: an argument is not valid.
        InputError: the source or the output does not allow the build.
    """
    options = Options() if options is None else options
    check_types(source, seed, options)
    counts = ShardCounts.of(shards, options.shard_size)
    folder = output_folder(dataset, source.location())
    check_usable(inspect_output(folder))
    with tempfile.TemporaryDirectory() as staging:
        reader = source.stage(Path(staging), group_by=options.group_by, preview=True)
        return make_plan(reader, dataset_name(folder, options), counts, seed, options)
