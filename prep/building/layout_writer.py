"""Write the shards of a layout that are not finished, with an engine and through the build area."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tfshards.prep.building.planned_build import PlannedBuild
from tfshards.prep.engines.job import cancel_lost_job
from tfshards.prep.engines.table import Engine, Work
from tfshards.prep.planning.plan import Layouts
from tfshards.prep.progress.lines import Progress, Written
from tfshards.prep.writing.area import BuildArea, FinishedShard, Phase, ShardId
from tfshards.prep.writing.shard import write_shard
from tfshards.prep.writing.tally import AreaMeter
from tfshards.schemas import BuildError
from tfshards.schemas.files import system_fault
from tfshards.schemas.storage import AnyPath


@dataclass(frozen=True, kw_only=True)
class LayoutWriter(PlannedBuild):
    """A writer of the first and the final layout of a build; for further attributes see ``PlannedBuild``.

    Attributes:
        engine: engine that writes the shards.
        beam_args: pipeline options for Apache Beam.
        source: folder or file of the inputs, if there is one.
    """

    engine: Engine
    beam_args: tuple[str, ...]
    source: AnyPath | None

    def write(self, phase: Phase, layouts: Layouts) -> dict[ShardId, FinishedShard]:
        """Write the shards of these layouts that are not finished; return all of their shards.

        Raises:
            BuildError: a shard could not be written; the finished ones stay in the build area.
        """
        cancel_lost_job(self.area.job_path, self.log)
        missing = self.begin(phase, layouts)
        if missing:
            num_examples = sum(len(layouts[split][index]) for split, index in missing)
            progress = Progress(self.name, num_examples)
            task = self.task(phase, layouts, progress.reporter)
            planned = {
                task.shard_path(shard): (shard, len(layouts[shard.split][shard.shard_index]))
                for shard in missing
            }
            self._run(
                Work(
                    partial(write_shard, task),
                    missing,
                    progress,
                    stop=self.area.stop,
                    size=Written(num_examples, self._num_bytes(layouts, missing)),
                    area=self.area,
                    source=self.source,
                    measure=AreaMeter(self.area, phase, planned).measure,
                    log=self.log,
                )
            )
        return self.finished(phase, layouts)

    def _num_bytes(self, layouts: Layouts, shards: list[ShardId]) -> int:
        sizes = self.plan.listing.sizes
        return sum(int(sizes[layouts[split][index]].sum()) for split, index in shards)

    def _run(self, work: Work) -> None:
        try:
            self.engine.run(work, self.beam_args)
        except Exception as failure:
            raise BuildError("build-failed", text=_reason(self.area, failure)) from failure


def _reason(area: BuildArea, failure: Exception) -> str:
    """Return the reason in the build area, which is the first one, or else that of the engine."""
    # a store that cannot be reached is the failure itself
    with suppress(OSError):
        reason = area.stop_reason()
        if reason:
            return reason
    if area.is_remote and isinstance(failure, OSError):
        return system_fault(area.out, failure)
    # A full disk may have no room for the reason, and of another process's error only the text is known.
    number = re.search(r"\[Errno (\d+)\]", f"{failure} {failure.__cause__}")
    if number:
        return system_fault(area.out, OSError(int(number[1]), os.strerror(int(number[1]))))
    return str(failure)
