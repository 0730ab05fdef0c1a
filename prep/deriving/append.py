"""Add new examples to a dataset in new shards; the existing shards stay where they are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias, cast

from tfshards.prep.building.build import SourceBuild
from tfshards.prep.building.commit import produce
from tfshards.prep.building.made import made_of
from tfshards.prep.building.output import claimed, output_folder, staged
from tfshards.prep.building.state import Wanted
from tfshards.prep.building.write import Draft
from tfshards.prep.deriving.merge import joined
from tfshards.prep.deriving.new_inputs import NewInputs, build_by_ratio, find_new_inputs
from tfshards.prep.deriving.stored import Origin, open_origin
from tfshards.prep.engines.table import EngineName, find_run, is_distributed
from tfshards.prep.planning.make_plan import make_plan
from tfshards.prep.planning.options import DEFAULT_MAX_REJECTED, Options, ShardCounts, Shards
from tfshards.prep.planning.plan import plan_id_of
from tfshards.prep.progress.lines import report_line, report_warning
from tfshards.prep.sources.base import Source
from tfshards.prep.sources.kinds import KINDS
from tfshards.prep.writing.build_folder import BuildFolder
from tfshards.schemas import InputError, Manifest, OptionsError, Schema
from tfshards.schemas.digests import bytes_digest
from tfshards.schemas.errors import check_flags, check_path, counted
from tfshards.schemas.json_reader import Json

# A source, or its inputs as they are named on the command line.
Inputs: TypeAlias = "Sequence[str | os.PathLike[str]] | str | os.PathLike[str] | Source"


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
) -> Manifest:
    """Add new examples to a dataset in new shards, with the options of its build.

    An input is new if no example of the dataset has its key. An input that the dataset rejected is new if it
    would not be rejected for the same reason now. New examples are written to new shards; their splits are
    given by the split ratios of the build, or by the source. Existing examples keep their class, split,
    shard and bytes, even if their inputs are missing or have changed, which is not noticed: ``build`` with
    ``overwrite=True`` takes that over. Where keys are row numbers, all rows of the dataset must be in the
    source, unchanged.

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

    Returns:
        The new manifest.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the source does not fit the dataset, or nothing determines the splits of new examples.
        FormatError: a file of keys of the dataset is missing or damaged.
        BuildError: appending stopped before its commit. The dataset is unchanged; the same call resumes.
    """
    check_flags(follow_links=follow_links, new_classes=new_classes)
    run, on_workers = find_run(engine, beam_args), is_distributed(engine, beam_args)
    check_path("dataset", dataset)
    origin = open_origin(dataset)
    names = origin.manifest.schema.class_names
    if new_classes and not names:
        raise OptionsError("new_classes=True has no effect: the classes have no names; leave it out")
    given = _source_of(source, origin.manifest, follow_links=follow_links)
    origin.require_keys()
    origin.require_own()
    options = Options(max_rejected=max_rejected, compression=origin.manifest.compression)
    build = build_by_ratio(origin.manifest)
    group_by = build.group_by if build else None
    are_paths = not hasattr(source, "stage")
    if names:
        with _advice_for_paths(is_given=are_paths):
            found = _class_names(given) if new_classes else ()
        given = given.with_class_names((*names, *(name for name in found if name not in names)))
    location = given.location()
    folder = output_folder(origin.root, location)
    with (
        claimed(folder) as state,
        _advice_for_paths(is_given=are_paths),
        staged(given, folder, group_by, on_workers=on_workers) as reader,
    ):
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
    if hasattr(given, "stage"):
        if follow_links:
            raise OptionsError("follow_links=True has no effect on a source; pass it to the source itself")
        return cast("Source", given)
    paths = cast("Sequence[str]", given if isinstance(given, (list, tuple)) else [given])
    for path in paths:
        check_path("source", path)
    if follow_links and not any(feature.is_encoded for feature in manifest.schema.features):
        raise OptionsError("follow_links=True has no effect, since the dataset has no images; leave it out")
    sources: list[Source] = []
    remedy = "build the new examples as a dataset, and merge the two"
    for build in made_of(manifest).builds():
        if build.source not in KINDS:
            raise InputError(
                f"{manifest.name!r} was made by {build.source}, whose inputs paths do not give; give a "
                f"source in Python, such as prep.append(prep.Examples(...), dataset), or {remedy}"
            )
        recorded = {"follow_links": follow_links, **build.options}
        inputs, kind = [os.fsdecode(path) for path in paths], KINDS[build.source].source
        sources.append(kind.from_recorded(recorded, inputs, manifest.schema))
    first, *others = map(vars, sources)
    for other in others:
        if differing := [name for name in first if other.get(name) != first[name]]:
            raise InputError(f"the builds of {manifest.name!r} differ in {', '.join(differing)}; {remedy}")
    return sources[0]


@contextmanager
def _advice_for_paths(*, is_given: bool) -> Iterator[None]:
    """If a source is given by paths, let errors not name parameters that only the source has."""
    try:
        yield
    except InputError as error:
        if not is_given or "root=DIR" not in str(error):
            raise
        raise InputError(
            f"{str(error).partition(';')[0]}; give the folder of the images after the table: 'tfshards "
            "append TABLE FOLDER DATASET'"
        ) from None


def _class_names(source: Source) -> Sequence[str]:
    """Return the class names of a source."""
    return source.stage(None).listing().schema.class_names


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
    def schema(self) -> Schema:
        """The schema of the dataset with the new classes."""
        return replace(self.origin.manifest.schema, class_names=self.plan.listing.schema.class_names)

    @property
    def inputs_digest(self) -> str:
        """Digest of the dataset and of the new inputs."""
        return bytes_digest(f"{self.origin.manifest.to_text()}{self.plan.inputs_digest}".encode("ascii"))

    @property
    def wanted(self) -> Wanted:
        """The dataset with the new inputs, as an output shows whether it holds it."""
        before, plan = self.origin.manifest, self.plan
        entry: dict[str, Json] = {"inputs_digest": plan.inputs_digest, "options": dict(plan.options)}
        if new_classes := self.schema.class_names[len(before.schema.class_names) :]:
            entry["new_classes"] = [*new_classes]
        appended = [*cast("Sequence[Json]", before.options.get("appended", ())), entry]
        options: dict[str, Json] = {**before.options, "appended": appended, "made_by": "append"}
        return Wanted(before.name, plan_id_of(before.name, self.schema, options, self.inputs_digest), options)

    def draft(self, folder: BuildFolder) -> Draft:
        """Return the dataset with what was written."""
        before = self.origin.manifest
        if self.new.num_known:
            # the source is assumed to hold all known inputs, so it skips what the dataset has skipped
            before = replace(before, totals=replace(before.totals, skipped=0, reasons={}))
        draft = super().draft(folder)
        splits, totals = joined([before, draft.manifest], self.schema)
        manifest = replace(
            draft.manifest,
            schema=self.schema,
            splits=splits,
            totals=totals,
            options=self.wanted.options,
            split_cuts=self.new.cuts,
            inputs_digest=self.inputs_digest,
        )
        all_rejects = [*self.new.rejects, *draft.rejects]
        return replace(draft, manifest=manifest, rejects=all_rejects, removed=self.origin.removed())
