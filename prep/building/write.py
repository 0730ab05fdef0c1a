"""A job, which is what is to be made the dataset, and how an engine writes its shards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tfshards.prep.building.state import Wanted, system_fault
from tfshards.prep.engines.work import Work, run_on_threads
from tfshards.prep.progress.lines import Amount, report_line
from tfshards.prep.writing.build_folder import (
    BuildFolder,
    FinishedShard,
    Reject,
    ShardId,
    ShardPlan,
    plan_digest,
)
from tfshards.prep.writing.shard import ShardTask, write_shard
from tfshards.schemas import BuildError, Manifest, Shard, TfshardsError
from tfshards.schemas.errors import counted, size
from tfshards.schemas.storage import AnyPath


@dataclass(frozen=True)
class Draft:
    """What a job has written.

    Attributes:
        manifest: the manifest, without build id and views, and without what follows from the lists below.
        finished: records of the shards that were written.
        rejects: the rejected inputs.
        removed: hashes of removed keys, the lines of ``removed.txt``.
        report: is called with the manifest after the commit.
    """

    manifest: Manifest
    finished: Mapping[ShardId, FinishedShard]
    rejects: Sequence[Reject] = ()
    removed: frozenset[bytes] = frozenset()
    report: Callable[[Manifest], None] = lambda manifest: None


@dataclass(frozen=True, kw_only=True)
class Job(ABC):
    """What is to be made the dataset: a build from a source, or one whose source is a dataset.

    Attributes:
        run: does the work of an engine.
        locations: folders and files that workers read.
        trusts_times: whether the stamps of inputs show that they have not changed.
    """

    run: Callable[[Work], None] = run_on_threads
    locations: tuple[AnyPath, ...] = ()
    trusts_times: bool = True

    @property
    @abstractmethod
    def wanted(self) -> Wanted:
        """The build, as an output shows whether it holds it."""

    @property
    def stamps(self) -> str:
        """A hash of the stamps of all inputs; another one means that contents may have changed."""
        return ""

    @property
    def what(self) -> str:
        """What is done, for status lines."""
        return "build"

    @abstractmethod
    def task(self, folder: BuildFolder) -> ShardTask:
        """Return what workers need."""

    @abstractmethod
    def write(self, folder: BuildFolder) -> Draft:
        """Write all shards, except those that are finished."""

    @abstractmethod
    def complete_plans(self, folder: BuildFolder, manifest: Manifest) -> Iterable[ShardPlan]:
        """Return the plans of all shards of a complete build."""

    def repair(self, folder: BuildFolder, manifest: Manifest, damaged: Mapping[str, Shard]) -> None:
        """Write damaged shards of a complete build again, given by their names with the bytes that they had.

        Raises:
            InputError: the inputs give other bytes now.
        """
        task = replace(self.task(folder), expected=damaged)
        plans = self.complete_plans(folder, manifest)
        chosen = [plan for plan in plans if task.shard_name(plan.shard) in damaged]
        self.write_missing(task, self.missing(task, chosen, what="repair"))

    def missing(
        self,
        task: ShardTask,
        plans: Iterable[ShardPlan],
        *,
        what: str = "",
        space: Callable[[Amount], int] | None = None,
    ) -> dict[ShardId, Amount]:
        """Write the plans of shards; return the shards that are not finished, with their sizes.

        ``space`` returns the bytes that shards of a size take; None if they may be far smaller than the
        source.

        Raises:
            InputError: the file system cannot hold these shards.
        """
        folder, what = task.folder, what or self.what
        folder.open()

        def write(plan: ShardPlan) -> tuple[ShardId, tuple[str, Amount]]:
            folder.write_plan(plan)
            return plan.shard, (plan_digest(plan.text), plan.size)

        planned = dict(folder.root.each(write, plans))
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
        if planned:
            examples, num_bytes = _total(missing.values())
            left = f"{counted(examples, 'example')}, {size(num_bytes)}"
            report_line(f"{what}: {len(missing):,} of {of} to write, {left}")
        if space:
            folder.dataset.require_space(space(_total(missing.values())), "the dataset")
        # their records may be there, but their files may be damaged
        folder.forget(missing)
        return missing

    def write_missing(self, task: ShardTask, missing: Mapping[ShardId, Amount]) -> None:
        """Write the shards that ``missing`` has returned."""
        if not missing:
            return
        folder = task.folder
        work = Work(
            function=partial(write_shard, task),
            items=[*missing],
            label=task.name,
            size=_total(missing.values()),
            folder=folder.work,
            sources=self.locations,
            measure=lambda: sum(missing[shard].num_examples for shard in folder.recorded(missing)),
        )
        run_work(self.run, work, folder.dataset)


def finished_shards(folder: BuildFolder, shards: Sequence[ShardId]) -> dict[ShardId, FinishedShard]:
    """Return the records of shards, all of which an engine should have written."""
    found = folder.finished(shards)
    for shard in shards:
        if shard not in found:
            raise unfinished(shard)
    return found


def unfinished(shard: ShardId) -> BuildError:
    """Return the error for a shard that an engine should have written."""
    where = f"shard {shard.shard_index} of split {shard.split!r}"
    return BuildError(f"the pipeline ended without {where}; run it again to resume")


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


def _total(sizes: Iterable[Amount]) -> Amount:
    numbers = [*sizes]
    return Amount(sum(size.num_examples for size in numbers), sum(size.num_bytes for size in numbers))
