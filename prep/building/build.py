"""Build a dataset from a source, or plan it: the public functions and the steps of a build."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tfshards.prep.building.commit import produce
from tfshards.prep.building.output import claimed, dataset_name, output_folder, staged
from tfshards.prep.building.rejects import (
    check_rejects,
    final_layouts,
    log_rejects,
    loss_warnings,
    original_of,
    read_rejects,
    repeated_inputs,
)
from tfshards.prep.building.state import Wanted, check_usable, inspect_output
from tfshards.prep.building.write import Draft, Job, finished_shards, unfinished
from tfshards.prep.engines.work import find_run
from tfshards.prep.imaging.options import recorded_images
from tfshards.prep.planning.make_plan import check_types, make_plan
from tfshards.prep.planning.options import Options, ShardCounts, Shards
from tfshards.prep.planning.plan import Layouts, Plan, label_counts_of
from tfshards.prep.progress.lines import Amount, report_warning
from tfshards.prep.records.values import check_comparable
from tfshards.prep.sources.base import Reader, Source
from tfshards.prep.writing.build_folder import BuildFolder, Reject, ShardId, ShardPlan
from tfshards.prep.writing.shard import EncodedInputs, ShardTask, inputs_plan
from tfshards.schemas import InputError, Manifest, Split, Totals
from tfshards.schemas.errors import check_flags

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
    checksum: bool = False,
    beam_args: Sequence[str] = (),
) -> Manifest:
    """Build a dataset from a source, or resume an interrupted build.

    An interrupted build resumes when the call is repeated. If the folder already holds this build, nothing is
    written, except the files that are damaged.

    Args:
        source: inputs of the build, such as ``ImageFolder("photos/")``.
        dataset: folder of the dataset, or its URL in an object store; created if it does not exist.
        shards: number of shards of every split, or of single splits by name, such as 64 or val=8; by default
            as many as "shard_size" gives.
        seed: random seed for the order of examples and for splits by ratio.
        overwrite: replace a dataset with other inputs or options, which stays complete until the commit; or
            compare all bytes of this build with its digests, and write what is damaged.
        options: all other options.
        checksum: do not trust modification times: write all shards again, also those of an interrupted build,
            and compare them with the dataset.
        beam_args: Apache Beam's pipeline options, such as ``["--runner=FlinkRunner"]``; without any, all
            cores of this machine write the shards.

    Returns:
        The manifest.

    Raises:
        OptionsError: an argument is not valid.
        InputError: the source or the folder does not allow the build.
        BuildError: the build ended before its commit; the same call resumes it.
    """
    check_flags(overwrite=overwrite, checksum=checksum)
    options = Options() if options is None else options
    check_types(source, seed, options)
    counts = ShardCounts.of(shards, options.shard_size)
    run = find_run(beam_args)
    folder = output_folder(dataset, source.location())
    with (
        claimed(folder) as state,
        staged(source, folder, options.group_by, on_workers=bool(beam_args)) as reader,
    ):
        plan = make_plan(reader, dataset_name(folder, options), counts, seed, options)
        report_warning(*plan.warnings)
        job = SourceBuild(
            plan=plan,
            reader=reader,
            options=options,
            run=run,
            trusts_times=not checksum,
            locations=() if (location := source.location()) is None else (location,),
        )
        return produce(job, state, overwrite=overwrite)


def plan(
    source: Source,
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    seed: int = 0,
    options: Options | None = None,
) -> Plan:
    """Show what ``build`` would produce with the same arguments, without decoding images.

    Nothing is written to the folder of the dataset.

    Args:
        source: inputs of the build, such as ``ImageFolder("photos/")``.
        dataset: folder of the dataset.
        shards: number of shards of every split, or of single splits by name, such as 64 or val=8; by default
            as many as "shard_size" gives.
        seed: random seed for the splits by ratio and the order of examples.
        options: all other options.

    Returns:
        The plan. Printed, it is the table that ``tfshards plan`` prints; ``warnings`` are the lines that a
        build would log.

    Raises:
        OptionsError: an argument is not valid.
        InputError: the source or the output does not allow the build.
    """
    options = Options() if options is None else options
    check_types(source, seed, options)
    counts = ShardCounts.of(shards, options.shard_size)
    folder = output_folder(dataset, source.location())
    check_usable(inspect_output(folder))
    reader = source.stage(None, group_by=options.group_by)
    found = make_plan(reader, dataset_name(folder, options), counts, seed, options)
    report_warning(*found.warnings)
    return found


@dataclass(frozen=True, kw_only=True)
class SourceBuild(Job):
    """The build of a plan from the inputs of a source; see ``Job``.

    Attributes:
        may_be_empty: whether a split may have no accepted example; it is left out.
    """

    plan: Plan
    reader: Reader
    options: Options
    may_be_empty: bool = False

    @property
    def wanted(self) -> Wanted:
        """The build, as an output shows whether it holds it."""
        return Wanted(self.plan.name, self.plan.plan_id, self.plan.options)

    @property
    def stamps(self) -> str:
        """Hash of the stamps of all inputs."""
        return hashlib.sha256(self.plan.listing.stamps.astype("<i8").tobytes()).hexdigest()

    def task(self, folder: BuildFolder) -> ShardTask:
        """Return what workers need."""
        schema, options = self.plan.listing.schema, self.options
        source = EncodedInputs(self.reader, schema, options.compression, options.duplicates != "keep")
        num_shards = {split: len(layout) for split, layout in self.plan.layouts.items()}
        return ShardTask(
            folder=folder, source=source, schema=schema, name=self.plan.name, num_shards=num_shards
        )

    def _plans(self, layouts: Layouts) -> Iterator[ShardPlan]:
        """Yield the plans of the shards of layouts."""
        listing = self.plan.listing
        for shard in _shards_of(layouts):
            numbers = layouts[shard.split][shard.shard_index]
            text = inputs_plan(listing.fields_of(numbers))
            yield ShardPlan(shard, text, Amount(len(numbers), int(listing.sizes[numbers].sum())))

    def write(self, folder: BuildFolder) -> Draft:
        """Write every shard, and again those that change because of rejected inputs."""
        task = self.task(folder)
        self.write_missing(task, self.begin(folder))
        self.write_missing(task, self.balance(folder))
        return self.draft(folder)

    def begin(self, folder: BuildFolder) -> dict[ShardId, Amount]:
        """Return the shards of all inputs that are not finished; none if it is known what is rejected."""
        if self.options.duplicates != "keep":
            check_comparable(self.plan.listing.schema)
        if folder.read_rejects(self.stamps) is not None:
            return {}
        # only now: shards that are balanced replace these
        return self.missing(self.task(folder), self._plans(self.plan.layouts), space=self._space())

    def balance(self, folder: BuildFolder) -> dict[ShardId, Amount]:
        """Return the shards of the inputs that are not rejected, except those that are finished."""
        rejects = folder.read_rejects(self.stamps)
        first = {}
        if rejects is None:
            first = finished_shards(folder, _shards_of(self.plan.layouts))
            rejects = [reject for done in first.values() for reject in done.rejected]
        # the limit holds for inputs that cannot be examples, not for duplicates
        unusable = [reject for reject in rejects if original_of(reject) is None]
        check_rejects(unusable, self.plan, self.options, folder)
        if first:
            rejects += repeated_inputs(self.plan, first, self.options)
            folder.write_rejects(self.stamps, rejects)
            if not rejects:
                return {}
        plans = self._plans(self._final_layouts(rejects))
        return self.missing(self.task(folder), plans, what="balance after rejects" if rejects else "")

    def _final_layouts(self, rejects: Sequence[Reject]) -> Layouts:
        return final_layouts(self.plan, rejects, may_be_empty=self.may_be_empty)

    def _space(self) -> Callable[[Amount], int] | None:
        """Return what ``space`` is for ``missing``; None if the shards may be far smaller than the inputs."""
        images = recorded_images(self.plan.options)
        keeps_sizes = images.resize is None and images.format == "keep" and self.options.compression == "none"
        return (lambda size: size.num_bytes + _RECORD_OVERHEAD * size.num_examples) if keeps_sizes else None

    def draft(self, folder: BuildFolder) -> Draft:
        """Return what was written; log what conversions lost."""
        plan, listing, rejects = self.plan, self.plan.listing, folder.read_rejects(self.stamps) or []
        layouts = self._final_layouts(rejects)
        finished = finished_shards(folder, _shards_of(layouts))
        known = {*rejects}
        for shard, done in finished.items():
            if changed := [reject for reject in done.rejected if reject not in known]:
                # it was accepted before, and may be again
                folder.forget([shard])
                raise InputError(
                    f"{changed[0].key}: was accepted, but is {changed[0].reason} now; it changed during the "
                    "build; run the command again",
                    code="file-changed",
                )
            if done.shard.num_examples != len(layouts[shard.split][shard.shard_index]):
                # of a repeated task that began before the shards were balanced
                raise unfinished(shard)
        report_warning(*loss_warnings(finished.values()))
        conversions = sum((Counter(shard.conversions) for shard in finished.values()), Counter[str]())
        counts, skipped = label_counts_of(listing, layouts), sum(listing.skipped.values())
        manifest = Manifest(
            name=plan.name,
            build_id="",
            folder=folder.name,
            schema=listing.schema,
            splits={
                split: Split(
                    tuple(finished[ShardId(split, index)].shard for index in range(len(layout))),
                    counts[split],
                )
                for split, layout in layouts.items()
            },
            totals=Totals(
                entries=0,
                accepted=0,
                skipped=skipped,
                # what was rejected is added with the list of it
                reasons={"rejected": {}, "skipped": dict(listing.skipped)},
                conversions=dict(sorted(conversions.items())),
            ),
            options=plan.options,
            split_cuts=plan.membership.cuts,
            compression=self.options.compression,
            inputs_digest=plan.inputs_digest,
        )
        report = partial(log_rejects, rejects, listing.num_examples, folder.dataset)
        return Draft(manifest, finished, rejects, report=report)

    def complete_plans(self, folder: BuildFolder, manifest: Manifest) -> Iterator[ShardPlan]:
        """Return the plans of all shards of a complete build."""
        return self._plans(self._final_layouts(read_rejects(folder.dataset, manifest)))


def _shards_of(layouts: Layouts) -> list[ShardId]:
    return [ShardId(split, index) for split, layout in layouts.items() for index in range(len(layout))]
