"""Write the shards of a build that are not finished: their plans, the work of an engine, its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tfshards.prep.building.state import system_fault
from tfshards.prep.engines.table import Work
from tfshards.prep.progress.lines import Written, report_line
from tfshards.prep.progress.threads import num_begun
from tfshards.prep.writing.build_folder import FinishedShard, ShardId, ShardPlan, plan_digest
from tfshards.prep.writing.shard import ShardTask, write_shard
from tfshards.schemas import BuildError, Shard, TfshardsError
from tfshards.schemas.errors import counted, size
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.verbs import each, require_space


@dataclass(frozen=True, kw_only=True)
class Writer:
    """What writes the shards of one build.

    Attributes:
        task: what workers need.
        run: does the work of an engine.
        what: what is done, for status lines.
        locations: folders and files that workers read.
        space: returns the bytes that shards of a size take; None if they may be far smaller than the source.
    """

    task: ShardTask
    run: Callable[[Work], None]
    what: str = "build"
    locations: tuple[AnyPath, ...] = ()
    space: Callable[[Written], int] | None = None

    def begin(self, plans: Iterable[ShardPlan], *, is_balancing: bool = False) -> dict[ShardId, Written]:
        """Write the plans of all shards; return the shards that are not finished, with their sizes.

        Raises:
            InputError: the file system cannot hold these shards.
        """
        folder = self.task.folder
        folder.open()

        def write(plan: ShardPlan) -> tuple[ShardId, tuple[str, Written]]:
            folder.write_plan(plan)
            return plan.shard, (plan_digest(plan.text), plan.size)

        planned = dict(each(folder.root, write, plans))
        # without the rejected rows, a shard of the first plans may equal one of the final plans
        found = {
            shard: done
            for shard, done in folder.finished(planned).items()
            if planned[shard][0] in (done.plan, done.left)
        }
        are_intact = folder.intact(found.values())
        kept = {shard for shard, is_intact in zip(found, are_intact, strict=True) if is_intact}
        missing = {shard: number for shard, (_, number) in planned.items() if shard not in kept}
        of = counted(len(planned), "shard")
        if is_balancing:
            report_line(f"balancing after rejects: {len(missing)} of {of} to rewrite")
        elif kept:
            report_line(f"resuming the {self.what}: {len(kept)} of {of} finished")
        elif planned:
            examples, num_bytes = _total(missing.values())
            report_line(f"starting {self.what}: {counted(examples, 'example')}, {size(num_bytes)}, {of}")
        if self.space:
            require_space(folder.dataset, self.space(_total(missing.values())), "the dataset")
        # their records may be there, but their files may be damaged
        folder.forget(missing)
        return missing

    def write(self, missing: Mapping[ShardId, Written]) -> None:
        """Write the shards that ``begin`` has returned."""
        if not missing:
            return
        folder = self.task.folder
        work = Work(
            function=partial(write_shard, self.task),
            items=[*missing],
            label=self.task.name,
            size=_total(missing.values()),
            folder=folder.work,
            sources=self.locations,
            measure=lambda: (
                sum(missing[shard].num_examples for shard in folder.recorded(missing))
                + num_begun(folder.work)
            ),
        )
        run_work(self.run, work, folder.dataset)

    def finished(self, shards: Iterable[ShardId]) -> dict[ShardId, FinishedShard]:
        """Return the records of shards, all of which have been written since ``begin``."""
        shards = [*shards]
        found = self.task.folder.finished(shards)
        for shard in shards:
            if shard not in found:
                raise unfinished(shard.split, shard.shard_index)
        return found

    def repair(self, plans: Iterable[ShardPlan], damaged: Mapping[str, Shard]) -> None:
        """Write damaged shards again, given by their names with the entries that they have in a manifest."""
        task = replace(self.task, expected=damaged)
        writer = replace(self, what="repair", task=task, space=None)
        writer.write(writer.begin(plan for plan in plans if self.task.shard_name(plan.shard) in damaged))


def unfinished(split: str, index: int) -> BuildError:
    """Return the error for a shard that an engine should have written."""
    return BuildError(f"the pipeline ended without shard {index} of split {split!r}; run it again to resume")


def run_work(run: Callable[[Work], None], work: Work, output: AnyPath) -> None:
    """Do the work of an engine; a failure other than of tfshards is a BuildError that names the output."""
    try:
        run(work)
    except TfshardsError:
        # its code says what happened
        raise
    except OSError as failure:
        raise BuildError(system_fault(output, failure)) from failure
    except Exception as failure:
        raise BuildError(str(failure) or type(failure).__name__) from failure


def _total(sizes: Iterable[Written]) -> Written:
    numbers = [*sizes]
    return Written(sum(size.num_examples for size in numbers), sum(size.num_bytes for size in numbers))
