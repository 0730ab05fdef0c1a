"""Write new shards whose records are copied, frame by frame, from the shards of the origins.

No record is parsed. Threads suffice, because reading, checksums, hashing and compression release the GIL.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tfshards.prep.derivation.rewrite_plan import RewritePlan
from tfshards.prep.derivation.shard_pass import ShardPass
from tfshards.prep.engines import in_process
from tfshards.prep.engines.table import Work
from tfshards.prep.progress.lines import Log, Progress
from tfshards.prep.progress.threads import num_writers
from tfshards.prep.verification.check_files import shard_problems
from tfshards.prep.writing.area import FinishedShard, ShardId
from tfshards.prep.writing.remote_area import compared
from tfshards.schemas import Shard
from tfshards.schemas.errors import counted
from tfshards.schemas.files import require_space
from tfshards.schemas.sizes import size
from tfshards.schemas.storage import RemotePath

# Number of shards that a thread writes in one pass if the records of each come from all parts of the origins.
# Each of them holds up to one run of records in memory.
_SHARDS_PER_PASS = 32


def rewrite_shards(plan: RewritePlan, log: Log) -> dict[str, tuple[Shard, ...]]:
    """Write the shards that an earlier attempt has not finished and return the shards of each split.

    Raises:
        InputError: an origin is damaged, or the output has too little space.
        BuildError: a record of an origin is damaged, or the output cannot be written.
    """
    plan.area.open()
    written = write_missing(plan, log)
    return {
        split: tuple(shard for of, shard in written.items() if of.split == split) for split in plan.num_shards
    }


def write_missing(plan: RewritePlan, log: Log) -> dict[ShardId, Shard]:
    """Write the shards of a plan that its area, which is open, does not hold, and return all of them.

    Raises:
        InputError: an origin is damaged, or the output has too little space.
        BuildError: a record of an origin is damaged, or the output cannot be written.
    """
    finished = _finished(plan)
    missing = [shard for shard in plan.shards if shard not in finished]
    split_plans = plan.split_plans()
    _log_start(plan, len(finished), log)
    _require_space(plan, finished)
    progress = Progress(plan.name, sum(split_plans[shard.split].num_examples(shard) for shard in missing))
    passes = [
        ShardPass(plan, split_plans[split], group, progress.reporter)
        for split in plan.num_shards
        for group in _groups(plan, [shard for shard in missing if shard.split == split])
    ]
    stop = threading.Event()
    in_process.run(Work(lambda one: one.run(stop), passes, progress, lambda _: stop.set(), area=plan.area))
    return {shard: done.shard for shard, done in plan.area.finished("first", plan.shards).items()}


def _finished(plan: RewritePlan) -> dict[ShardId, FinishedShard]:
    """Return the new shards that an earlier attempt finished, if their files are unchanged."""
    area = plan.area
    found = {
        shard: done
        for shard, done in area.finished("first", plan.shards).items()
        if done.shard.path == plan.shard_path(shard)
    }
    if isinstance(area.shards, RemotePath):
        is_same = compared(area.shards)
        return {shard: done for shard, done in found.items() if is_same(done.shard, done.e_tags)}
    with ThreadPoolExecutor(num_writers()) as pool:
        problems = pool.map(lambda done: shard_problems(area.shards, done.shard), found.values())
        return {shard: found[shard] for shard, faults in zip(found, problems, strict=True) if not faults}


def _log_start(plan: RewritePlan, num_finished: int, log: Log) -> None:
    of = counted(len(plan.shards), "shard")
    if num_finished:
        log(f"resuming the {plan.verb}: {num_finished} of {of} finished")
        return
    shards = [shard for _, shard in plan.read_shards]
    examples = counted(sum(shard.num_examples for shard in shards), "example")
    log(f"starting {plan.verb}: {examples}, {size(sum(shard.record_bytes for shard in shards))}, {of}")


def _require_space(plan: RewritePlan, finished: Mapping[ShardId, FinishedShard]) -> None:
    """Raise InputError if the output's file system cannot hold the missing shards."""
    shards = [shard for _, shard in plan.read_shards]
    compressions = {origin.manifest.compression for origin in plan.origins}
    if plan.compression == "none":
        needed = sum(shard.record_bytes for shard in shards)
    elif compressions == {"gzip"}:
        needed = sum(shard.num_bytes for shard in shards)
    else:
        # the ratio of compression is unknown
        needed = 0
    written = sum(done.shard.num_bytes for done in finished.values())
    require_space(plan.area.out, max(0, needed - written), "the dataset")


def _groups(plan: RewritePlan, shards: Sequence[ShardId]) -> Iterator[Sequence[ShardId]]:
    """Yield the shards that are written in one pass."""
    # A run of records can be read from an uncompressed file without reading the rest. A compressed file must
    # be read from its start, and records that are assigned by size are spread over all files.
    is_cut = plan.balance == "count" and all(origin.manifest.compression == "none" for origin in plan.origins)
    per_pass = 1 if is_cut else max(1, min(_SHARDS_PER_PASS, -(-len(shards) // num_writers())))
    for start in range(0, len(shards), per_pass):
        yield shards[start : start + per_pass]
