"""A build between its plan and its commit: which shards are finished, and the writing of the others."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from tfshards.prep.engines.table import Work, cancel_lost_job, run_on_threads
from tfshards.prep.planning.options import Options
from tfshards.prep.planning.plan import Layouts, Plan
from tfshards.prep.progress.lines import Reporter, WorkProgress, Written, report_line
from tfshards.prep.progress.threads import num_jobs
from tfshards.prep.sources.base import Reader
from tfshards.prep.writing.area import BuildArea, FinishedShard, Phase, ShardId
from tfshards.prep.writing.remote_area import compared
from tfshards.prep.writing.shard import ShardTask, write_shard
from tfshards.schemas import BuildError
from tfshards.schemas.errors import counted
from tfshards.schemas.files import file_digest, system_fault
from tfshards.schemas.sizes import size
from tfshards.schemas.storage import AnyPath, RemotePath

_Records: TypeAlias = Mapping[ShardId, FinishedShard]


@dataclass(frozen=True, kw_only=True)
class PlannedBuild:
    """A build with a plan, whose shards the engine ``run`` writes in the build area."""

    reader: Reader
    plan: Plan
    area: BuildArea
    options: Options
    run: Callable[[Work], None] = run_on_threads
    source: AnyPath | None = None

    def begin(self, phase: Phase, layouts: Layouts) -> list[ShardId]:
        """Write the plans of all shards of these layouts; return the shards that are not finished."""
        self.area.open()
        digests = self.area.write_plans(
            phase,
            (
                (ShardId(split, index), self.plan.listing.columns(numbers))
                for split, shards in layouts.items()
                for index, numbers in enumerate(shards)
            ),
        )
        first, final = (self.area.finished(of, digests) for of in ("first", "final"))
        finished = self._intact(phase, digests, first, final)
        missing = [shard for shard in digests if shard not in finished]
        self._log_start(phase, len(finished), len(digests))
        # their records may be there, but their files may be damaged
        self.area.forget(phase, missing)
        return missing

    def task(self, phase: Phase, layouts: Layouts, reporter: Reporter) -> ShardTask:
        """Return what a worker needs to write any shard of these layouts."""
        return ShardTask(
            area=self.area,
            reader=self.reader,
            schema=self.plan.listing.schema,
            phase=phase,
            name=self.plan.name,
            num_shards={split: len(shards) for split, shards in layouts.items()},
            reporter=reporter,
            finds_duplicates=self.options.duplicates != "keep" and phase == "first",
            compression=self.options.compression,
        )

    def write(self, phase: Phase, layouts: Layouts) -> dict[ShardId, FinishedShard]:
        """Write the shards of these layouts that are not finished; return all of their shards."""
        cancel_lost_job(self.area.job_path)
        if missing := self.begin(phase, layouts):
            whole = self._size(layouts, missing)
            progress = WorkProgress(self.plan.name, whole.num_examples)
            work = Work(
                partial(write_shard, self.task(phase, layouts, progress.reporter)),
                missing,
                progress,
                stop=self.area.stop,
                size=whole,
                area=self.area,
                sources=() if self.source is None else (self.source,),
                measure=lambda: self._size(layouts, self.area.recorded(phase, missing)),
            )
            try:
                self.run(work)
            except Exception as failure:
                raise BuildError("build-failed", text=_reason(self.area, failure)) from failure
        return self.finished(phase, layouts)

    def _size(self, layouts: Layouts, shards: Iterable[ShardId]) -> Written:
        """Return the examples of these shards, and their bytes in the source."""
        numbers = [layouts[split][index] for split, index in shards]
        sizes = self.plan.listing.sizes
        return Written(sum(map(len, numbers)), sum(int(sizes[each].sum()) for each in numbers))

    def finished(self, phase: Phase, layouts: Layouts) -> dict[ShardId, FinishedShard]:
        """Return the shards of these layouts, all of which have been written since ``begin``."""
        shards = [ShardId(split, index) for split, layout in layouts.items() for index in range(len(layout))]
        found = self.area.finished("first", shards)
        if phase == "final":
            digests = self.area.plan_digests(phase, shards)
            # of shards of which no other rows are planned
            found = {
                shard: one
                for records in (found, self.area.finished("final", shards))
                for shard, one in records.items()
                if one.rows_digest == digests[shard]
            }
        if lost := [shard for shard in shards if shard not in found]:
            raise lost_shard(self.area, lost[0])
        return {shard: found[shard] for shard in shards}

    def _intact(
        self, phase: Phase, digests: Mapping[ShardId, str], first: _Records, final: _Records
    ) -> dict[ShardId, FinishedShard]:
        """Return the shards of an earlier attempt, or of the first layout, that need not be rewritten."""
        is_intact = self._is_intact
        if isinstance(self.area.shards, RemotePath) and first:
            is_kept = compared(self.area.shards)

            def is_intact(found: FinishedShard) -> bool:
                return is_kept(found.shard, found.e_tags)

        def choose(shard: ShardId) -> FinishedShard | None:
            if phase == "first" and shard in first and shard in final:
                # The file may already hold the final layout; of the first one only the rejects are needed.
                return first[shard]
            for records in (final, first) if phase == "final" else (first,):
                found = records.get(shard)
                # Without the rejected rows, a shard of the first layout may equal one of the final layout.
                if found and (phase == "first" or found.rows_digest == digests[shard]) and is_intact(found):
                    return found
            return None

        with ThreadPoolExecutor(num_jobs()) as pool:
            return {shard: one for shard, one in zip(digests, pool.map(choose, digests), strict=True) if one}

    def _is_intact(self, found: FinishedShard) -> bool:
        """Return whether a shard, its index and its labels still have their recorded digests."""
        digests = {found.shard.path: found.shard.digest, **found.shard.companion_digests}
        files = {self.area.shards / path: digest for path, digest in digests.items()}
        return all(path.is_file() and file_digest(path) == digest for path, digest in files.items())

    def _log_start(self, phase: Phase, num_finished: int, num_shards: int) -> None:
        missing, of = num_shards - num_finished, counted(num_shards, "shard")
        if phase == "final":
            report_line(f"balancing after rejects: {missing} of {of} to rewrite")
        elif num_finished:
            report_line(f"resuming the build: {num_finished} of {of} finished")
        else:
            listing = self.plan.listing
            what = f"{counted(listing.num_examples, 'example')}, {size(int(listing.sizes.sum()))}, {of}"
            report_line(f"starting build: {what}")


def lost_shard(area: BuildArea, shard: ShardId) -> BuildError:
    """Return the error for a shard that no worker has finished, or that another attempt has replaced."""
    # in a store two attempts that begin together may both run, and one may write what the other has finished
    code = "shard-overtaken" if area.is_remote else "shard-unfinished"
    return BuildError(code, where=f"shard {shard.shard_index} of split {shard.split!r}")


def run_work(run: Callable[[Work], None], work: Work) -> None:
    """Do work in a build area on an engine.

    Raises:
        Exception: the first failure of a call in this process or a helper.
        BuildError: a call failed elsewhere.
    """
    assert work.area is not None
    cancel_lost_job(work.area.job_path)
    try:
        run(work)
    except BuildError as failure:
        if failure.code not in ("build-failed", "build-stopped"):
            raise
        raise BuildError("build-failed", text=_reason(work.area, failure)) from failure


def _reason(area: BuildArea, failure: Exception) -> str:
    """Return the reason in the build area, which is the first one, or else the engine's."""
    # a store that cannot be reached is the failure itself
    with suppress(OSError):
        if reason := area.stop_reason():
            return reason
    if area.is_remote and isinstance(failure, OSError):
        return system_fault(area.out, failure)
    # A full disk may have no room for the reason, and of another process's error only the text is known.
    if number := re.search(r"\[Errno (\d+)\]", f"{failure} {failure.__cause__}"):
        return system_fault(area.out, OSError(int(number[1]), os.strerror(int(number[1]))))
    return str(failure)
