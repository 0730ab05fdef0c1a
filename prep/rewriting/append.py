"""Add new examples to a dataset in new shards; the existing shards stay as they are."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

from tfshards.prep.building.build import manifest_of, write_shards
from tfshards.prep.building.commit import commit, complete, identified, rejects_text, unless_committed
from tfshards.prep.building.inputs_file import has_masks, inputs_of
from tfshards.prep.building.output import claimed, discard_others, output_folder, staged
from tfshards.prep.building.output_state import OutputState
from tfshards.prep.building.planned_build import PlannedBuild
from tfshards.prep.building.rejects import log_rejects
from tfshards.prep.building.restore import Inputs, source_or_paths, source_to_append
from tfshards.prep.engines.table import Engine, EngineName, find_engine
from tfshards.prep.planning.make_plan import make_plan
from tfshards.prep.planning.options import DEFAULT_MAX_REJECTED, Balance, Options, ShardCounts, Shards
from tfshards.prep.planning.plan import Plan, label_counts
from tfshards.prep.planning.splits import Membership
from tfshards.prep.progress.lines import Log, as_warning, to_stderr
from tfshards.prep.rewriting.commit import expected_examples, join_splits, verify_examples
from tfshards.prep.rewriting.new_examples import NewExamples, find_new_examples
from tfshards.prep.rewriting.origin import Origin, open_origin
from tfshards.prep.sources.base import Reader, Source
from tfshards.prep.writing.area import BuildArea, Reject
from tfshards.schemas import InputError, Manifest, OptionsError, TfshardsError, Totals
from tfshards.schemas.errors import counted, listed
from tfshards.schemas.files import bytes_digest
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import ID_DIGITS
from tfshards.schemas.option import check_path
from tfshards.schemas.sizes import size
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.summary import class_lines, table


def difference_lines(new: NewExamples, origin: Origin) -> Iterator[str]:
    """Yield lines about removed, changed, relabeled, missing and renamed inputs of a source."""
    if new.removed:
        left_out = counted(len(new.removed), "input")
        were = "was" if len(new.removed) == 1 else "were"
        yield f"leaving out {left_out} that {were} removed from {origin.root}, such as {new.removed[0]!r}"
    if new.changed:
        have = "has" if len(new.changed) == 1 else "have"
        mask = " or its mask" if has_masks(new.listing.schema) else ""
        yield as_warning(
            f"{counted(len(new.changed), 'known input')} {have} changed, such as "
            f"{new.changed[0]!r}{mask}; the dataset keeps the old content: a new input needs another name, "
            "and to replace an old one, build again with --overwrite"
        )
    if new.relabeled:
        have, their = ("has", "its example") if len(new.relabeled) == 1 else ("have", "their examples")
        yield (
            f"{counted(len(new.relabeled), 'known input')} {have} another label than {their}, such as "
            f"{new.relabeled[0]!r}; the dataset was relabeled, and keeps its labels"
        )
    if new.num_missing and not new.num_known:
        known = counted(new.num_missing, "known input")
        yield f"the source holds only new inputs; the {known} of {origin.root} stay"
    elif new.num_missing:
        are, them = ("is", "it") if new.num_missing == 1 else ("are", "them")
        yield (
            f"{counted(new.num_missing, 'known input')} {are} not in the source, such as {new.missing!r}; "
            f"the dataset keeps {them}, and a build with --overwrite would leave {them} out"
        )
    if new.renamed:
        is_one = len(new.renamed) == 1
        have, of, was = (
            ("has", "a known one that is", "it was")
            if is_one
            else ("have", "known ones that are", "they were")
        )
        key, missing = new.renamed[0]
        yield as_warning(
            f"{counted(len(new.renamed), 'new input')} {have} the content of {of} not in the source,"
            f" such as {key!r}, which equals {missing!r}; if {was} moved or renamed, build again with "
            "--overwrite, since append adds another example"
        )


def up_to_date_line(new: NewExamples, root: AnyPath) -> str:
    """Return the line about a source without new inputs."""
    none = f"none of the {counted(new.num_known, 'input')} is new"
    if new.changed:
        return f"{root} keeps the old content: {none}"
    return f"{root} is up to date: {none}, and none has changed"


def preview_lines(plan: Plan) -> Iterator[str]:
    """Yield what would be appended: the inputs, shards and source bytes by split, and the inputs by class."""
    yield f"would append {counted(plan.listing.num_examples, 'input')}"
    rows = [("split", "inputs", "shards", "source bytes")]
    for split, layout in plan.layouts.items():
        num_bytes = sum(int(plan.listing.sizes[shard].sum()) for shard in layout)
        rows.append((split, f"{sum(map(len, layout)):,}", f"{len(layout):,}", size(num_bytes)))
    yield from table(rows)
    if plan.listing.labels is not None:
        counts = {split: label_counts(plan.listing, layout) for split, layout in plan.layouts.items()}
        with_new = {name for split in counts.values() for name, count in split.items() if count}
        yield from class_lines(
            {
                split: {name: count for name, count in of_split.items() if name in with_new}
                for split, of_split in counts.items()
            },
            plan.listing.schema,
        )
    yield "nothing was written, and no new image was decoded: damaged ones are found when they are appended"


# Number of class names in a message.
_SHOWN = 5


def append(
    source: Inputs,
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    max_rejected: Fraction | float | str = DEFAULT_MAX_REJECTED,
    follow_links: bool = False,
    new_classes: bool = False,
    checksum: bool = False,
    dry_run: bool = False,
    engine: EngineName | None = None,
    beam_args: Sequence[str] = (),
    log: Log = to_stderr,
) -> Manifest:
    """Add the new examples of ``source`` to a dataset and return its new manifest.

    An input is new if no example of the dataset has its key. An input that the dataset rejected is new if its
    content has changed since. New examples are written to new shards; their splits are given by the split
    ratios of the build, or by the source. Existing examples keep their split, shard and bytes, even if their
    inputs have changed or are missing now, which is logged. An interrupted call resumes when it is repeated.

    Args:
        source: either paths, for which the options are those in the dataset's manifest: an image folder;
            array arguments; or a table and, if its images are in another folder, that folder. Or a source
            with the options of the build. It may hold only new examples, or known ones as well.
        dataset: folder of the dataset.
        shards: number of new shards of each split, or a dict by split; by default one per 128 MiB.
        max_rejected: maximum share of the new inputs that may be rejected, such as ``0.01`` or ``"1%"``.
        follow_links: follow links out of the image folder. Only for paths; not required if the dataset was
            built from an image folder with this option.
        new_classes: add classes that the dataset does not have to the end of its class names, sorted.
        checksum: compare the contents of all known inputs with their records, rather than only of those whose
            size or modification time has changed.
        dry_run: log what would be appended, write nothing, and return the manifest as it is.
        engine: engine that writes the shards, as for ``build``.
        beam_args: Apache Beam's pipeline options, as for ``build``.
        log: receives status lines.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the source does not fit the dataset, or nothing determines the splits of new examples.
        BuildError: appending stopped before its commit. The dataset is unchanged; the same call resumes.
    """
    found = find_engine(engine, beam_args)
    check_path("dataset", dataset)
    folder = any_path(dataset)
    origin = open_origin(folder)
    balance: Balance = "count" if origin.manifest.made.is_balanced_by_count else "bytes"
    request = _Arguments(
        source=source_or_paths(source),
        folder=folder,
        counts=ShardCounts.of(shards),
        options=Options(balance=balance, max_rejected=max_rejected),
        follow_links=follow_links,
        new_classes=new_classes,
        checksum=checksum,
        log=log,
    )
    try:
        named = _named_source(request, origin)
        output_folder(folder, named.location())
        if dry_run:
            return _preview(request, named, origin)
        return _append(request, named, found, tuple(beam_args))
    except InputError:
        new = [] if new_classes else _new_classes(request, origin)
        if new:
            classes = f"class{'es' if len(new) > 1 else ''} {listed([repr(name) for name in new], _SHOWN)}"
            raise InputError("classes-new", folder=folder, classes=classes) from None
        raise


@dataclass(frozen=True, kw_only=True)
class _Arguments:
    """The arguments of ``append``, except those of the engine."""

    source: Source | list[str]
    folder: AnyPath
    counts: ShardCounts
    options: Options
    follow_links: bool
    new_classes: bool
    checksum: bool
    log: Log


def _append(request: _Arguments, source: Source, engine: Engine, beam_args: tuple[str, ...]) -> Manifest:
    folder, log = request.folder, request.log
    with claimed(folder) as state, staged(source, folder) as reader:
        # read again: the dataset is locked now, so no other process can change it
        origin = open_origin(folder)
        old = origin.manifest
        new, plan = _find(request, reader, origin)
        if plan is None:
            # warnings about views were logged when the dataset was written
            complete(old, folder, lambda _: None)
            log(up_to_date_line(new, folder))
            return old
        area = BuildArea(folder, plan.plan_id, plan.options)
        discard_others(state, plan.plan_id, plan.options, log)
        writer = PlannedBuild(
            reader=reader,
            plan=plan,
            area=area,
            options=replace(request.options, compression=old.compression),
            log=log,
            run=partial(engine.run, arguments=beam_args),
            source=source.location(),
        )
        return unless_committed(lambda: _write(writer, request, new, old, state), state, area, None, log)


def _write(
    writer: PlannedBuild, request: _Arguments, new: NewExamples, old: Manifest, state: OutputState
) -> Manifest:
    """Write and commit the new shards, and return the manifest of the dataset with them."""
    folder, log = request.folder, request.log
    written = write_shards(writer, may_be_empty=True)
    added = identified(manifest_of(writer, written))
    rejects = [*new.rejects, *written.rejects]
    manifest = _appended(old, added, new, rejects)
    verify_examples(manifest, expected_examples(manifest, [old, added]))
    manifest = commit(manifest, rejects, inputs_of(writer.plan), writer.area, state, log)
    log_rejects(written.rejects, new.listing.num_examples, manifest, folder, log)
    return manifest


def _preview(request: _Arguments, source: Source, origin: Origin) -> Manifest:
    """Log what would be appended; nothing is written into the dataset's folder."""
    with tempfile.TemporaryDirectory() as staging:
        new, plan = _find(request, source.stage(Path(staging)), origin)
        for line in preview_lines(plan) if plan else [up_to_date_line(new, request.folder)]:
            request.log(line)
    return origin.manifest


def _find(request: _Arguments, reader: Reader, origin: Origin) -> tuple[NewExamples, Plan | None]:
    """Return the new examples and the plan of their shards, or None if there are none, and log of them."""
    folder, log = request.folder, request.log
    if not origin.has_keys:
        raise InputError("append-no-keys", folder=folder)
    new = find_new_examples(reader, origin, log, new_classes=request.new_classes, checksum=request.checksum)
    for line in difference_lines(new, origin):
        log(line)
    if not new.listing.num_examples:
        return new, None
    made = make_plan(reader, origin.manifest.name, request.counts, 0, request.options, new.listing)
    added = new.listing.schema.class_names[len(origin.manifest.schema.class_names) :]
    if added:
        log(f"new class{'es' if len(added) > 1 else ''}: {listed([repr(name) for name in added], _SHOWN)}")
    for warning in new.listing.warnings:
        log(as_warning(warning))
    log(f"{counted(new.listing.num_examples, 'new input')}, {new.num_known:,} known")
    return new, _plan(made, new, origin)


def _named_source(request: _Arguments, origin: Origin) -> Source:
    """Return the source with the class names of the dataset, to which new ones may be added.

    Raises:
        OptionsError: an argument has no effect.
    """
    names = origin.manifest.schema.class_names
    if request.new_classes and not names:
        raise OptionsError("new-classes-useless")
    source = _source(request, origin, log=request.log)
    if request.new_classes:
        names = (*names, *_new_classes(request, origin))
    return source.with_class_names(names) if names else source


def _source(request: _Arguments, origin: Origin, *, log: Log) -> Source:
    """Return the source, with the dataset's options if paths are given, and without its class names."""
    source, manifest = request.source, origin.manifest
    if isinstance(source, list):
        nameless = replace(manifest, schema=replace(manifest.schema, class_names=()))
        return source_to_append(nameless, source, follow_links=request.follow_links, log=log)
    if request.follow_links:
        raise OptionsError("follow-links-of-source")
    return source


def _new_classes(request: _Arguments, origin: Origin) -> list[str]:
    """Return the class names of the source that the dataset does not have; none if it cannot be read."""
    known = origin.manifest.schema.class_names
    if not known:
        return []
    with suppress(TfshardsError), tempfile.TemporaryDirectory() as staging:
        source = _source(request, origin, log=lambda _: None)
        found = source.stage(Path(staging), preview=True).listing().schema.class_names
        return [name for name in found if name not in known]
    return []


def _plan(plan: Plan, new: NewExamples, origin: Origin) -> Plan:
    """Return the plan with the cuts of the splits, and with ids that also depend on the dataset."""
    of = origin.manifest.build_id
    plan_id, inputs = (
        hashlib.sha256(f"{of} {each}".encode()).hexdigest() for each in (plan.plan_id, plan.inputs_digest)
    )
    return replace(
        plan,
        plan_id=plan_id[:ID_DIGITS],
        inputs_digest=f"sha256:{inputs}",
        membership=Membership(plan.membership.examples, new.cuts),
    )


def _appended(old: Manifest, added: Manifest, new: NewExamples, rejects: Sequence[Reject]) -> Manifest:
    """Return the manifest of the dataset with the new shards."""
    schema = replace(old.schema, class_names=added.schema.class_names)
    splits = {
        name: join_splits([split, added.splits[name]] if name in added.splits else [split], schema)
        for name, split in old.splits.items()
    }
    entry: dict[str, Json] = {
        "build_id": added.build_id,
        "examples": added.num_examples,
        "options": dict(added.options),
    }
    new_classes = schema.class_names[len(old.schema.class_names) :]
    if new_classes:
        entry["new_classes"] = [*new_classes]
    # with these, the layout of each build can be computed again (verification/parts.py)
    rejected = sorted({reject.key for reject in rejects} - {reject.key for reject in new.rejects})
    for name, keys in (("rejected", rejected), ("retried", sorted(new.retried))):
        if keys:
            entry[name] = [*keys]
    appended: list[Json] = [*(dict(append.entry) for append in old.made.appends), entry]
    return replace(
        old,
        build_id=added.build_id,
        schema=schema,
        splits=splits,
        totals=_totals(old.totals, added.totals, new, rejects),
        options={**old.options, "appended": appended},
        split_cuts=new.cuts or old.split_cuts,
        rejects_digest=bytes_digest(rejects_text(rejects)) if rejects else "",
    )


def _totals(old: Totals, added: Totals, new: NewExamples, rejects: Sequence[Reject]) -> Totals:
    """Return the totals of all inputs.

    A source that holds known inputs is assumed to hold all of them, so its skipped entries replace those of
    the dataset; the skipped entries of other sources are added.
    """
    skipped = Counter(added.reasons["skipped"])
    if not new.num_known:
        skipped += Counter(old.reasons.get("skipped", {}))
    accepted = old.accepted + added.accepted
    return Totals(
        entries=accepted + len(rejects) + skipped.total(),
        accepted=accepted,
        rejected=len(rejects),
        skipped=skipped.total(),
        reasons={
            "rejected": dict(sorted(Counter(reject.reason for reject in rejects).items())),
            "skipped": dict(sorted(skipped.items())),
        },
        conversions=dict(sorted((Counter(old.conversions) + Counter(added.conversions)).items())),
    )
