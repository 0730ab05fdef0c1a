"""Build a dataset from a source: the public function and the steps of a build."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tfshards.prep.building.commit import commit, complete, identified, rejects_text, unless_committed
from tfshards.prep.building.contents import changed_inputs, changed_line, forget_changed
from tfshards.prep.building.decisions import is_up_to_date, up_to_date, wanted_of
from tfshards.prep.building.inputs_file import describe_changes, inputs_of, read_inputs
from tfshards.prep.building.losses import loss_warnings
from tfshards.prep.building.output import (
    claimed,
    dataset_name,
    discard_others,
    output_folder,
    read_damage,
    staged,
)
from tfshards.prep.building.output_state import OutputState
from tfshards.prep.building.planned_build import LayoutWriter, PlannedBuild
from tfshards.prep.building.rejects import check_rejects, final_layouts, log_rejects, repeated_inputs
from tfshards.prep.engines.table import EngineName, find_engine
from tfshards.prep.imaging.options import JPEG_QUALITY, ImageOptions
from tfshards.prep.planning.make_plan import check_types, make_plan
from tfshards.prep.planning.options import Options, ShardCounts, Shards
from tfshards.prep.planning.plan import Layouts, Plan, label_counts
from tfshards.prep.progress.lines import Log, as_warning, to_stderr
from tfshards.prep.records.values import check_comparable
from tfshards.prep.sources.base import Listing, Source
from tfshards.prep.writing.area import BuildArea, FinishedShard, Reject, ShardId
from tfshards.schemas import InputError, Manifest, Split, Totals
from tfshards.schemas.build_area import create
from tfshards.schemas.errors import counted
from tfshards.schemas.files import bytes_digest, require_space
from tfshards.schemas.option import recorded_values
from tfshards.schemas.sizes import size

# If images make a dataset larger than its source by this factor, the reason is logged.
_MUCH_LARGER = 1.5
# Bytes of a record in addition to those of its source: frame, tags, names, label.
_RECORD_OVERHEAD = 96


def build(
    source: Source,
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    seed: int = 0,
    overwrite: bool = False,
    options: Options | None = None,
    engine: EngineName | None = None,
    checksum: bool = False,
    beam_args: Sequence[str] = (),
    log: Log = to_stderr,
) -> Manifest:
    """Build a dataset from a source and return its manifest.

    An interrupted build resumes when the call is repeated. If the folder already holds this build, nothing is
    written.

    Args:
        source: inputs of the build, such as ``ImageFolder("photos/")``.
        dataset: folder of the dataset, or its URL in an object store; created if it does not exist.
        shards: number of shards of every split, or a dict of them by split; by default as many as
            ``options.shard_size`` gives.
        seed: random seed for the order of examples and for splits by ratio.
        overwrite: replace a dataset with other inputs or options; it stays complete until the commit.
        options: all other options.
        checksum: compare the contents of all inputs with what an earlier call wrote, not only of those with
            another modification time.
        engine: engine that writes the shards: ``"local"``, all cores of this machine, or ``"beam"``, Apache
            Beam. By default Beam if ``beam_args`` are given, and local otherwise.
        beam_args: Apache Beam's pipeline options, such as ``["--runner=FlinkRunner"]``.
        log: receives status lines.

    Raises:
        OptionsError: an argument is not valid.
        InputError: the source or the folder does not allow the build.
        BuildError: the build ended before its commit; the same call resumes it.
    """
    options = Options() if options is None else options
    check_types(source, seed, options)
    counts = ShardCounts.of(shards)
    found = find_engine(engine, beam_args)
    folder = output_folder(dataset, source.location())
    with claimed(folder) as state, staged(source, folder) as reader:
        name = dataset_name(folder, options)
        plan = make_plan(reader, name, counts, seed, options)
        for warning in plan.warnings:
            log(as_warning(warning))
        for note in plan.notes:
            log(note)
        area = BuildArea(folder, plan.plan_id, plan.options)
        wanted = wanted_of(plan)
        if overwrite:
            state = read_damage(state, wanted, log)
        changes = partial(changes_of_inputs, state, plan.listing)
        if is_up_to_date(state, wanted, overwrite=overwrite, changes=changes):
            assert state.manifest is not None
            changed = changed_inputs(plan, reader, state.manifest, folder, options, log, checksum=checksum)
            if not len(changed):
                discard_others(state, plan.plan_id, plan.options, log)
                complete(state.manifest, folder, log)
                log(up_to_date(folder, is_compared=overwrite))
                return state.manifest
            line = changed_line(plan.listing, changed)
            if not overwrite:
                raise InputError("dataset-of-other-inputs", folder=folder, line=line)
            log(line)
        writer = LayoutWriter(
            reader=reader,
            plan=plan,
            area=area,
            name=name,
            engine=found,
            beam_args=tuple(beam_args),
            log=log,
            finds_duplicates=options.duplicates != "keep",
            compression=options.compression,
            source=source.location(),
        )
        if writer.finds_duplicates:
            check_comparable(plan.listing.schema)
        discard_others(state, plan.plan_id, plan.options, log)
        forget_changed(plan, reader, area, options.compression, log, checksum=checksum)
        return unless_committed(
            lambda: commit_build(writer, write_shards(writer, options), state), state, area, wanted, log
        )


def changes_of_inputs(state: OutputState, now: Listing) -> str:
    """Return how the inputs differ from those of the dataset in an output, as far as it is recorded."""
    if state.manifest is None:
        return ""
    recorded = read_inputs(state.folder, state.manifest.build_id)
    return describe_changes(recorded, now, state.manifest) if recorded else ""


@dataclass(frozen=True)
class WrittenShards:
    """The shards that a build has written.

    Attributes:
        layouts: the final layouts.
        shards: all shards of these layouts.
        rejects: the inputs that are not in any shard.
        conversions: number of converted images by kind of conversion.
    """

    layouts: Layouts
    shards: Mapping[ShardId, FinishedShard]
    rejects: list[Reject]
    conversions: Mapping[str, int]


def write_shards(writer: LayoutWriter, options: Options, *, may_be_empty: bool = False) -> WrittenShards:
    """Write every shard, and rewrite those that change because of rejected inputs.

    See ``final_layouts`` for ``may_be_empty``.
    """
    prepare(writer)
    first = writer.write("first", writer.plan.layouts)
    layouts, rejects = balanced(writer, first, options, may_be_empty=may_be_empty)
    shards = writer.write("final", layouts) if rejects else first
    return written_shards(writer, layouts, shards, rejects)


def prepare(build: PlannedBuild) -> None:
    """Check that there is space for the shards of a build, and create its build area.

    Raises:
        InputError: there is too little space.
    """
    _require_space(build.area, build.plan)
    create(build.area.root, build.area.options)


def balanced(
    build: PlannedBuild,
    first: Mapping[ShardId, FinishedShard],
    options: Options,
    *,
    may_be_empty: bool = False,
) -> tuple[Layouts, list[Reject]]:
    """Return the final layouts, and the inputs that are not in them because the first shards rejected them.

    Raises:
        BuildError: more inputs are rejected than the options allow.
    """
    rejects = [reject for shard in first.values() for reject in shard.rejected]
    # only appended examples may leave a split without shards
    check_rejects(rejects, build.plan, options, build.area, is_append=may_be_empty)
    rejects += repeated_inputs(build.plan, first, options, build.log)
    return final_layouts(build.plan, rejects, options, may_be_empty=may_be_empty), rejects


def written_shards(
    build: PlannedBuild, layouts: Layouts, shards: Mapping[ShardId, FinishedShard], rejects: list[Reject]
) -> WrittenShards:
    """Return the shards of the final layouts with what they have in common; log what conversions lost."""
    for warning in loss_warnings(shards.values()):
        build.log(as_warning(warning))
    conversions = sum((Counter(shard.conversions) for shard in shards.values()), Counter[str]())
    return WrittenShards(layouts, shards, rejects, conversions)


def commit_build(build: PlannedBuild, written: WrittenShards, state: OutputState) -> Manifest:
    """Make the written shards the dataset, log what was rejected or has grown, and return the manifest.

    Args:
        build: the build.
        written: its shards.
        state: the output before the build.
    """
    plan, folder = build.plan, build.area.out
    manifest = identified(manifest_of(build, written))
    manifest = commit(manifest, written.rejects, inputs_of(plan), build.area, state, build.log)
    log_rejects(written.rejects, plan.listing.num_examples, manifest, folder, build.log)
    _explain_size(manifest, plan, build.log)
    return manifest


def manifest_of(build: PlannedBuild, written: WrittenShards) -> Manifest:
    """Return the manifest of a build's shards, with the plan id instead of the build id."""
    plan = build.plan
    splits = {
        split: Split(
            tuple(written.shards[ShardId(split, index)].shard for index in range(len(layout))),
            label_counts(plan.listing, layout),
        )
        for split, layout in written.layouts.items()
    }
    return Manifest(
        name=build.name,
        build_id=plan.plan_id,
        schema=plan.listing.schema,
        splits=splits,
        totals=_totals(plan.listing, written.rejects, written.conversions),
        options=plan.options,
        split_cuts=plan.membership.cuts,
        compression=build.compression,
        rejects_digest=bytes_digest(rejects_text(written.rejects)) if written.rejects else "",
        inputs_digest=plan.inputs_digest,
    )


def _totals(listing: Listing, rejects: Sequence[Reject], conversions: Mapping[str, int]) -> Totals:
    skipped = sum(listing.skipped.values())
    return Totals(
        entries=listing.num_entries,
        accepted=listing.num_examples - len(rejects),
        rejected=len(rejects),
        skipped=skipped,
        reasons={
            "rejected": dict(sorted(Counter(reject.reason for reject in rejects).items())),
            "skipped": dict(listing.skipped),
        },
        conversions=dict(sorted(conversions.items())),
    )


def _require_space(area: BuildArea, plan: Plan) -> None:
    """Raise InputError if the output's file system has too little space for the remaining shards."""
    if not isinstance(area.shards, Path):
        return
    needed = int(plan.listing.sizes.sum()) + _RECORD_OVERHEAD * plan.listing.num_examples
    written = sum(path.stat().st_size for path in area.shards.glob("*.tfrecord-*"))
    require_space(area.out, max(0, needed - written), "the dataset")


def _explain_size(manifest: Manifest, plan: Plan, log: Log) -> None:
    """If re-encoded images made the dataset much larger than its source, log how to avoid it."""
    written = sum(split.num_bytes for split in manifest.splits.values())
    source = int(plan.listing.sizes.sum())
    conversions = manifest.totals.conversions
    num_converted = conversions.get("re-encoded", 0)
    # with these jpeg_quality= is given already, or is not allowed
    images = ImageOptions(**recorded_values(ImageOptions, plan.options))
    was_chosen = images.jpeg_quality or images.format != "keep" or images.depth != 8 or images.channels == 4
    if not num_converted or written <= _MUCH_LARGER * source or was_chosen:
        return
    count = counted(num_converted, "image")
    were = "was" if num_converted == 1 else "were"
    if conversions.get("resized"):
        how = (
            f"{count} could not be kept unchanged: resized JPEGs were stored as JPEG of quality "
            f"{JPEG_QUALITY}, others losslessly as PNG; a lower quality, such as jpeg_quality=85, stores all "
            "of them as JPEG"
        )
    else:
        how = (
            f"{count} could not be kept unchanged and {were} stored losslessly as PNG; "
            f"jpeg_quality={JPEG_QUALITY} stores them as JPEG"
        )
    log(f"the dataset has {size(written)}, its source {size(source)}: {how}")
