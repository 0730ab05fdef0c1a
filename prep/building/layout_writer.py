"""Write the shards of a layout that are not finished, with an engine and through the build area."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tfshards.prep.engines.job import cancel_lost_job
from tfshards.prep.engines.table import Engine, Work
from tfshards.prep.planning.plan import Layouts, Plan
from tfshards.prep.progress.lines import Log, Progress, Written, counted
from tfshards.prep.sources.base import Reader
from tfshards.prep.writing.area import BuildArea, FinishedShard, Phase, ShardId
from tfshards.prep.writing.shard import ShardTask, write_shard
from tfshards.prep.writing.tally import AreaMeter
from tfshards.schemas import BuildError
from tfshards.schemas.files import file_digest, system_fault
from tfshards.schemas.manifest import Compression
from tfshards.schemas.sizes import size


@dataclass(frozen=True, kw_only=True)
class LayoutWriter:
    """A writer of the first and the final layout of a build.

    Attributes:
        reader: reads the source.
        plan: the plan of the build.
        area: holds the plan of each shard, and the finished shards.
        name: name of the dataset.
        engine: engine that writes the shards.
        beam_args: pipeline options for Apache Beam.
        log: receives status lines.
        finds_duplicates: whether the contents of examples are compared.
        compression: compression of the shards.
        source: folder or file of the inputs, if there is one.
    """

    reader: Reader
    plan: Plan
    area: BuildArea
    name: str
    engine: Engine
    beam_args: tuple[str, ...]
    log: Log
    finds_duplicates: bool
    compression: Compression
    source: Path | None

    def write(self, phase: Phase, layouts: Layouts) -> dict[ShardId, FinishedShard]:
        """Write the shards of these layouts that are not finished; return all of their shards.

        Raises:
            BuildError: a shard could not be written; the finished ones stay in the build area.
        """
        cancel_lost_job(self.area.job_path, self.log)
        self.area.open()
        digests = {
            ShardId(split, index): self.area.write_plan(
                phase, ShardId(split, index), self.plan.listing.columns(numbers)
            )
            for split, shards in layouts.items()
            for index, numbers in enumerate(shards)
        }
        finished = self._finished(phase, digests)
        missing = [shard for shard in digests if shard not in finished]
        self._log_start(phase, len(finished), len(digests))
        for shard in missing:
            # its record may be there, but its file may be damaged
            self.area.forget(phase, shard)
        if missing:
            num_examples = sum(len(layouts[split][index]) for split, index in missing)
            progress = Progress(self.name, num_examples)
            task = ShardTask(
                area=self.area,
                reader=self.reader,
                schema=self.plan.listing.schema,
                phase=phase,
                name=self.name,
                num_shards={split: len(shards) for split, shards in layouts.items()},
                reporter=progress.reporter,
                finds_duplicates=self.finds_duplicates and phase == "first",
                compression=self.compression,
            )
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
        written = {shard: self.area.read_finished(phase, shard) for shard in missing}
        lost = [shard for shard, found in written.items() if found is None]
        if lost:
            raise BuildError(
                f"the pipeline ended without shard {lost[0].shard_index} of split {lost[0].split!r}"
            )
        together = finished | {shard: found for shard, found in written.items() if found}
        return {shard: together[shard] for shard in digests}

    def _num_bytes(self, layouts: Layouts, shards: Sequence[ShardId]) -> int:
        sizes = self.plan.listing.sizes
        return sum(int(sizes[layouts[split][index]].sum()) for split, index in shards)

    def _run(self, work: Work) -> None:
        try:
            self.engine.run(work, self.beam_args)
        except Exception as failure:
            raise BuildError(_reason(self.area, failure)) from failure

    def _finished(self, phase: Phase, digests: Mapping[ShardId, str]) -> dict[ShardId, FinishedShard]:
        """Return the shards of an earlier attempt, or of the first layout, that need not be rewritten."""
        with ThreadPoolExecutor() as pool:
            found = pool.map(lambda shard: self._finished_one(phase, shard, digests[shard]), digests)
            return {shard: one for shard, one in zip(digests, found, strict=True) if one}

    def _finished_one(self, phase: Phase, shard: ShardId, digest: str) -> FinishedShard | None:
        first, final = (self.area.read_finished(of, shard) for of in ("first", "final"))
        if phase == "first" and first and final:
            # The file may already hold the final layout; of the first one only the rejects are needed.
            return first
        for found in (final, first) if phase == "final" else (first,):
            # Without the rejected rows, the shard of the first layout may equal that of the final one.
            if found and (phase == "first" or found.rows_digest == digest) and self._is_intact(found):
                return found
        return None

    def _is_intact(self, found: FinishedShard) -> bool:
        """Return whether a shard, its index and its labels still have their recorded digests."""
        digests = {found.shard.path: found.shard.digest, **found.shard.companion_digests}
        files = {self.area.shards / path: digest for path, digest in digests.items()}
        return all(path.is_file() and file_digest(path) == digest for path, digest in files.items())

    def _log_start(self, phase: Phase, num_finished: int, num_shards: int) -> None:
        missing, of = num_shards - num_finished, counted(num_shards, "shard")
        if phase == "final":
            self.log(f"balancing after rejects: {missing} of {of} to rewrite")
        elif num_finished:
            self.log(f"resuming the build: {num_finished} of {of} finished")
        else:
            listing = self.plan.listing
            what = f"{counted(listing.num_examples, 'example')}, {size(int(listing.sizes.sum()))}, {of}"
            self.log(f"starting build: {what}")


def _reason(area: BuildArea, failure: Exception) -> str:
    """Return the reason in the build area, which is the first one, or else that of the engine."""
    with suppress(FileNotFoundError):
        reason = area.stop_path.read_text(encoding="utf-8", errors="surrogateescape")
        if reason:
            return reason
    # A full disk may have no room for the reason, and of another process's error only the text is known.
    number = re.search(r"\[Errno (\d+)\]", f"{failure} {failure.__cause__}")
    if number:
        return system_fault(area.out, OSError(int(number[1]), os.strerror(int(number[1]))))
    return str(failure)
