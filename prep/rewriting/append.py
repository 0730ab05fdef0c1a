"""Add new examples to a dataset in new shards; the existing shards stay as they are."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TypeAlias

from tfshards.prep.building.build import manifest_of, write_shards
from tfshards.prep.building.commit import commit, complete, identified, rejects_text, unless_committed
from tfshards.prep.building.inputs_file import inputs_of
from tfshards.prep.building.output import claimed, discard_others, output_folder, staged
from tfshards.prep.building.planned_build import PlannedBuild
from tfshards.prep.building.rejects import log_rejects
from tfshards.prep.building.restore import Inputs, group_by_of, source_or_paths, source_to_append
from tfshards.prep.engines.table import EngineName, Work, find_run, is_distributed
from tfshards.prep.planning.make_plan import make_plan
from tfshards.prep.planning.options import DEFAULT_MAX_REJECTED, Options, ShardCounts, Shards
from tfshards.prep.planning.plan import Plan
from tfshards.prep.planning.splits import Membership
from tfshards.prep.progress.lines import Log, report_line, report_warning, takes_log, to_stderr
from tfshards.prep.rewriting.commit import (
    add_totals,
    expected_examples,
    join_splits,
    verify_examples,
    with_rejects,
)
from tfshards.prep.rewriting.new_examples import NewExamples, find_new_examples, new_class_names
from tfshards.prep.rewriting.origin import Origin, open_origin
from tfshards.prep.rewriting.scan import Workers
from tfshards.prep.sources.base import Reader, Source
from tfshards.prep.sources.classes import quoted
from tfshards.prep.writing.area import BuildArea, Reject
from tfshards.schemas import InputError, Manifest, OptionsError, TfshardsError
from tfshards.schemas.errors import counted
from tfshards.schemas.files import bytes_digest
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import ID_DIGITS
from tfshards.schemas.option import check_path
from tfshards.schemas.storage import AnyPath, any_path

# Returns the new examples, and the plan of their shards, or None if there are none.
Find: TypeAlias = Callable[[Reader, Origin, Workers], tuple[NewExamples, Plan | None]]


@takes_log
def append(
    source: Inputs,
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    max_rejected: Fraction | float | str = DEFAULT_MAX_REJECTED,
    follow_links: bool = False,
    new_classes: bool = False,
    checksum: bool = False,
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
        shards: number of new shards of each split, or a dict by split; by default by
            ``Options.shard_size``.
        max_rejected: maximum share of the new inputs that may be rejected, such as ``0.01`` or ``"1%"``.
        follow_links: follow links out of the image folder. Only for paths; not required if the dataset was
            built from an image folder with this option.
        new_classes: add classes that the dataset does not have to the end of its class names, sorted.
        checksum: compare the contents of all known inputs with their records, rather than only of those whose
            size or modification time has changed.
        engine: engine that reads the keys and writes the shards, as for ``build``.
        beam_args: Apache Beam's pipeline options, as for ``build``.
        log: receives status lines.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the source does not fit the dataset, or nothing determines the splits of new examples.
        BuildError: appending stopped before its commit. The dataset is unchanged; the same call resumes.
    """
    run = find_run(engine, beam_args)
    check_path("dataset", dataset)
    folder = any_path(dataset)
    origin = open_origin(folder)
    names = origin.manifest.schema.class_names
    if new_classes and not names:
        raise OptionsError("new-classes-useless")
    inputs = source_or_paths(source)
    if isinstance(inputs, list):
        nameless = replace(origin.manifest, schema=replace(origin.manifest.schema, class_names=()))
        inputs = source_to_append(nameless, inputs, follow_links=follow_links)
    elif follow_links:
        raise OptionsError("follow-links-of-source")
    options = Options(max_rejected=max_rejected)
    find = partial(_find, ShardCounts.of(shards), options, new_classes, checksum)
    try:
        added = new_class_names(inputs, names) if new_classes else []
        named = inputs.with_class_names((*names, *added)) if names else inputs
        output_folder(folder, named.location())
        by, on_workers = group_by_of(origin.manifest), is_distributed(engine, beam_args)
        return _append(find, named, folder, options, run, staged(named, folder, by, on_workers=on_workers))
    except InputError:
        new: list[str] = []
        with suppress(TfshardsError):
            new = [] if new_classes else new_class_names(inputs, names)
        if new:
            classes = f"class{'es' if len(new) > 1 else ''} {quoted(new)}"
            raise InputError("classes-new", folder=folder, classes=classes) from None
        raise


def _find(
    counts: ShardCounts,
    options: Options,
    new_classes: bool,
    checksum: bool,
    reader: Reader,
    origin: Origin,
    workers: Workers,
) -> tuple[NewExamples, Plan | None]:
    """Find the new examples and plan their shards, and log of them; see ``Find``."""
    if not origin.has_keys:
        raise InputError("append-no-keys", folder=origin.root)
    new = find_new_examples(reader, origin, workers, new_classes=new_classes, checksum=checksum)
    if not new.listing.num_examples:
        return new, None
    plan = make_plan(reader, origin.manifest.name, counts, 0, options, new.listing)
    report_warning(*new.listing.warnings)
    report_line(f"{counted(new.listing.num_examples, 'new input')}, {new.num_known:,} known")
    # with ids that also depend on the dataset
    plan_id, inputs = (
        hashlib.sha256(f"{origin.manifest.build_id} {each}".encode()).hexdigest()
        for each in (plan.plan_id, plan.inputs_digest)
    )
    return new, replace(
        plan,
        plan_id=plan_id[:ID_DIGITS],
        inputs_digest=f"sha256:{inputs}",
        membership=Membership(plan.membership.examples, new.cuts),
    )


def _append(
    find: Find,
    source: Source,
    folder: AnyPath,
    options: Options,
    run: Callable[[Work], None],
    copied: AbstractContextManager[Reader],
) -> Manifest:
    """Write and commit the new shards, and return the manifest of the dataset with them."""
    with claimed(folder) as state, copied as reader:
        # read again: the dataset is locked now, so no other process can change it
        origin = open_origin(folder)
        old = origin.manifest
        new, plan = find(reader, origin, Workers(folder, run))
        if plan is None:
            # warnings about views were logged when the dataset was written
            complete(old, folder, warns=False)
            report_line(_up_to_date_line(new, folder))
            return old
        area = BuildArea(folder, plan.plan_id, plan.options)
        discard_others(state, plan.plan_id, plan.options)
        writer = PlannedBuild(
            reader=reader,
            plan=plan,
            area=area,
            options=replace(options, compression=old.compression),
            run=run,
            source=source.location(),
        )

        def write() -> Manifest:
            written = write_shards(writer, may_be_empty=True)
            added = identified(manifest_of(writer, written))
            rejects = [*new.rejects, *written.rejects]
            manifest = _appended(old, added, new, rejects)
            verify_examples(manifest, expected_examples(manifest, [old, added]))
            manifest = commit(manifest, rejects, inputs_of(plan), area, state)
            log_rejects(written.rejects, new.listing.num_examples, manifest, folder)
            return manifest

        return unless_committed(write, state, area, None)


def _up_to_date_line(new: NewExamples, root: AnyPath) -> str:
    none = f"none of the {counted(new.num_known, 'input')} is new"
    if new.num_changed:
        return f"{root} keeps the old content: {none}"
    return f"{root} is up to date: {none}, and none has changed"


def _appended(old: Manifest, added: Manifest, new: NewExamples, rejects: Sequence[Reject]) -> Manifest:
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
    if new_classes := schema.class_names[len(old.schema.class_names) :]:
        entry["new_classes"] = [*new_classes]
    # with these, the layout of each build can be computed again (rebuild.py)
    rejected = sorted({reject.key for reject in rejects} - {reject.key for reject in new.rejects})
    for name, keys in (("rejected", rejected), ("retried", sorted(new.retried))):
        if keys:
            entry[name] = [*keys]
    before = old.totals
    if new.num_known:
        # the source is assumed to hold all known inputs, so its skipped entries replace those of the dataset
        before = replace(before, skipped=0, reasons={})
    appended: list[Json] = [*(dict(append.entry) for append in old.made.appends), entry]
    return replace(
        old,
        build_id=added.build_id,
        schema=schema,
        splits=splits,
        totals=with_rejects(
            add_totals([before, added.totals]), old.totals.accepted + added.totals.accepted, rejects
        ),
        options={**old.options, "appended": appended},
        split_cuts=new.cuts or old.split_cuts,
        rejects_digest=bytes_digest(rejects_text(rejects)) if rejects else "",
    )
