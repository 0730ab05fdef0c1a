"""``--retry-rejected``: what a dataset has rejected is tried again, and few shards are written.

Nothing but the rejected inputs may differ from the build that made the dataset. That is proved by its id:
with the sizes and modification times that its rejects had, the inputs of today must give it again.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from tfshards.prep.area import BuildArea, Done, Reject, ShardId, rows_digest
from tfshards.prep.commit import read_rejects
from tfshards.prep.files import file_digest
from tfshards.prep.forecast import Forecast
from tfshards.prep.options import Options
from tfshards.prep.output import difference
from tfshards.prep.rejects import Layouts, final_layouts
from tfshards.prep.shard import shard_path
from tfshards.prep.sources.listing import Accepted, Listing, Reader
from tfshards.schemas import InputError, Manifest, OptionsError, Shard, index_path, read_manifest


@dataclass(frozen=True)
class Retried:
    """What a dataset becomes when its rejected inputs are tried again.

    Attributes:
        before: the dataset.
        layouts: where its examples stand.
        rejects: all inputs that are rejected now.
        conversions: what was done to the images that are accepted now, and to how many.
    """

    before: Manifest
    layouts: Layouts
    rejects: list[Reject]
    conversions: Mapping[str, int]


def retry(
    reader: Reader,
    plan: Forecast,
    area: BuildArea,
    options: Options,
    forecast_of: Callable[[Listing], Forecast],
) -> Retried:
    """Read again what the dataset in ``area.out`` has rejected and what has changed since.

    Args:
        reader: of the source.
        plan: the forecast of today's inputs.
        area: of the build that the forecast makes.
        options: as asked for.
        forecast_of: what a build of another listing would make, with the same arguments.

    Raises:
        OptionsError: duplicates are compared, for which all inputs would have to be read.
        InputError: the output is no dataset, nothing was rejected, or other inputs or options have changed.
    """
    if options.duplicates != "keep":
        raise OptionsError(
            "--retry-rejected reads only what was rejected, so that it cannot compare all inputs: "
            "leave out --duplicates, or give --overwrite instead"
        )
    before = read_manifest(area.out)
    if not before.totals.rejected:
        raise InputError(f"{area.out} has rejected nothing; give --overwrite to build it of other inputs")
    rejects = read_rejects(area.out / f"rejected-{before.build_id}.jsonl")
    listed = _as_it_was(plan.listing, rejects)
    then = forecast_of(listed) if listed else None
    if then is None or then.build_id != before.build_id:
        raise InputError(
            f"{area.out} holds a dataset of other {difference(before, plan.options)}: not only rejected "
            "inputs have changed; give --overwrite to build it again"
        )
    changed = [reject for reject in rejects if not _is_as_it_was(plan, reject)]
    rows = plan.listing.rows(np.array([plan.listing.find(reject.key) for reject in changed], dtype=np.int64))
    with ThreadPoolExecutor() as pool:
        outcomes = [found for (found,) in pool.map(lambda row: reader.read([row], plan.listing.schema), rows)]
    still = [reject for reject in rejects if _is_as_it_was(plan, reject)]
    conversions = Counter(before.totals.conversions)
    for row, outcome in zip(rows, outcomes, strict=True):
        if isinstance(outcome, Accepted):
            conversions.update(outcome.conversions)
        else:
            still.append(Reject(row.key, outcome.reason, outcome.detail, row.size, row.stamp))
    return Retried(before, final_layouts(then, rejects, options), still, conversions)


def link_unchanged(retried: Retried, layouts: Layouts, plan: Forecast, area: BuildArea, name: str) -> int:
    """Give shards that hold the same examples as before their new name; return how many.

    Where the file system has no hard links they are copied. The build area then says that they are finished.
    """
    area.open()
    num_linked = 0
    for split, layout in layouts.items():
        earlier = retried.layouts.get(split, [])
        for index, numbers in enumerate(layout):
            if index < len(earlier) and np.array_equal(numbers, earlier[index]):
                shard = ShardId(split, index)
                old = retried.before.splits[split].shards[index]
                path = shard_path(name, shard, area.build_id, len(layout))
                for source, target in ((old.path, path), (index_path(old.path), index_path(path))):
                    _link(area, source, target)
                written = Shard(path, old.num_examples, old.num_bytes, old.digest)
                index_digest = file_digest(area.out / index_path(path))
                area.write_done(
                    "final", shard, Done(written, index_digest, rows_digest(plan.listing.rows(numbers)))
                )
                num_linked += 1
    return num_linked


def _as_it_was(listing: Listing, rejects: Sequence[Reject]) -> Listing | None:
    """Return the listing with the rejected inputs as they were, or None if one is gone."""
    sizes, stamps = listing.sizes.copy(), listing.stamps.copy()
    for reject in rejects:
        number = listing.find(reject.key)
        if number is None:
            return None
        sizes[number], stamps[number] = reject.size, reject.stamp
    return replace(listing, sizes=sizes, stamps=stamps)


def _is_as_it_was(plan: Forecast, reject: Reject) -> bool:
    number = plan.listing.find(reject.key)
    now = None if number is None else (int(plan.listing.sizes[number]), int(plan.listing.stamps[number]))
    return now == (reject.size, reject.stamp)


def _link(area: BuildArea, source: str, target: str) -> None:
    """Make ``target`` another name of ``source``, or a copy of it, in one step."""
    unfinished = area.unfinished_path(target.replace("/", "-"))
    try:
        os.link(area.out / source, unfinished)
    except OSError:
        with suppress(FileNotFoundError):
            unfinished.unlink()
        shutil.copyfile(area.out / source, unfinished)
    unfinished.replace(area.out / target)
