"""``--retry-rejected``: what a dataset has rejected is tried again, and few shards are written.

Nothing but the rejected inputs may differ from the build that made the dataset. That is proved by its id:
with the sizes and modification times that its rejects had, the inputs of today must give it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tfshards.prep.area import BuildArea, Done, Reject, ShardId, rows_digest
from tfshards.prep.commit import read_rejects
from tfshards.prep.forecast import Forecast
from tfshards.prep.options import Options
from tfshards.prep.output import difference
from tfshards.prep.proofs.verify import shard_problems
from tfshards.prep.rejects import Layouts, final_layouts
from tfshards.prep.shard import shard_path
from tfshards.prep.sources.listing import Accepted, Listing, Reader
from tfshards.schemas import (
    MANIFEST_NAME,
    InputError,
    Manifest,
    file_problems,
    read_manifest,
)


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


def dataset_to_retry(out: Path) -> Manifest:
    """Return the manifest of the dataset in ``out``.

    Raises:
        InputError: there is none, or a shard of it is missing or of another size.
        FormatError: the manifest cannot be read.
    """
    if not (out / MANIFEST_NAME).exists():
        raise InputError(f"{out} holds no dataset that has rejected anything; leave out --retry-rejected")
    before = read_manifest(out)
    problems = file_problems(before, out)
    if problems:
        raise InputError(f"{out} is damaged: {problems[0]}; give --overwrite to build it again")
    return before


def retry(
    reader: Reader,
    plan: Forecast,
    before: Manifest,
    area: BuildArea,
    options: Options,
    forecast_of: Callable[[Listing], Forecast],
) -> Retried:
    """Read again what the dataset in ``area.out`` has rejected and what has changed since.

    Args:
        reader: of the source.
        plan: the forecast of today's inputs.
        before: the dataset.
        area: of the build that the forecast makes.
        options: as asked for.
        forecast_of: what a build of another listing would make, with the same arguments.

    Raises:
        InputError: nothing was rejected, or other inputs or options have changed.
    """
    out = area.out
    if not before.totals.rejected:
        raise InputError(f"{out} has rejected nothing; give --overwrite to build it of other inputs")
    rejects = read_rejects(out / f"rejected-{before.build_id}.jsonl")
    gone = next((reject.key for reject in rejects if plan.listing.find(reject.key) is None), None)
    if gone is not None:
        raise InputError(
            f"{gone!r}, which {out} has rejected, is no longer among the inputs; put its mended file under "
            "that name, or give --overwrite to build without it"
        )
    then = forecast_of(_as_it_was(plan.listing, rejects))
    if then.build_id != before.build_id:
        raise InputError(
            f"{out} holds a dataset of other {difference(before, then.options)}, and --retry-rejected "
            "takes in nothing but mended files; give --overwrite to build it again"
        )
    still = [reject for reject in rejects if _is_as_it_was(plan.listing, reject)]
    changed = [reject for reject in rejects if not _is_as_it_was(plan.listing, reject)]
    rows = plan.listing.rows(np.array([plan.listing.find(reject.key) for reject in changed], dtype=np.int64))
    with ThreadPoolExecutor() as pool:
        outcomes = [found for (found,) in pool.map(lambda row: reader.read([row], plan.listing.schema), rows)]
    conversions = Counter(before.totals.conversions)
    for row, outcome in zip(rows, outcomes, strict=True):
        if isinstance(outcome, Accepted):
            conversions.update(outcome.conversions)
        else:
            still.append(Reject(row.key, outcome.reason, outcome.detail, row.size, row.stamp))
    return Retried(before, final_layouts(then, rejects, options), still, conversions)


def link_unchanged(
    retried: Retried, layouts: Layouts, plan: Forecast, area: BuildArea, name: str
) -> dict[ShardId, Done]:
    """Give sound shards that hold the same examples as before a second name, that of this build.

    Where the file system has no hard links they are copied. No notes are left in the build area: what they
    would not say, such as how many images were converted, another build of the same id would miss.
    """
    area.open()
    (area.out / "index").mkdir(exist_ok=True)
    same = [
        ShardId(split, index)
        for split, layout in layouts.items()
        for index, (now, earlier) in enumerate(zip(layout, retried.layouts[split], strict=False))
        if np.array_equal(now, earlier)
    ]

    def link(shard: ShardId) -> Done | None:
        old = retried.before.splits[shard.split].shards[shard.shard_index]
        if shard_problems(area.out, old):
            return None
        layout = layouts[shard.split]
        path = shard_path(name, shard, area.build_id, len(layout))
        new = replace(old, path=path)
        area.link_shard(area.out, old, new)
        return Done(new, rows_digest(plan.listing.rows(layout[shard.shard_index])))

    with ThreadPoolExecutor() as pool:
        return {shard: done for shard, done in zip(same, pool.map(link, same), strict=True) if done}


def _as_it_was(listing: Listing, rejects: Sequence[Reject]) -> Listing:
    """Return the listing with the rejected inputs, all of which are in it, as they were."""
    sizes, stamps = listing.sizes.copy(), listing.stamps.copy()
    for reject in rejects:
        number = listing.find(reject.key)
        sizes[number], stamps[number] = reject.size, reject.stamp
    return replace(listing, sizes=sizes, stamps=stamps)


def _is_as_it_was(listing: Listing, reject: Reject) -> bool:
    number = listing.find(reject.key)
    return bool(listing.sizes[number] == reject.size and listing.stamps[number] == reject.stamp)
