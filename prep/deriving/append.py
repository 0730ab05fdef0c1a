"""Add new examples to a dataset in new shards; the existing shards stay where they are."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias, cast

from tfshards.prep.building.build import SourceBuild
from tfshards.prep.building.commit import Draft, produce
from tfshards.prep.building.made import made_of
from tfshards.prep.building.output import claimed, output_folder, staged
from tfshards.prep.building.rejects import log_rejects
from tfshards.prep.building.state import Wanted
from tfshards.prep.deriving.derive import with_lists
from tfshards.prep.deriving.joining import joined
from tfshards.prep.deriving.new_inputs import NewInputs, build_by_ratio, find_new_inputs
from tfshards.prep.deriving.stored import Origin, open_origin
from tfshards.prep.engines.table import EngineName, find_run, is_distributed
from tfshards.prep.planning.make_plan import make_plan
from tfshards.prep.planning.options import DEFAULT_MAX_REJECTED, Options, ShardCounts, Shards
from tfshards.prep.progress.lines import Log, report_line, report_warning, takes_log, to_stderr
from tfshards.prep.sources.base import Source
from tfshards.prep.sources.kinds import KINDS, Recorded
from tfshards.prep.writing.build_folder import BuildFolder, Reject
from tfshards.schemas import InputError, Manifest, OptionsError
from tfshards.schemas.digests import bytes_digest
from tfshards.schemas.errors import check_path, counted
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import AnyPath

# A source, or its inputs as they are named on the command line.
Inputs: TypeAlias = "Sequence[str | os.PathLike[str]] | str | os.PathLike[str] | Source"


@takes_log
def append(
    source: Inputs,
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    max_rejected: str | float | Fraction = DEFAULT_MAX_REJECTED,
    follow_links: bool = False,
    new_classes: bool = False,
    engine: EngineName | None = None,
    beam_args: Sequence[str] = (),
    log: Log = to_stderr,
) -> Manifest:
    """Add new examples to a dataset in new shards, with the options of its build.

    An input is new if no example of the dataset has its key. An input that the dataset rejected is new if it
    would not be rejected for the same reason now. New examples are written to new shards; their splits are
    given by the split ratios of the build, or by the source. Existing examples keep their split, shard and
    bytes, even if their inputs are missing or have changed: another class or split is logged, and other
    content is not noticed, which ``build`` with ``overwrite=True`` takes over. Where keys are row numbers,
    all rows of the dataset must be in the source, unchanged.

    An interrupted call resumes when it is repeated.

    Args:
        source: inputs of the dataset with additions, or only new inputs: a folder of images, array arguments,
            or a table and, if its images are in another folder, that folder. The options are those in the
            dataset's manifest; in Python a source with the options of the build may be given as well.
        dataset: folder of the dataset.
        shards: number of new shards of every split, or of single splits by name, such as 64 or val=8; by
            default one per 128 MiB of new inputs.
        max_rejected: largest share of the new inputs that may be rejected, such as 0.01 or 1%; with more the
            call fails.
        follow_links: follow links out of the folder of images, unless the build did, which is recorded.
        new_classes: add classes that the dataset does not have to the end of its class names, sorted.
        engine: engine that writes the shards: "local", all cores of this machine, or "beam", Apache Beam.
        beam_args: Apache Beam's pipeline options, as for ``build``.
        log: receives status lines.

    Returns:
        The new manifest.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the source does not fit the dataset, or nothing determines the splits of new examples.
        FormatError: a file of keys of the dataset is missing or damaged.
        BuildError: appending stopped before its commit. The dataset is unchanged; the same call resumes.
    """
    run, on_workers = find_run(engine, beam_args), is_distributed(engine, beam_args)
    check_path("dataset", dataset)
    origin = open_origin(dataset)
    names = origin.manifest.schema.class_names
    if new_classes and not names:
        raise OptionsError("new-classes-useless")
    given = _source_of(source, origin.manifest, follow_links=follow_links)
    origin.require_keys()
    origin.require_own()
    options = Options(max_rejected=max_rejected, compression=origin.manifest.compression)
    build = build_by_ratio(origin.manifest)
    group_by = build.group_by if build else None
    if names:
        found = _class_names(given) if new_classes else ()
        given = given.with_class_names((*names, *(name for name in found if name not in names)))
    location = given.location()
    folder = output_folder(origin.root, location)
    with claimed(folder) as state, staged(given, folder, group_by, on_workers=on_workers) as reader:
        # read again: the dataset is locked now, so no other process can change it
        origin = open_origin(folder)
        new = find_new_inputs(reader, origin, new_classes=new_classes)
        if not new.listing.num_examples:
            report_line(f"{folder} stays as it is: none of the {counted(new.num_known, 'input')} is new")
            return origin.manifest
        report_warning(*new.listing.warnings)
        report_line(f"{counted(new.listing.num_examples, 'new input')}, {new.num_known:,} known")
        job = Appended(
            plan=make_plan(reader, origin.manifest.name, ShardCounts.of(shards), 0, options, new.listing),
            reader=reader,
            options=options,
            run=run,
            locations=() if location is None else (location,),
            may_be_empty=True,
            origin=origin,
            new=new,
        )
        return produce(job, state, overwrite=True)


def _source_of(given: Inputs, manifest: Manifest, *, follow_links: bool) -> Source:
    """Return the source of new inputs: the given one, or that of paths with the options of the build.

    The dataset may have been resharded or merged since; several builds must have had the same options.
    """
    paths = [given] if isinstance(given, (str, bytes, os.PathLike)) else given
    if not isinstance(paths, Sequence):
        if not hasattr(paths, "stage"):
            raise OptionsError("source-not-paths", given=given)
        if follow_links:
            raise OptionsError("follow-links-of-source")
        return paths
    if not all(isinstance(path, (str, bytes, os.PathLike)) for path in paths):
        raise OptionsError("source-not-paths", given=given)
    if follow_links and not any(feature.is_encoded for feature in manifest.schema.features):
        raise OptionsError("follow-links-useless")
    sources: list[Source] = []
    remedy = "build the new examples as a dataset, and merge the two"
    for build in made_of(manifest).builds():
        if build.source == "examples":
            raise InputError("examples-of-python", manifest=manifest.name)
        if build.source not in KINDS:
            raise InputError("records-no-build", manifest=manifest.name, get=build.source, remedy=remedy)
        recorded = Recorded(manifest.schema, build.options, follow_links)
        kind = KINDS[build.source].source
        sources.append(kind.from_recorded(recorded, [os.fsdecode(path) for path in paths]))
    first, *others = map(vars, sources)
    for other in others:
        if differing := [name for name in first if other.get(name) != first[name]]:
            raise InputError("builds-differ", manifest=manifest.name, differing=differing, remedy=remedy)
    return sources[0]


def _class_names(source: Source) -> Sequence[str]:
    """Return the class names of a source."""
    with tempfile.TemporaryDirectory() as staging:
        return source.stage(Path(staging), preview=True).listing().schema.class_names


@dataclass(frozen=True, kw_only=True)
class Appended(SourceBuild):
    """The build of new inputs, whose shards join those of a dataset.

    Attributes:
        origin: the dataset.
        new: the inputs that the plan is made of, and what is known of the others.
    """

    origin: Origin
    new: NewInputs

    @property
    def wanted(self) -> Wanted:
        """The dataset with the new inputs, as an output shows whether it holds it."""
        before, plan = self.origin.manifest, self.plan
        names = plan.listing.schema.class_names
        entry: dict[str, Json] = {"inputs_digest": plan.inputs_digest, "options": dict(plan.options)}
        if new_classes := names[len(before.schema.class_names) :]:
            entry["new_classes"] = [*new_classes]
        appended = [*cast("Sequence[Json]", before.options.get("appended", ())), entry]
        return Wanted(
            name=before.name,
            schema=replace(before.schema, class_names=names),
            options={**before.options, "appended": appended, "made_by": "append"},
            inputs_digest=bytes_digest(f"{before.to_text()}{plan.inputs_digest}".encode("ascii")),
        )

    def draft(self, folder: BuildFolder) -> Draft:
        """Return the dataset with what was written."""
        before, wanted = self.origin.manifest, self.wanted
        if self.new.num_known:
            # the source is assumed to hold all known inputs, so it skips what the dataset has skipped
            before = replace(before, totals=replace(before.totals, skipped=0, reasons={}))
        draft = super().draft(folder)
        splits, totals = joined([before, draft.manifest], wanted.schema)
        manifest = replace(
            draft.manifest,
            schema=wanted.schema,
            splits=splits,
            totals=totals,
            options=wanted.options,
            split_cuts=self.new.cuts,
            inputs_digest=wanted.inputs_digest,
        )
        all_rejects = [*self.new.rejects, *self.rejects(folder)]
        lists = with_lists(manifest, all_rejects, self.origin.removed())
        return Draft(*lists, draft.finished, draft.report)

    def report(self, manifest: Manifest, rejects: Sequence[Reject], folder: AnyPath) -> None:
        """Log which of the new inputs were rejected."""
        log_rejects(rejects, self.plan.listing.num_examples, manifest, folder)
