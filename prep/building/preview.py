"""Plan a build without executing it."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tfshards.prep.building.decisions import check_usable
from tfshards.prep.building.output import dataset_name, output_folder
from tfshards.prep.building.output_state import inspect_output
from tfshards.prep.planning.options import Options
from tfshards.prep.planning.plan import Plan, check_types, make_plan
from tfshards.prep.planning.shard_counts import ShardCounts, Shards
from tfshards.prep.sources.base import Source


def plan(
    source: Source,
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    seed: int = 0,
    options: Options | None = None,
    estimate: bool = False,
) -> Plan:
    """Return what ``build`` would produce with the same arguments; nothing is written to ``dataset``.

    Args:
        source: inputs of the build, such as ``ImageFolder("photos/")``.
        dataset: folder of the dataset.
        shards: number of shards of every split, or a dict of them by split; by default as many as
            ``options.shard_size`` gives.
        seed: random seed for the splits by ratio and the order of examples.
        options: all other options.
        estimate: also estimate time, memory and bytes of the build on this machine, from a sample of examples
            that is read, checked and written to a temporary folder for about two seconds. Without it, no
            image is decoded. Arrays that a build copies, such as those in .npz files, are copied as well.

    Returns:
        The plan. Printed, it is the table that ``tfshards plan`` prints; ``warnings`` are the lines that a
        build would log.

    Raises:
        OptionsError: an argument is not valid.
        InputError: the source or the output does not allow the build.
    """
    options = Options() if options is None else options
    check_types(source, seed, options)
    counts = ShardCounts.of(shards)
    folder = output_folder(dataset, source.location())
    check_usable(inspect_output(folder))
    with tempfile.TemporaryDirectory() as staging:
        began = time.perf_counter()
        reader = source.stage(Path(staging), preview=not estimate)
        found = make_plan(reader, dataset_name(folder, options), counts, seed, options)
        if not estimate:
            return found
        from tfshards.prep.building.sample import estimate_build

        seconds = time.perf_counter() - began
        return replace(found, estimate=estimate_build(found, reader, options.compression, seconds))
