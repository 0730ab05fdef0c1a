"""From a source to a committed dataset: the whole story."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tfshards.prep.area import AREA_NAME, BuildArea, Done, Reject, ShardId
from tfshards.prep.commit import commit, finish, forget_generations, label_counts, rejects_text, totals
from tfshards.prep.duplicates import check_comparable
from tfshards.prep.files import bytes_digest, require_space
from tfshards.prep.forecast import Forecast, forecast
from tfshards.prep.options import Options
from tfshards.prep.output import check_output, claimed, committed, dataset_name, output_folder
from tfshards.prep.pipeline import check_beam_args
from tfshards.prep.progress import Talk, to_stderr
from tfshards.prep.rejects import Layouts, check_rejects, final_layouts, repeated_inputs
from tfshards.prep.restart import give_up_others, note_build
from tfshards.prep.retry import Retried, dataset_to_retry, link_unchanged, retry
from tfshards.prep.run import Run
from tfshards.prep.sources.listing import Reader, Source
from tfshards.schemas import MANIFEST_NAME, InputError, Manifest, OptionsError, Split
from tfshards.schemas.sizes import size

# A dataset that is larger than its source by this factor calls for an explanation.
_MUCH_LARGER = 1.5
# What a record holds beside the source's bytes: frame, tags, names, label.
_RECORD_OVERHEAD = 96


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
    with staged(source, folder) as reader:
        name = dataset_name(folder, options)
        forecast_of = partial(forecast, reader, name, shards, seed, options)
        plan = forecast_of()
        for warning in plan.warnings:
            talk(f"warning: {warning}")
        area = BuildArea(folder, plan.build_id, secrets.token_hex(4))
        if retry_rejected:
            current: Manifest | None = dataset_to_retry(folder)
        else:
            current = committed(folder, plan.build_id, plan.options, overwrite=overwrite)
        if current and current.build_id == plan.build_id:
            clear(area, plan, name, current, talk)
            finish_up(current, area, talk)
            talk(f"{folder} is up to date")
            return current
        compares = options.duplicates != "keep"
        if compares:
            check_comparable(plan.listing.schema)
        run = Run(reader, plan, area, name, tuple(beam_args), talk, compares, options.compression)
        if retry_rejected and current:
            retried = retry(reader, plan, current, area, options, forecast_of)
            clear(area, plan, name, current, talk)
            result = _take_in_mended(run, retried, options)
        else:
            clear(area, plan, name, current, talk)
            result = write_all(run, options)
        manifest = manifest_of(run, result)
        commit(manifest, result.rejects, area)
        finish_up(manifest, area, talk)
        _say_if_much_larger(manifest, plan, talk)
    return manifest


@dataclass(frozen=True)
class Result:
    """What a build has written.

    Attributes:
        layouts: the final ones.
        done: what became of each shard.
        rejects: the inputs that stand in none.
        conversions: what was done to the images that do, and to how many.
    """

    layouts: Layouts
    done: Mapping[ShardId, Done]
    rejects: list[Reject]
    conversions: Mapping[str, int]


def write_all(run: Run, options: Options, *, may_be_empty: bool = False) -> Result:
    """Write every shard, and again those from which rejects have to be balanced away.

    ``may_be_empty``: see ``final_layouts``.
    """
    plan = run.plan
    _require_space(run.area, plan)
    note_build(run.area, plan, run.name)
    first = run.write("first", plan.layouts)
    rejects = [reject for done in first.values() for reject in done.rejected]
    check_rejects(rejects, plan, options, run.area)
    rejects += repeated_inputs(plan, first, options, run.talk)
    layouts = final_layouts(plan, rejects, options, may_be_empty=may_be_empty)
    done = run.write("final", layouts) if rejects else first
    conversions = sum((Counter(shard.conversions) for shard in done.values()), Counter[str]())
    return Result(layouts, done, rejects, conversions)


def _take_in_mended(run: Run, retried: Retried, options: Options) -> Result:
    """Write the shards that change when mended files are taken in; the others are the dataset's own."""
    check_rejects(retried.rejects, run.plan, options, run.area)
    layouts = final_layouts(run.plan, retried.rejects, options)
    note_build(run.area, run.plan, run.name)
    linked = link_unchanged(retried, layouts, run.plan, run.area, run.name)
    _require_space(run.area, run.plan)
    rejected = retried.before.totals.rejected
    run.talk(f"{rejected - len(retried.rejects)} of {rejected} rejected inputs can be taken in now")
    return Result(layouts, run.write("final", layouts, linked), retried.rejects, retried.conversions)


def clear(area: BuildArea, plan: Forecast, name: str, current: Manifest | None, talk: Talk) -> None:
    """Take away what belongs neither to this build nor to the dataset that is there."""
    if current is None and (area.out / MANIFEST_NAME).exists():
        # It cannot be read, since it is damaged or of a later release: what it names is not known.
        return
    for line in give_up_others(area, plan, name, current):
        talk(line)
    if current is None or current.build_id != plan.build_id:
        forget_generations(area.out, {plan.build_id}, current)


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
            "give --overwrite instead of it"
        )


def _require_space(area: BuildArea, plan: Forecast) -> None:
    """Raise InputError if the output's file system cannot hold what is still to be written."""
    needed = int(plan.listing.sizes.sum()) + _RECORD_OVERHEAD * plan.listing.num_examples
    there = sum(path.stat().st_size for path in area.out.glob(f"*-{area.build_id}.tfrecord-*"))
    require_space(area.out, max(0, needed - there), "the dataset")


def finish_up(manifest: Manifest, area: BuildArea, talk: Talk) -> None:
    """Bring all in line with the committed manifest, and say which tool cannot open the dataset."""
    for problem in finish(manifest, area):
        talk(f"warning: TensorFlow Datasets will not open this dataset: {problem}")


@contextmanager
def staged(source: Source, out: Path) -> Iterator[Reader]:
    """Give a reader of ``source``, and keep other builds away from ``out`` meanwhile.

    At the end, take away the reader's copies, and the output's folders if they stay empty.
    """
    with claimed(out):
        try:
            for left in (out / AREA_NAME).glob("staged-*"):
                # by a build that was killed: no other one is running
                shutil.rmtree(left, ignore_errors=True)
            yield source.stage(_new_folder(out))
        finally:
            for left in (out / AREA_NAME).glob("staged-*"):
                shutil.rmtree(left, ignore_errors=True)


def _new_folder(out: Path) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="staged-", dir=out / AREA_NAME))
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}") from None


def manifest_of(run: Run, result: Result) -> Manifest:
    """Return the manifest of what a build has written."""
    plan = run.plan
    splits = {
        split: Split(
            tuple(result.done[ShardId(split, index)].shard for index in range(len(layout))),
            label_counts(plan.listing, layout),
        )
        for split, layout in result.layouts.items()
    }
    counted = totals(plan.listing, result.rejects, result.conversions)
    return Manifest(
        run.name,
        plan.build_id,
        plan.listing.schema,
        splits,
        counted,
        plan.options,
        plan.membership.cuts,
        run.compression,
        bytes_digest(rejects_text(result.rejects)) if result.rejects else "",
    )


def _say_if_much_larger(manifest: Manifest, plan: Forecast, talk: Talk) -> None:
    """Say what makes a dataset smaller that is much larger than its source, since images became PNG."""
    written = sum(split.num_bytes for split in manifest.splits.values())
    source = int(plan.listing.sizes.sum())
    num_converted = manifest.totals.conversions.get("re-encoded", 0)
    was_chosen = {"jpeg_quality", "format"} & set(plan.options) or plan.options.get("channels") == 4
    if num_converted and written > _MUCH_LARGER * source and not was_chosen:
        sizes = f"the dataset takes {size(written)}, its source {size(source)}"
        what = f"{num_converted} images that could not be kept as they are stand in it without loss, as PNG"
        talk(f"{sizes}: {what}; --jpeg-quality 95 makes them JPEG")
