"""Add new examples to a dataset in new shards; the existing shards stay where they are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias, cast

import numpy as np

from tfshards.prep.building.build import SourceBuild
from tfshards.prep.building.commit import produce
from tfshards.prep.building.made import Made, made_of
from tfshards.prep.building.output import claimed, output_folder, staged
from tfshards.prep.building.rejects import original_of
from tfshards.prep.building.state import Wanted
from tfshards.prep.building.write import Draft
from tfshards.prep.deriving.reshard import check_same_schema, joined
from tfshards.prep.deriving.stored import Origin, labels_of, open_origin, removed_line
from tfshards.prep.engines.work import find_run
from tfshards.prep.imaging.formats import VERSIONS
from tfshards.prep.planning.make_plan import make_plan
from tfshards.prep.planning.options import DEFAULT_MAX_REJECTED, Options, ShardCounts, Shards
from tfshards.prep.planning.plan import plan_id_of
from tfshards.prep.planning.splits import Membership, split_by_cuts
from tfshards.prep.progress.lines import Meter, report_line, report_warning
from tfshards.prep.sources.base import Listing, Reader, Source
from tfshards.prep.sources.classes import quoted
from tfshards.prep.sources.keys import to_text
from tfshards.prep.sources.kinds import KINDS
from tfshards.prep.writing.build_folder import BuildFolder, Reject
from tfshards.prep.writing.shard import EncodedInputs, inputs_plan
from tfshards.schemas import InputError, Manifest, OptionsError, Schema
from tfshards.schemas.digests import bytes_digest, examples_digest
from tfshards.schemas.errors import check_flags, check_path, counted
from tfshards.schemas.index import FRAME_OVERHEAD, IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.keys import find

# Options in which the source may differ from the build.
_MAY_DIFFER = {"source", "follow_links", "columns", *VERSIONS}
# A source, or its inputs as they are named on the command line.
Inputs: TypeAlias = "Sequence[str | os.PathLike[str]] | str | os.PathLike[str] | Source"


def append(
    source: Inputs,
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    max_rejected: str | float | Fraction = DEFAULT_MAX_REJECTED,
    new_classes: bool = False,
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
        new_classes: add classes that the dataset does not have to the end of its class names, sorted.
        beam_args: Apache Beam's pipeline options, as for ``build``.

    Returns:
        The new manifest.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the source does not fit the dataset, or nothing determines the splits of new examples.
        FormatError: a file of keys of the dataset is missing or damaged.
        BuildError: appending stopped before its commit. The dataset is unchanged; the same call resumes.
    """
    check_flags(new_classes=new_classes)
    run = find_run(beam_args)
    check_path("dataset", dataset)
    origin = open_origin(dataset)
    names = origin.manifest.schema.class_names
    if new_classes and not names:
        raise OptionsError("new_classes=True has no effect: the classes have no names; leave it out")
    given = _source_of(source, origin.manifest)
    origin.require_keys()
    origin.require_own()
    options = Options(max_rejected=max_rejected, compression=origin.manifest.compression)
    build = _build_by_ratio(origin.manifest)
    group_by = build.group_by if build else None
    if names:
        found = given.stage(None).listing().schema.class_names if new_classes else ()
        given = given.with_class_names((*names, *(name for name in found if name not in names)))
    location = given.location()
    folder = output_folder(origin.root, location)
    with (
        claimed(folder) as state,
        staged(given, folder, group_by, on_workers=bool(beam_args)) as reader,
    ):
        # read again: the dataset is locked now, so no other process can change it
        origin = open_origin(folder)
        new = _find_new_inputs(reader, origin, new_classes=new_classes)
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


def _source_of(given: Inputs, manifest: Manifest) -> Source:
    """Return the source of new inputs: the given one, or that of paths with the options of the build.

    The dataset may have been resharded or merged since; several builds must have had the same options.
    """
    if hasattr(given, "stage"):
        return cast("Source", given)
    paths = cast("Sequence[str]", given if isinstance(given, (list, tuple)) else [given])
    for path in paths:
        check_path("source", path)
    sources: list[Source] = []
    remedy = "build the new examples as a dataset, and merge the two"
    for build in made_of(manifest).builds():
        if build.source not in KINDS:
            raise InputError(
                f"{manifest.name!r} was made by {build.source}, whose inputs paths do not give; give a "
                f"source in Python, such as prep.append(prep.Examples(...), dataset), or {remedy}"
            )
        inputs, kind = [os.fsdecode(path) for path in paths], KINDS[build.source].source
        sources.append(kind.from_recorded(build.options, inputs, manifest.schema))
    first, *others = map(vars, sources)
    for other in others:
        if differing := [name for name in first if other.get(name) != first[name]]:
            raise InputError(f"the builds of {manifest.name!r} differ in {', '.join(differing)}; {remedy}")
    return sources[0]


@dataclass(frozen=True)
class NewInputs:
    """The inputs of a source that a dataset does not hold, and what is known of the others.

    Attributes:
        listing: the new inputs with their splits, and the class numbers of the dataset.
        cuts: hash values that separate the splits, see ``Manifest.split_cuts``.
        num_known: number of inputs that the dataset holds, or has rejected and would reject again.
        rejects: what the dataset has rejected, except inputs that are new now.
    """

    listing: Listing
    cuts: Mapping[str, Json]
    num_known: int
    rejects: list[Reject]


def _find_new_inputs(reader: Reader, origin: Origin, *, new_classes: bool) -> NewInputs:
    """Return the inputs of a source that a dataset does not hold.

    Files of keys are read, but no records. The content of an input whose key is known is not read, except
    where keys are row numbers; see ``_check_rows``.

    Raises:
        InputError: the source does not fit the dataset, or nothing determines the splits of new inputs.
        FormatError: a file of keys is missing or damaged.
    """
    listing, root = reader.listing(), origin.root
    _check_fit(listing, reader.options(), origin, new_classes=new_classes)
    examples = find(root, origin.manifest.shards, listing.keys)
    is_new = examples < 0
    if listing.is_numbered:
        numbers = np.full(origin.manifest.num_examples, -1)
        numbers[examples[~is_new]] = np.flatnonzero(~is_new)
        _check_rows(reader, origin, numbers)
    rejects, rejected_again = _rejected_again(listing, reader, origin)
    is_new[rejected_again] = False
    candidates, removed = np.flatnonzero(is_new).tolist(), origin.removed()
    added = [number for number in candidates if removed_line(listing.keys[number]) not in removed]
    if num_removed := len(candidates) - len(added):
        report_line(f"leaving out {counted(num_removed, 'input')} removed from {root}")
    # keys are sorted as bytes, which is not the order of row numbers
    added.sort(key=listing.keys.__getitem__)
    numbers = np.array(added, np.int64)
    new = replace(
        listing,
        keys=[listing.keys[number] for number in added],
        sizes=listing.sizes[numbers],
        stamps=listing.stamps[numbers],
        labels=None if listing.labels is None else listing.labels[numbers],
        groups=[listing.groups[number] for number in added] if listing.groups else None,
    )
    membership = _membership(new, numbers, origin)
    new = replace(new, splits=membership.examples)
    _report_classes(new, origin)
    return NewInputs(new, membership.cuts, listing.num_examples - len(candidates), rejects)


def _check_fit(listing: Listing, options: Mapping[str, Json], origin: Origin, *, new_classes: bool) -> None:
    """Raise InputError if the source has other options, features or class names than the dataset."""
    root, manifest = origin.root, origin.manifest
    builds = [build.options for build in made_of(manifest).builds() if build.source == options["source"]]
    names = sorted({*options} - _MAY_DIFFER)
    differing = [[name for name in names if build.get(name) != options[name]] for build in builds]
    if builds and all(differing):
        name = differing[0][0]
        before, now = builds[0].get(name), options[name]
        raise InputError(
            f"{root} was built with {name}={before!r}, but the source has {now!r}; give paths instead of a "
            "source to use the options of the build"
        )
    schema = listing.schema
    if new_classes:
        schema = replace(schema, class_names=schema.class_names[: len(manifest.schema.class_names)])
    check_same_schema(manifest.schema, str(root), schema, "the source")


def _check_rows(reader: Reader, origin: Origin, numbers: IntArray) -> None:
    """Check that a source whose keys are row numbers begins with the rows of the dataset.

    A source of only new rows starts at number 0 as well, which only the content shows: from the rows, the
    digest of the examples of each shard is computed, and compared with the one in the manifest. ``numbers``
    has the number in the source of each example of the dataset, or -1.
    """
    listing, manifest = reader.listing(), origin.manifest
    fault = InputError(
        f"the source does not begin with the rows of {origin.root}: rows are identified by their numbers; "
        "give the unchanged rows of the dataset, followed by the new ones"
    )
    if len(numbers) and numbers.min() < 0:
        raise fault
    if listing.labels is not None:
        # contents are compared with the labels that the examples have, perhaps since a relabel
        labels = listing.labels.copy()
        labels[numbers] = labels_of(origin, manifest.shards)
        listing = replace(listing, labels=labels)
    source, start = EncodedInputs(reader, listing.schema, "none"), 0
    with Meter("comparing rows", int(listing.sizes[numbers].sum())) as meter:
        for shard in manifest.shards:
            rows = numbers[start : start + shard.num_examples]
            start += shard.num_examples
            pieces = [*source.pieces(inputs_plan(listing.fields_of(rows)))]
            lengths = np.array([length for piece in pieces for length in piece.frames.lengths], np.int64)
            checksums = np.frombuffer(b"".join(piece.frames.footers for piece in pieces), "<u4")
            if examples_digest(lengths - FRAME_OVERHEAD, checksums) != shard.examples_digest:
                raise fault
            meter.add(int(listing.sizes[rows].sum()))


def _rejected_again(listing: Listing, reader: Reader, origin: Origin) -> tuple[list[Reject], list[int]]:
    """Return the rejects of a dataset that stay, since the source lacks them or they would be rejected again.

    Returns also the numbers of those in the source.
    """
    rejects = {reject: listing.find(reject.key) for reject in origin.rejects()}
    originals = (listing.find(of) for reject in rejects if (of := original_of(reject)) is not None)
    read = sorted({number for number in (*rejects.values(), *originals) if number is not None})
    source = EncodedInputs(reader, listing.schema, "none", finds_duplicates=True)
    # what is rejected, and the digests of the contents of the others
    found: dict[str, Reject | str] = {}
    for piece in source.pieces(inputs_plan(listing.fields_of(np.array(read, np.int64)))):
        found |= {reject.key: reject for reject in piece.rejected}
        found |= zip(map(to_text, piece.keys), filter(None, piece.contents), strict=True)

    def stays(reject: Reject) -> bool:
        if reject.key not in found:
            return True
        of = original_of(reject)
        return found[reject.key] == (reject if of is None else found.get(of))

    kept = [reject for reject in rejects if stays(reject)]
    return kept, [number for reject in kept if (number := rejects[reject]) is not None]


def _build_by_ratio(manifest: Manifest) -> Made | None:
    """Return how the first build of a dataset that divided its examples by ratio was made, or None."""
    return next((build for build in made_of(manifest).builds() if build.ratios), None)


def _membership(new: Listing, numbers: IntArray, origin: Origin) -> Membership:
    """Return the splits of new inputs; ``numbers`` are those that they have in the source."""
    splits, cuts, build = origin.manifest.splits, origin.manifest.split_cuts, _build_by_ratio(origin.manifest)
    if new.splits:
        unknown = [name for name in new.splits if name not in splits]
        if unknown and len(numbers):
            raise InputError(
                f"the source has the split {unknown[0]!r}, but {origin.root} has only {', '.join(splits)}; "
                "move these examples to one of them"
            )
        members = {name: np.flatnonzero(np.isin(numbers, held)) for name, held in new.splits.items()}
    elif cuts and build:
        ratios = {name: Fraction(ratio) for name, ratio in build.ratios.items()}
        return split_by_cuts(new.keys, cuts, ratios, strata=new.labels, groups=new.groups)
    elif len(splits) > 1 and len(numbers):
        raise InputError(
            f"nothing determines the splits of the new examples: {origin.root} has the splits "
            f"{', '.join(splits)}, and was not split by ratios; name the splits in the source, for example "
            "by folders"
        )
    else:
        members = {next(iter(splits)): np.arange(len(numbers))}
    return Membership({name: found for name, found in members.items() if len(found)}, cuts)


def _report_classes(new: Listing, origin: Origin) -> None:
    """Report new classes, for which a model may have no output, and refuse inputs without a class."""
    if new.labels is None:
        return
    names, splits = new.schema.class_names, origin.manifest.splits
    for split, numbers in (new.splits or {}).items():
        without = numbers[new.labels[numbers] < 0]
        if names and len(without) and splits[split].label_counts:
            key = to_text(new.keys[without[0]])
            raise InputError(f"split {split!r} of {origin.root} has classes; move {key!r} to a class folder")
    held = {name for split in splits.values() for name, count in split.label_counts.items() if count}
    labels = [label for label in np.unique(new.labels).tolist() if label >= 0]
    added = [name for name in (names[label] if names else str(label) for label in labels) if name not in held]
    if held and added:
        report_line(f"new classes: {quoted(added)}")


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
