"""From a source to a committed dataset: the whole story."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from tfshards.prep.area import AREA_NAME, BuildArea, Done, Layout, ShardId
from tfshards.prep.commit import commit, finish, forget_generations, label_counts, totals
from tfshards.prep.duplicates import check_comparable
from tfshards.prep.files import file_digest, require_space
from tfshards.prep.forecast import Forecast, forecast
from tfshards.prep.options import Options
from tfshards.prep.output import check_output, committed, dataset_name, locked, output_folder
from tfshards.prep.pipeline import check_beam_args, write_shards
from tfshards.prep.progress import Progress, counted, size
from tfshards.prep.rejects import Layouts, check_rejects, final_layouts, repeated_inputs
from tfshards.prep.retry import dataset_to_retry, link_unchanged, retry
from tfshards.prep.shard import Job
from tfshards.prep.sources.listing import Reader, Source
from tfshards.schemas import (
    BuildError,
    InputError,
    Manifest,
    OptionsError,
    Split,
    Totals,
    index_path,
    one_line,
)

Talk: TypeAlias = Callable[[str], None]

# What a record holds beside the source's bytes: frame, tags, names, label.
_RECORD_OVERHEAD = 96


def to_stderr(line: str) -> None:
    """Print a line to standard error: the default for what a build has to say on its way."""
    print(one_line(line), file=sys.stderr, flush=True)


def build(
    source: Source,
    out: str | os.PathLike[str],
    *,
    shards: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    retry_rejected: bool = False,
    options: Options | None = None,
    beam_args: Sequence[str] = (),
    talk: Talk = to_stderr,
) -> Manifest:
    """Build ``source`` into the directory ``out`` and return the manifest of the dataset that is then there.

    A build that was stopped goes on when it is called again with the same arguments. If ``out`` holds the
    very same build already, nothing is written.

    Args:
        source: what to build, such as ``ImageFolder("photos/")``.
        out: the dataset's directory; made if it is missing.
        shards: number of shards of each split; by default as many as ``options.shard_size`` asks for.
        seed: of the order of examples and of the split by ratios.
        overwrite: replace a dataset of other inputs or options. It stays whole until this one is committed.
        retry_rejected: take into the dataset in ``out`` what it has rejected and what was mended since; all
            other inputs and options must be the same. Only shards that this changes are written.
        options: all else.
        beam_args: Apache Beam's pipeline options, such as ``["--runner=FlinkRunner"]``.
        talk: is given each line about the build's course.

    Raises:
        OptionsError: an argument is wrong by itself.
        InputError: the source or the output does not allow what was asked.
        BuildError: the build ended before its commit; the same call goes on where it ended.
    """
    options = options or Options()
    _check_types(source, shards, seed, options)
    if retry_rejected:
        _check_retry(options, overwrite=overwrite)
    check_beam_args(beam_args)
    folder = output_folder(out)
    check_output(folder, source)
    with _staged(source, folder) as reader:
        name = dataset_name(folder, options)
        forecast_of = partial(forecast, reader, name, shards, seed, options)
        plan = forecast_of()
        for warning in plan.warnings:
            talk(f"warning: {warning}")
        area = BuildArea(folder, plan.build_id)
        if retry_rejected:
            current: Manifest | None = dataset_to_retry(folder)
        else:
            current = committed(folder, plan.build_id, plan.options, overwrite=overwrite)
        if current and current.build_id == plan.build_id:
            _finish(current, area, talk)
            talk(f"{folder} is up to date")
            return current
        compares = options.duplicates != "keep"
        if compares:
            check_comparable(plan.listing.schema)
        run = _Run(reader, plan, area, name, tuple(beam_args), talk, compares)
        if retry_rejected and current:
            retried = retry(reader, plan, current, area, options, forecast_of)
            check_rejects(retried.rejects, plan, options, area)
            layouts, rejects = final_layouts(plan, retried.rejects, options), retried.rejects
            forget_generations(folder, keep={plan.build_id, current.build_id})
            linked = link_unchanged(retried, layouts, plan, area, name)
            _require_space(area, plan)
            mended = current.totals.rejected - len(rejects)
            talk(f"{mended} of {current.totals.rejected} rejected inputs can be taken in now")
            done = run.write("final", layouts, linked)
            conversions = retried.conversions
        else:
            forget_generations(folder, keep={plan.build_id, current.build_id if current else ""})
            _require_space(area, plan)
            first = run.write("first", plan.layouts)
            rejects = [reject for done in first.values() for reject in done.rejected]
            check_rejects(rejects, plan, options, area)
            rejects += repeated_inputs(plan, first, options, talk)
            layouts = final_layouts(plan, rejects, options)
            done = run.write("final", layouts) if rejects else first
            conversions = sum((Counter(shard.conversions) for shard in done.values()), Counter[str]())
        manifest = _manifest(name, plan, layouts, done, totals(plan.listing, rejects, conversions))
        commit(manifest, rejects, area)
        _finish(manifest, area, talk)
    return manifest


def _check_types(source: Source, shards: int | None, seed: int, options: Options) -> None:
    if not hasattr(source, "stage"):
        raise OptionsError(f"source={source!r} must be a source, such as ImageFolder({source!r})")
    if not isinstance(options, Options):
        raise OptionsError(f"options={options!r} must be an Options(...)")
    for name, value in (("shards", shards), ("seed", seed)):
        if not (value is None or isinstance(value, int)) or isinstance(value, bool):
            remedy = "; Options(shards_by_split=...) has those of single splits" if name == "shards" else ""
            raise OptionsError(f"{name}={value!r} must be an integer{remedy}")


def _check_retry(options: Options, *, overwrite: bool) -> None:
    """Raise OptionsError if ``retry_rejected`` excludes another option."""
    if overwrite:
        raise OptionsError("--retry-rejected and --overwrite exclude each other: give one")
    if options.duplicates != "keep":
        raise OptionsError(
            "--retry-rejected reads only what was rejected, so that it cannot compare all inputs: "
            "leave out --duplicates, or give --overwrite instead"
        )


@dataclass(frozen=True)
class _Run:
    """What stays the same for both layouts of a build."""

    reader: Reader
    plan: Forecast
    area: BuildArea
    name: str
    beam_args: tuple[str, ...]
    talk: Talk
    compares: bool

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
        """Whether a shard and its index are still what was written."""
        digests = {done.shard.path: done.shard.digest, index_path(done.shard.path): done.index_digest}
        files = {self.area.out / path: digest for path, digest in digests.items()}
        return all(path.is_file() and file_digest(path) == digest for path, digest in files.items())

    def _say_what_is_there(self, layout: Layout, num_finished: int, num_shards: int) -> None:
        missing, of = num_shards - num_finished, counted(num_shards, "shard")
        if layout == "final":
            self.talk(f"balancing after rejects: {missing} of {of} change")
        elif num_finished:
            self.talk(f"resuming build {self.area.build_id}: {num_finished} of {of} are finished")
        else:
            listing = self.plan.listing
            what = f"{counted(listing.num_examples, 'example')}, {size(int(listing.sizes.sum()))}, {of}"
            self.talk(f"starting build {self.area.build_id}: {what}")


def _require_space(area: BuildArea, plan: Forecast) -> None:
    """Raise InputError if the output's file system cannot hold what is still to be written."""
    needed = int(plan.listing.sizes.sum()) + _RECORD_OVERHEAD * plan.listing.num_examples
    there = sum(path.stat().st_size for path in area.out.glob(f"*-{area.build_id}.tfrecord-*"))
    require_space(area.out, max(0, needed - there), "the dataset")


def _finish(manifest: Manifest, area: BuildArea, talk: Talk) -> None:
    for problem in finish(manifest, area):
        talk(f"warning: TensorFlow Datasets will not open this dataset: {problem}")


@contextmanager
def _staged(source: Source, out: Path) -> Iterator[Reader]:
    """Give a reader of ``source``, and keep other builds away from ``out`` meanwhile.

    At the end, take away the reader's copies, and the output's folders if they stay empty.
    """
    new_folders = [folder for folder in (out, *out.parents) if not folder.exists()]
    staged = None
    try:
        try:
            (out / AREA_NAME).mkdir(parents=True, exist_ok=True)
            staged = Path(tempfile.mkdtemp(prefix="staged-", dir=out / AREA_NAME))
        except OSError as error:
            raise InputError(f"{out}: cannot be written: {error.strerror}") from None
        with locked(out):
            for left in (out / AREA_NAME).glob("staged-*"):
                if left != staged:
                    # by a build that was killed: no other one is running
                    shutil.rmtree(left, ignore_errors=True)
            yield source.stage(staged)
    finally:
        if staged:
            shutil.rmtree(staged, ignore_errors=True)
        for left in (out / AREA_NAME, *new_folders):
            with suppress(OSError):
                left.rmdir()


def _manifest(
    name: str, plan: Forecast, layouts: Layouts, done: Mapping[ShardId, Done], counted: Totals
) -> Manifest:
    splits = {
        split: Split(
            tuple(done[ShardId(split, index)].shard for index in range(len(layout))),
            label_counts(plan.listing, layout),
        )
        for split, layout in layouts.items()
    }
    return Manifest(
        name, plan.build_id, plan.listing.schema, splits, counted, plan.options, plan.membership.cuts
    )
