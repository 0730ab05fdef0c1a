"""Write the shards of a phase that are not finished: their plans, the work of an engine, its records."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from tfshards.prep.building.state import system_fault
from tfshards.prep.engines.table import Work
from tfshards.prep.progress.lines import Reporter, WorkProgress, Written, report_line
from tfshards.prep.writing.build_folder import (
    BuildFolder,
    FinishedShard,
    Phase,
    PlanDigests,
    ShardId,
    ShardPlan,
)
from tfshards.prep.writing.shard import Pieces, ShardTask, write_shard
from tfshards.schemas import BuildError, Schema, TfshardsError
from tfshards.schemas.errors import counted
from tfshards.schemas.sizes import size
from tfshards.schemas.storage import AnyPath


@dataclass(frozen=True, kw_only=True)
class Writer:
    """What writes the shards of one build.

    Attributes:
        name: name of the dataset.
        num_shards: number of shards of each split.
        run: does the work of an engine.
        size_of: returns how much is in a shard of the source, for the progress.
        what: what is done, for status lines.
        locations: folders and files that workers read.
    """

    folder: BuildFolder
    source: Pieces
    schema: Schema
    name: str
    num_shards: Mapping[str, int]
    run: Callable[[Work], None]
    what: str = "build"
    locations: tuple[AnyPath, ...] = ()

    def write(
        self,
        phase: Phase,
        plans: Iterable[tuple[ShardId, ShardPlan]],
        sizes: Mapping[ShardId, Written],
        *,
        expected: Mapping[str, str] | None = None,
    ) -> dict[ShardId, FinishedShard]:
        """Write those of these shards that are not finished, and return all.

        Args:
            phase: the layouts to which they belong.
            plans: the plan of each shard.
            sizes: the examples of each shard, and their bytes in the source, for the progress.
            expected: digests that shards must have, by their paths, if they repair a build.
        """
        missing = self.begin(phase, plans, sizes, is_repair=bool(expected))
        if missing:
            whole = _total(sizes, missing)
            progress = WorkProgress(self.name, whole.num_examples)
            work = Work(
                partial(write_shard, self.task(phase, progress.reporter, expected)),
                missing,
                progress,
                size=whole,
                folder=self.folder.work,
                sources=self.locations,
                measure=lambda: _total(sizes, self.folder.recorded(phase, missing)),
            )
            run_work(self.run, work, self.folder.dataset)
        return self.finished(phase, sizes)

    def begin(
        self,
        phase: Phase,
        plans: Iterable[tuple[ShardId, ShardPlan]],
        sizes: Mapping[ShardId, Written],
        *,
        is_repair: bool = False,
    ) -> list[ShardId]:
        """Write the plans of all shards; return the shards that are not finished."""
        self.folder.open()
        digests = self.folder.write_plans(phase, plans)
        kept = self._kept(phase, digests)
        missing = [shard for shard in digests if shard not in kept]
        if not is_repair:
            self._log_start(phase, missing, sizes)
        # their records may be there, but their files may be damaged
        self.folder.forget(phase, missing)
        return missing

    def task(self, phase: Phase, reporter: Reporter, expected: Mapping[str, str] | None = None) -> ShardTask:
        """Return what a worker needs to write any shard."""
        return ShardTask(
            folder=self.folder,
            source=self.source,
            phase=phase,
            name=self.name,
            num_shards=self.num_shards,
            has_keys=self.schema.key is not None,
            has_labels=self.schema.label is not None,
            reporter=reporter,
            expected=expected or {},
        )

    def finished(self, phase: Phase, shards: Collection[ShardId]) -> dict[ShardId, FinishedShard]:
        """Return these shards, all of which have been written since ``begin``."""
        found = self.folder.finished("first", shards)
        if phase == "final":
            plans = {shard: self.folder.read_plan(phase, shard).digests for shard in shards}
            found = {
                shard: one
                for records in (found, self.folder.finished("final", shards))
                for shard, one in records.items()
                if one.content == plans[shard].content
            }
        for shard in shards:
            if shard not in found:
                where = f"shard {shard.shard_index} of split {shard.split!r}"
                raise BuildError("shard-unfinished", where=where)
        return {shard: found[shard] for shard in shards}

    def _kept(self, phase: Phase, plans: Mapping[ShardId, PlanDigests]) -> set[ShardId]:
        """Return the shards of an earlier attempt, or of the first layout, that need not be written again."""
        first, final = (self.folder.finished(of, plans) for of in ("first", "final"))
        replaced = set[ShardId]()
        if phase == "first":
            found = {shard: one for shard, one in first.items() if one.plan == plans[shard].whole}
            # The file may already hold the final layout; of the first one only the rejects are needed.
            replaced = {shard for shard in found if shard in final}
        else:
            # without the rejected rows, a shard of the first layout may equal one of the final layout
            found = {shard: one for shard, one in first.items() if one.content == plans[shard].content}
            found |= {shard: one for shard, one in final.items() if one.plan == plans[shard].whole}
        checked = [shard for shard in found if shard not in replaced]
        are_intact = self.folder.intact(found[shard] for shard in checked)
        return replaced | {shard for shard, is_one in zip(checked, are_intact, strict=True) if is_one}

    def _log_start(
        self, phase: Phase, missing: Collection[ShardId], sizes: Mapping[ShardId, Written]
    ) -> None:
        of, num_finished = counted(len(sizes), "shard"), len(sizes) - len(missing)
        if phase == "final":
            report_line(f"balancing after rejects: {len(missing)} of {of} to rewrite")
        elif num_finished:
            report_line(f"resuming the {self.what}: {num_finished} of {of} finished")
        else:
            whole = _total(sizes, sizes)
            examples = counted(whole.num_examples, "example")
            report_line(f"starting {self.what}: {examples}, {size(whole.num_bytes)}, {of}")


def run_work(run: Callable[[Work], None], work: Work, output: AnyPath) -> None:
    """Do the work of an engine; a failure other than of tfshards is a BuildError that names the output."""
    try:
        run(work)
    except TfshardsError:
        # its code says what happened
        raise
    except OSError as failure:
        raise BuildError("build-failed", text=system_fault(output, failure)) from failure
    except Exception as failure:
        raise BuildError("build-failed", text=_reason(output, failure)) from failure


def _total(sizes: Mapping[ShardId, Written], shards: Iterable[ShardId]) -> Written:
    found = [sizes[shard] for shard in shards]
    return Written(sum(each.num_examples for each in found), sum(each.num_bytes for each in found))


def _reason(folder: AnyPath, failure: Exception) -> str:
    """Return why an engine failed; of another process's system error only the text is known."""
    if number := re.search(r"\[Errno (\d+)\]", f"{failure} {failure.__cause__}"):
        return system_fault(folder, OSError(int(number[1]), os.strerror(int(number[1]))))
    return str(failure) or type(failure).__name__
