"""Write: plan files for the new shards, and the work of an engine that copies records or links shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tfshards.prep.building.planned_build import lost_shard, run_work
from tfshards.prep.engines.table import Work
from tfshards.prep.progress.lines import WorkProgress, Written, report_line
from tfshards.prep.progress.threads import num_writers
from tfshards.prep.rewriting.copying import CopyTask, write_group, write_plan
from tfshards.prep.rewriting.layout import Rewrite
from tfshards.prep.verification.checks import shard_problems
from tfshards.prep.writing.area import FinishedShard, ShardId
from tfshards.prep.writing.remote_area import compared
from tfshards.schemas import Shard
from tfshards.schemas.errors import counted
from tfshards.schemas.files import require_space
from tfshards.schemas.storage import RemotePath

# Number of shards that a thread writes in one pass if the records of each come from all parts of the origins.
# Each of them holds up to one run of records in memory.
_SHARDS_PER_PASS = 32


def write_shards(plan: Rewrite, run: Callable[[Work], None]) -> dict[str, tuple[Shard, ...]]:
    """Write or link the shards that an earlier attempt has not finished, and return those of each split.

    ``run`` is that of an engine.
    """
    finished, area = _finished(plan), plan.area
    missing = [shard for shard in plan.written if shard not in finished]
    links = [shard for shard in plan.shards if plan.is_kept(shard) and shard not in finished]
    _require_space(plan, finished)
    # an edit has just read the shards that it keeps
    verifies = plan.verb == "merge"

    def measure(shards: Sequence[ShardId]) -> Written:
        counts = [
            plan.splits[shard.split].sizes[shard.shard_index]
            for shard in shards
            if verifies or not plan.is_kept(shard)
        ]
        return Written(sum(counts), sum(counts) * record_bytes)

    num_read = sum(shard.num_examples for shard in plan.read_shards)
    record_bytes = sum(shard.record_bytes for shard in plan.read_shards) // max(1, num_read)
    whole = measure([*missing, *links])
    num_finished, of = sum(shard in finished for shard in plan.written), counted(len(plan.written), "shard")
    if num_finished:
        report_line(f"resuming the {plan.verb}: {num_finished} of {of} finished")
    else:
        linked = f" and linking {len(links)}" if links else ""
        report_line(f"starting {plan.verb}: {counted(whole.num_examples, 'example')}, writing {of}{linked}")
    if missing or links:
        # their records may be there, but their files may be damaged
        area.forget("first", [*missing, *links])
        area.each(partial(write_plan, plan), [*links, *missing])
        groups: list[tuple[ShardId, ...]] = [(shard,) for shard in links]
        for split in plan.splits:
            groups += _groups(plan, [shard for shard in missing if shard.split == split])
        progress = WorkProgress(plan.outline.name, whole.num_examples)
        task = CopyTask.of(plan, progress.reporter, verifies=verifies)
        work = Work(
            partial(write_group, task),
            groups,
            progress,
            stop=area.stop,
            size=whole,
            area=task.area,
            sources=tuple(origin.root for origin in plan.origins),
            measure=lambda: measure(area.recorded("first", [*links, *missing])),
        )
        run_work(run, work)
    done = area.finished("first", plan.shards)
    if lost := [shard for shard in plan.shards if shard not in done]:
        raise lost_shard(area, lost[0])
    return {
        split: tuple(done[shard].shard for shard in plan.shards if shard.split == split)
        for split in plan.splits
    }


def _finished(plan: Rewrite) -> dict[ShardId, FinishedShard]:
    """Return the shards that an earlier attempt finished, if their files are unchanged."""
    area = plan.area
    recorded = area.finished("first", plan.shards)
    found = {shard: done for shard, done in recorded.items() if done.shard.path == plan.shard_path(shard)}
    if isinstance(area.shards, RemotePath):
        is_same = compared(area.shards)
        return {shard: done for shard, done in found.items() if is_same(done.shard, done.e_tags)}
    # a local link costs less than this comparison
    found = {shard: done for shard, done in found.items() if not plan.is_kept(shard)}
    with ThreadPoolExecutor(num_writers()) as pool:
        problems = pool.map(lambda done: shard_problems(area.shards, done.shard), found.values())
        return {shard: found[shard] for shard, faults in zip(found, problems, strict=True) if not faults}


def _require_space(plan: Rewrite, finished: Mapping[ShardId, FinishedShard]) -> None:
    """Raise InputError if the output's file system cannot hold the missing shards."""
    compression = plan.outline.compression
    needed = 0
    if compression == "none":
        needed = sum(shard.record_bytes for shard in plan.read_shards)
    elif all(origin.manifest.compression == compression for origin in plan.origins):
        # otherwise the ratio of compression is unknown
        needed = sum(shard.num_bytes for shard in plan.read_shards)
    written = sum(done.shard.num_bytes for done in finished.values())
    require_space(plan.area.out, max(0, needed - written), "the dataset")


def _groups(plan: Rewrite, shards: Sequence[ShardId]) -> Iterator[tuple[ShardId, ...]]:
    # A run of records can be read from an uncompressed file without reading the rest. A compressed file must
    # be read from its start.
    is_cut = all(origin.manifest.compression == "none" for origin in plan.origins)
    per_pass = 1 if is_cut else max(1, min(_SHARDS_PER_PASS, -(-len(shards) // num_writers())))
    for start in range(0, len(shards), per_pass):
        yield tuple(shards[start : start + per_pass])
