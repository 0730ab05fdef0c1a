"""Build a dataset from a source: the public function and the steps of a build."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tfshards.prep.building.commit import commit, confirmed, identified, rejects_text, unless_committed
from tfshards.prep.building.contents import changed_inputs, changed_line, forget_changed
from tfshards.prep.building.inputs_file import describe_changes, inputs_of, read_inputs
from tfshards.prep.building.output import (
    claimed,
    dataset_name,
    discard_others,
    output_folder,
    read_damage,
    staged,
)
from tfshards.prep.building.output_state import OutputState, is_up_to_date, wanted_of
from tfshards.prep.building.planned_build import PlannedBuild
from tfshards.prep.building.rejects import (
    check_rejects,
    final_layouts,
    log_rejects,
    loss_warnings,
    repeated_inputs,
)
from tfshards.prep.engines.table import EngineName, find_run, is_distributed
from tfshards.prep.imaging.options import JPEG_QUALITY, ImageOptions
from tfshards.prep.planning.make_plan import check_types, make_plan
from tfshards.prep.planning.options import Options, ShardCounts, Shards
from tfshards.prep.planning.plan import Layouts, Plan, label_counts_of
from tfshards.prep.progress.lines import Log, report_line, report_warning, takes_log, to_stderr
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


@takes_log
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
    counts = ShardCounts.of(shards, options.shard_size)
    run = find_run(engine, beam_args)
    on_workers = is_distributed(engine, beam_args)
    folder = output_folder(dataset, source.location())
    with (
        claimed(folder) as state,
        staged(source, folder, options.group_by, on_workers=on_workers) as reader,
    ):
        name = dataset_name(folder, options)
        plan = make_plan(reader, name, counts, seed, options)
        report_warning(*plan.warnings)
        area = BuildArea(folder, plan.plan_id, plan.options)
        wanted = wanted_of(plan)
        if overwrite:
            state = read_damage(state, wanted)
        changes = partial(changes_of_inputs, state, plan.listing)
        if is_up_to_date(state, wanted, overwrite=overwrite, changes=changes):
            assert state.manifest is not None
            changed = changed_inputs(plan, reader, state.manifest, folder, options, checksum=checksum)
            if not len(changed):
                return confirmed(state, wanted, is_compared=overwrite)
            line = changed_line(plan.listing, changed)
            if not overwrite:
                raise InputError("dataset-of-other-inputs", folder=folder, line=line)
            report_line(line)
        planned = PlannedBuild(
            reader=reader,
            plan=plan,
            area=area,
            options=options,
            run=run,
            source=source.location(),
        )
        if options.duplicates != "keep":
            check_comparable(plan.listing.schema)
        discard_others(state, wanted.plan_id, wanted.options)
        forget_changed(plan, reader, area, options.compression, checksum=checksum)
        return unless_committed(
            lambda: commit_build(planned, write_shards(planned), state), state, area, wanted
        )


def changes_of_inputs(state: OutputState, now: Listing) -> str:
    """Return how the inputs differ from those of the dataset in an output, as far as it is recorded."""
    if state.manifest is None:
        return ""
    recorded = read_inputs(state.folder, state.manifest.build_id)
    return describe_changes(recorded, now) if recorded else ""


@dataclass(frozen=True)
class WrittenShards:
    """The shards of the final layouts, the inputs that are in none, and images by kind of conversion."""

    layouts: Layouts
    shards: Mapping[ShardId, FinishedShard]
    rejects: list[Reject]
    conversions: Mapping[str, int]


def write_shards(build: PlannedBuild, *, may_be_empty: bool = False) -> WrittenShards:
    """Write every shard, and rewrite those that change because of rejected inputs."""
    prepare(build)
    first = build.write("first", build.plan.layouts)
    layouts, rejects = balanced(build, first, may_be_empty=may_be_empty)
    shards = build.write("final", layouts) if rejects else first
    return written_shards(build, layouts, shards, rejects)


def prepare(build: PlannedBuild) -> None:
    """Create the build area, after checking that there is space for the remaining shards."""
    area, listing = build.area, build.plan.listing
    if isinstance(area.shards, Path):
        needed = int(listing.sizes.sum()) + _RECORD_OVERHEAD * listing.num_examples
        written = sum(path.stat().st_size for path in area.shards.glob("*.tfrecord-*"))
        require_space(area.out, max(0, needed - written), "the dataset")
    create(area.root, area.options)


def balanced(
    build: PlannedBuild, first: Mapping[ShardId, FinishedShard], *, may_be_empty: bool = False
) -> tuple[Layouts, list[Reject]]:
    """Return the final layouts, and the inputs that are in none because the first shards rejected them."""
    plan, options = build.plan, build.options
    rejects = [reject for shard in first.values() for reject in shard.rejected]
    check_rejects(rejects, plan, options, build.area)
    rejects += repeated_inputs(plan, first, options)
    return final_layouts(plan, rejects, options, may_be_empty=may_be_empty), rejects


def written_shards(
    build: PlannedBuild, layouts: Layouts, shards: Mapping[ShardId, FinishedShard], rejects: list[Reject]
) -> WrittenShards:
    """Return the shards of the final layouts with what they have in common; log what conversions lost."""
    report_warning(*loss_warnings(shards.values()))
    conversions = sum((Counter(shard.conversions) for shard in shards.values()), Counter[str]())
    return WrittenShards(layouts, shards, rejects, conversions)


def commit_build(build: PlannedBuild, written: WrittenShards, state: OutputState) -> Manifest:
    """Make the written shards the dataset, log what was rejected or has grown, and return the manifest."""
    plan = build.plan
    manifest = identified(manifest_of(build, written))
    manifest = commit(manifest, written.rejects, inputs_of(plan), build.area, state)
    log_rejects(written.rejects, plan.listing.num_examples, manifest, build.area.out)
    _explain_size(manifest, plan)
    return manifest


def manifest_of(build: PlannedBuild, written: WrittenShards) -> Manifest:
    """Return the manifest of a build's shards, with the plan id instead of the build id."""
    plan = build.plan
    counts = label_counts_of(plan.listing, written.layouts)
    splits = {
        split: Split(
            tuple(written.shards[ShardId(split, index)].shard for index in range(len(layout))), counts[split]
        )
        for split, layout in written.layouts.items()
    }
    return Manifest(
        name=plan.name,
        build_id=plan.plan_id,
        schema=plan.listing.schema,
        splits=splits,
        totals=_totals(plan.listing, written.rejects, written.conversions),
        options=plan.options,
        split_cuts=plan.membership.cuts,
        compression=build.options.compression,
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


def _explain_size(manifest: Manifest, plan: Plan) -> None:
    """If images stored as PNG made the dataset much larger than its source, log how to avoid it."""
    written = sum(split.num_bytes for split in manifest.splits.values())
    source = int(plan.listing.sizes.sum())
    num_converted = manifest.totals.conversions.get("re-encoded", 0)
    # with these jpeg_quality= is given already, or is not allowed
    images = ImageOptions(**recorded_values(ImageOptions, plan.options))
    was_chosen = images.jpeg_quality or images.format != "keep" or images.depth != 8 or images.channels == 4
    if num_converted and written > _MUCH_LARGER * source and not was_chosen:
        report_line(
            f"the dataset has {size(written)}, its source {size(source)}: {counted(num_converted, 'image')} "
            f"could not be kept unchanged; jpeg_quality={JPEG_QUALITY}, or less, stores them as JPEG "
            "instead of lossless PNG"
        )
