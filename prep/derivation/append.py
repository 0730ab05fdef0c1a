"""Add new examples to a dataset in new shards; the existing shards stay as they are."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import cast

from tfshards.prep.building.build import manifest_of, write_shards
from tfshards.prep.building.commit import commit, complete, rejects_text
from tfshards.prep.building.layout_writer import LayoutWriter
from tfshards.prep.building.output import claimed, discard_others, output_folder, staged
from tfshards.prep.building.rejects import log_rejects
from tfshards.prep.building.restore import Inputs, source_or_paths, source_to_append
from tfshards.prep.derivation.derive import join_splits, verify_examples
from tfshards.prep.derivation.keys import has_keys
from tfshards.prep.derivation.new_examples import NewExamples, find_new_examples
from tfshards.prep.derivation.origin import Origin, open_origin
from tfshards.prep.engines.table import EngineName, find_engine
from tfshards.prep.planning.options import DEFAULT_MAX_REJECTED, Balance, Options
from tfshards.prep.planning.plan import Plan, make_plan
from tfshards.prep.planning.shard_counts import ShardCounts, Shards
from tfshards.prep.planning.splits import Membership
from tfshards.prep.progress.lines import Log, counted, to_stderr
from tfshards.prep.sources.base import Source
from tfshards.prep.writing.area import BuildArea, Reject
from tfshards.schemas import InputError, Manifest, OptionsError, Totals
from tfshards.schemas.files import bytes_digest
from tfshards.schemas.json_reader import Json


def append(
    source: Inputs,
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    max_rejected: Fraction | float | str = DEFAULT_MAX_REJECTED,
    follow_links: bool = False,
    engine: EngineName = "beam",
    beam_args: Sequence[str] = (),
    log: Log = to_stderr,
) -> Manifest:
    """Add the new examples of ``source`` to a dataset and return its new manifest.

    An input is new if no example of the dataset has its key. An input that the dataset rejected is new if its
    content has changed since. New examples are written to new shards; their splits are given by the split
    ratios of the build, or by the source. Existing examples keep their split, shard and bytes. An interrupted
    call resumes when it is repeated.

    Args:
        source: either paths, for which the options are those in the dataset's manifest: an image folder;
            array arguments; or a table and, if its images are in another folder, that folder. Or a source
            with the options of the build. It may hold only new examples, or known ones as well.
        dataset: folder of the dataset.
        shards: number of new shards of each split, or a dict by split; by default one per 128 MiB.
        max_rejected: maximum share of the new inputs that may be rejected, such as ``0.01`` or ``"1%"``.
        follow_links: follow links out of the image folder. Only for paths; not required if the dataset was
            built from an image folder with this option.
        engine: engine that writes the shards, as for ``build``.
        beam_args: Apache Beam's pipeline options, as for ``build``.
        log: receives status lines.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the source does not fit the dataset, or nothing determines the splits of new examples.
        BuildError: appending stopped before its commit. The dataset is unchanged; the same call resumes.
    """
    counts = ShardCounts.of(shards)
    find_engine(engine).check_arguments(beam_args)
    folder = Path(dataset)
    origin = open_origin(folder)
    balance = cast("Balance", origin.manifest.options.get("balance", "count"))
    options = Options(balance=balance, max_rejected=max_rejected)
    source = _source(source, origin, follow_links=follow_links, log=log)
    output_folder(folder, source.location())
    with claimed(folder) as state, staged(source, folder) as reader:
        # read again: the dataset is locked now, so no other process can change it
        origin = open_origin(folder)
        old = origin.manifest
        if not has_keys(origin):
            raise InputError(f"{folder}: its examples have no keys, so new examples cannot be recognized")
        new = find_new_examples(reader, origin)
        for line in _differences(new, origin):
            log(line)
        if not new.listing.num_examples:
            complete(old, BuildArea(folder, old.build_id), log)
            state_of = "keeps the old content" if new.changed else "is up to date"
            log(f"{folder} {state_of}: none of the {counted(new.num_known, 'input')} is new")
            return old
        plan = _plan(make_plan(reader, old.name, counts, 0, options, new.listing), new, origin)
        for warning in new.listing.warnings:
            log(f"warning: {warning}")
        log(f"{counted(new.listing.num_examples, 'new input')}, {new.num_known:,} known")
        area = BuildArea(folder, plan.build_id)
        discard_others(state, plan.build_id, plan.options, log)
        writer = LayoutWriter(
            reader=reader,
            plan=plan,
            area=area,
            name=old.name,
            engine=engine,
            beam_args=tuple(beam_args),
            log=log,
            finds_duplicates=False,
            compression=old.compression,
        )
        written = write_shards(writer, options, may_be_empty=True)
        added = manifest_of(writer, written)
        rejects = [*new.rejects, *written.rejects]
        manifest = _appended(old, added, new, rejects)
        verify_examples(manifest, [old, added])
        commit(manifest, rejects, area)
        complete(manifest, area, log)
        log_rejects(written.rejects, new.listing.num_examples, manifest, folder, log)
    return manifest


def _source(given: Inputs, origin: Origin, *, follow_links: bool, log: Log) -> Source:
    """Return the source, with the dataset's options if paths are given, and with its class names."""
    manifest = origin.manifest
    source = source_or_paths(given)
    if isinstance(source, list):
        return source_to_append(manifest, source, follow_links=follow_links, log=log)
    if follow_links:
        raise OptionsError("follow_links=True has no effect on a source; pass it to the source itself")
    names = manifest.schema.class_names
    return source.with_class_names(names) if names else source


def _differences(new: NewExamples, origin: Origin) -> Iterator[str]:
    """Yield a line about known inputs that have changed, and about those that the source does not have."""
    if new.changed:
        have = "has" if len(new.changed) == 1 else "have"
        yield (
            f"warning: {counted(len(new.changed), 'known input')} {have} changed, such as "
            f"{new.changed[0]!r}; the dataset keeps the old content: to replace it, build again with "
            "--overwrite"
        )
    if new.num_missing and not new.num_known:
        known = counted(new.num_missing, "known input")
        yield f"the source holds none of the {known} of {origin.root}, only new ones"
    elif new.num_missing:
        are, them = ("is", "it") if new.num_missing == 1 else ("are", "them")
        yield (
            f"{counted(new.num_missing, 'known input')} {are} missing from the source, such as "
            f"{new.missing!r}; the dataset keeps {them}: to leave {them} out, build again with --overwrite"
        )


def _plan(plan: Plan, new: NewExamples, origin: Origin) -> Plan:
    """Return the plan with the cuts of the splits, and a build id that also depends on the dataset."""
    digest = hashlib.sha256(f"{origin.manifest.to_text()}{plan.build_id}".encode("ascii"))
    membership = Membership(plan.membership.examples, new.cuts)
    return replace(plan, build_id=digest.hexdigest()[:8], membership=membership)


def _appended(old: Manifest, added: Manifest, new: NewExamples, rejects: Sequence[Reject]) -> Manifest:
    """Return the manifest of the dataset with the new shards."""
    splits = {
        name: join_splits([split, added.splits[name]], old.schema) if name in added.splits else split
        for name, split in old.splits.items()
    }
    appended: list[Json] = [
        *cast("list[Json]", old.options.get("appended", [])),
        {"build_id": added.build_id, "examples": added.num_examples, "options": dict(added.options)},
    ]
    return replace(
        old,
        build_id=added.build_id,
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
