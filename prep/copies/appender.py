"""New examples for a dataset: further shards beside those that it has, which stay as they are."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import cast

from tfshards.prep.area import BuildArea, Reject
from tfshards.prep.builder import clear, finish_up, manifest_of, staged, write_all
from tfshards.prep.commit import build_of, commit, generations, rejects_text
from tfshards.prep.copies.derived import join_splits, prove
from tfshards.prep.copies.keys import has_keys
from tfshards.prep.copies.newcomers import Newcomers, find_newcomers
from tfshards.prep.copies.origin import Origin, open_origin
from tfshards.prep.files import bytes_digest
from tfshards.prep.forecast import Forecast, forecast
from tfshards.prep.options import Options
from tfshards.prep.output import check_output
from tfshards.prep.pipeline import check_beam_args
from tfshards.prep.progress import Talk, counted, to_stderr
from tfshards.prep.run import Run
from tfshards.prep.sources.arrays import Arrays
from tfshards.prep.sources.listing import Source
from tfshards.prep.sources.table import Table
from tfshards.prep.splits import Membership
from tfshards.schemas import InputError, Manifest, OptionsError, Totals
from tfshards.schemas.reading import Json

# All else is the dataset's already.
_OPTIONS = {"shards_by_split", "shard_size", "balance", "max_rejected"}


def append(
    source: Source,
    out: str | os.PathLike[str],
    *,
    shards: int | None = None,
    options: Options | None = None,
    beam_args: Sequence[str] = (),
    talk: Talk = to_stderr,
) -> Manifest:
    """Take what is new in ``source`` into the dataset in ``out`` and return its new manifest.

    An input is new if no example has its key; what was rejected is tried again if it has changed since. New
    examples go into new shards, of the split that the cuts of the build give them, or the source; those that
    are there keep split, shard and bytes. What was stopped goes on when it is called again.

    Args:
        source: may list what the dataset holds, as a folder does that has grown, or only what is new.
        out: the dataset's directory.
        shards: number of new shards of each split; by default as many as ``options.shard_size`` asks for.
        options: ``shards_by_split``, ``shard_size``, ``balance`` and ``max_rejected`` of the new examples.
        beam_args: as for ``build``.
        talk: is given each line about its course.

    Raises:
        OptionsError: an argument is wrong by itself.
        InputError: the source or the dataset does not allow it.
        BuildError: it ended before its commit; the same call goes on where it ended.
    """
    options = options or Options()
    _check_options(options)
    check_beam_args(beam_args)
    folder = Path(out)
    source = _with_class_names(source, open_origin(folder))
    check_output(folder, source)
    with staged(source, folder) as reader:
        # by now nobody else can change it
        origin = open_origin(folder)
        if not has_keys(origin):
            raise InputError(f"{folder}: its examples have no keys, by which to tell which ones are new")
        old = origin.manifest
        new = find_newcomers(reader, origin)
        if not new.listing.num_examples:
            finish_up(old, BuildArea(folder, old.build_id), talk)
            talk(f"{folder} is up to date: it knows all of the {counted(new.num_known, 'input')}")
            return old
        plan = _plan(forecast(reader, old.name, shards, 0, options, new.listing), new, origin)
        for warning in new.listing.warnings:
            talk(f"warning: {warning}")
        talk(f"{counted(new.listing.num_examples, 'new input')}, {new.num_known:,} known")
        area = BuildArea(folder, plan.build_id)
        clear(area, plan, old.name, old, talk)
        run = Run(reader, plan, area, old.name, tuple(beam_args), talk, False, old.compression)
        result = write_all(run, options, may_be_empty=True)
        added = manifest_of(run, result)
        rejects = [*new.rejects, *result.rejects]
        manifest = _together(old, added, new, rejects)
        prove(manifest, [old, added])
        commit(manifest, rejects, area)
        _remove_empty_shards(area, manifest)
        finish_up(manifest, area, talk)
    return manifest


def _remove_empty_shards(area: BuildArea, manifest: Manifest) -> None:
    """Remove the shards of splits in which every new example was rejected."""
    for path in generations(area.out, manifest):
        if build_of(path) == area.build_id:
            path.unlink()


def _check_options(options: Options) -> None:
    """Raise OptionsError if an option is given that is the dataset's already."""
    for field in fields(Options):
        given = getattr(options, field.name)
        if field.name not in _OPTIONS and given != getattr(Options(), field.name):
            raise OptionsError(f"append: {field.name}={given!r} is the dataset's own affair; leave it out")


def _with_class_names(source: Source, origin: Origin) -> Source:
    """Return the source with the dataset's class names; those of folders are looked up later."""
    names = origin.manifest.schema.class_names
    if names and isinstance(source, Arrays | Table) and source.class_names is None:
        return replace(source, class_names=names)
    return source


def _plan(plan: Forecast, new: Newcomers, origin: Origin) -> Forecast:
    """Return the forecast with a build id that depends on the dataset, too, and the splits' cuts."""
    digest = hashlib.sha256(f"{origin.manifest.to_text()}{plan.build_id}".encode("ascii"))
    membership = Membership(plan.membership.examples, new.cuts)
    return replace(plan, build_id=digest.hexdigest()[:8], membership=membership)


def _together(old: Manifest, added: Manifest, new: Newcomers, rejects: Sequence[Reject]) -> Manifest:
    """Return the manifest of the dataset with what was added to it."""
    splits = {
        name: join_splits([split, added.splits[name]], old.schema) if name in added.splits else split
        for name, split in old.splits.items()
    }
    appended: list[Json] = [
        *cast("list[Json]", old.options.get("appended", [])),
        {"build_id": added.build_id, "examples": added.num_examples, "options": dict(added.options)},
    ]
    return Manifest(
        old.name,
        added.build_id,
        old.schema,
        splits,
        _totals(old.totals, added.totals, new, rejects),
        {**old.options, "appended": appended},
        new.cuts or old.split_cuts,
        old.compression,
        bytes_digest(rejects_text(rejects)) if rejects else "",
    )


def _totals(old: Totals, added: Totals, new: Newcomers, rejects: Sequence[Reject]) -> Totals:
    """Return what became of all inputs; what is skipped in a folder that has grown is counted there anew."""
    skipped = Counter(added.reasons["skipped"])
    if not new.num_known:
        skipped += Counter(old.reasons.get("skipped", {}))
    accepted = old.accepted + added.accepted
    return Totals(
        accepted + len(rejects) + skipped.total(),
        accepted,
        len(rejects),
        skipped.total(),
        {
            "rejected": dict(sorted(Counter(reject.reason for reject in rejects).items())),
            "skipped": dict(sorted(skipped.items())),
        },
        dict(sorted((Counter(old.conversions) + Counter(added.conversions)).items())),
    )
