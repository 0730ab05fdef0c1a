"""Writing the shards of a layout that are not there yet, by way of the build area and the Beam pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tfshards.prep.area import BuildArea, Done, Layout, ShardId
from tfshards.prep.files import file_digest
from tfshards.prep.forecast import Forecast
from tfshards.prep.pipeline import write_shards
from tfshards.prep.progress import Progress, Talk, counted
from tfshards.prep.rejects import Layouts
from tfshards.prep.shard import Job
from tfshards.prep.sources.listing import Reader
from tfshards.schemas import BuildError
from tfshards.schemas.manifest import Compression
from tfshards.schemas.sizes import size


@dataclass(frozen=True)
class Run:
    """What stays the same for both layouts of a build.

    Attributes:
        reader: of the source.
        plan: what is built.
        area: where the plan and what is finished are kept.
        name: of the dataset.
        beam_args: Apache Beam's pipeline options.
        talk: is given each line about the build's course.
        compares: whether the contents of examples are compared, to find duplicates.
        compression: of the shards.
    """

    reader: Reader
    plan: Forecast
    area: BuildArea
    name: str
    beam_args: tuple[str, ...]
    talk: Talk
    compares: bool
    compression: Compression

    def write(
        self, layout: Layout, layouts: Layouts, linked: Mapping[ShardId, Done] | None = None
    ) -> dict[ShardId, Done]:
        """Write the shards of a layout that are not there yet; return what became of each.

        ``linked`` are shards that were taken over from another build.
        """
        self.area.open()
        digests = {
            ShardId(split, index): self.area.write_plan(
                layout, ShardId(split, index), self.plan.listing.rows(numbers)
            )
            for split, shards in layouts.items()
            for index, numbers in enumerate(shards)
        }
        finished = {**self._finished(layout, digests), **(linked or {})}
        missing = [shard for shard in digests if shard not in finished]
        self._say_what_is_there(layout, len(finished), len(digests))
        if missing:
            num_examples = sum(len(layouts[split][index]) for split, index in missing)
            progress = Progress(self.name, num_examples)
            job = Job(
                self.area,
                self.reader,
                self.plan.listing.schema,
                layout,
                self.name,
                {split: len(shards) for split, shards in layouts.items()},
                progress.reporter,
                self.compares and layout == "first",
                self.compression,
            )
            write_shards(job, missing, self.beam_args, progress)
        written = {shard: self.area.read_done(layout, shard) for shard in missing}
        lost = [shard for shard, done in written.items() if done is None]
        if lost:
            raise BuildError(
                f"the pipeline ended without shard {lost[0].shard_index} of split {lost[0].split!r}"
            )
        together = finished | {shard: done for shard, done in written.items() if done}
        return {shard: together[shard] for shard in digests}

    def _finished(self, layout: Layout, digests: Mapping[ShardId, str]) -> dict[ShardId, Done]:
        """Return the shards of an earlier attempt, or of the first layout, that can stay as they are."""
        with ThreadPoolExecutor() as pool:
            found = pool.map(lambda shard: self._finished_one(layout, shard, digests[shard]), digests)
            return {shard: done for shard, done in zip(digests, found, strict=True) if done}

    def _finished_one(self, layout: Layout, shard: ShardId, digest: str) -> Done | None:
        first, final = self.area.read_done("first", shard), self.area.read_done("final", shard)
        if layout == "first" and first and final:
            # The file may hold the final layout already. What was rejected is all that is still needed.
            return first
        for done in (final, first) if layout == "final" else (first,):
            # The first layout's rows, less the rejected ones, may be the final ones.
            wanted = done and (layout == "first" or done.rows_digest == digest)
            if done and wanted and self._holds(done):
                return done
        return None

    def _holds(self, done: Done) -> bool:
        """Whether a shard and the files beside it are still what was written."""
        digests = {done.shard.path: done.shard.digest, **done.shard.beside}
        files = {self.area.out / path: digest for path, digest in digests.items()}
        return all(path.is_file() and file_digest(path) == digest for path, digest in files.items())

    def _say_what_is_there(self, layout: Layout, num_finished: int, num_shards: int) -> None:
        missing, of = num_shards - num_finished, counted(num_shards, "shard")
        if layout == "final":
            self.talk(f"balancing after rejects: {missing} of {of} to write again")
        elif num_finished:
            self.talk(f"resuming build {self.area.build_id}: {num_finished} of {of} finished")
        else:
            listing = self.plan.listing
            what = f"{counted(listing.num_examples, 'example')}, {size(int(listing.sizes.sum()))}, {of}"
            self.talk(f"starting build {self.area.build_id}: {what}")
