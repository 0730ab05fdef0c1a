"""Rebuild single shards and the rejects file of a dataset from the inputs that it was built from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tfshards.prep.building.commit import read_rejects, rejects_text
from tfshards.prep.building.inputs_file import read_inputs
from tfshards.prep.building.planned_build import PlannedBuild
from tfshards.prep.building.rejects import final_layouts, repeated_inputs
from tfshards.prep.building.restore import kind_of_source, restored_options, restored_source
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.planning.make_plan import make_plan
from tfshards.prep.planning.options import Options, ShardCounts
from tfshards.prep.planning.plan import Plan
from tfshards.prep.progress.lines import Reporter, lines_to, nowhere
from tfshards.prep.rewriting.new_examples import new_class_names
from tfshards.prep.sources.base import Listing, Reader, Source
from tfshards.prep.sources.keys import to_text
from tfshards.prep.writing.area import BuildArea, FinishedShard, Phase, Reject, ShardId
from tfshards.prep.writing.shard import write_shard
from tfshards.prep.writing.shard_names import build_of
from tfshards.schemas import InputError, Manifest, Shard, Split
from tfshards.schemas.build_area import make_folder, staged_folder, write_files
from tfshards.schemas.files import bytes_digest, sync_directory
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json, shown
from tfshards.schemas.names import rejects_name
from tfshards.schemas.storage import AnyPath


@dataclass(frozen=True)
class BuildPart:
    """The shards of one build of a dataset, as a manifest of their own.

    ``rejected`` has the keys of the inputs that the build rejected; None if they are in the rejects file.
    """

    manifest: Manifest
    rejected: frozenset[str] | None
    options: Options
    seed: int


def parts_of(folder: AnyPath, manifest: Manifest) -> list[BuildPart]:
    """Return the parts of a dataset: what the build wrote, then what each append wrote."""
    seed, appends = manifest.made.seed, manifest.made.appends
    if not appends:
        return [BuildPart(manifest, None, restored_options(manifest), seed)]
    listed = read_rejects(folder / rejects_name(manifest.build_id)) if manifest.totals.rejected else []
    first: set[str] = set()
    seen: set[str] = set()
    for append in appends:
        # an input that an append took again was rejected by the build, unless by an earlier append
        first |= append.retried - seen
        seen |= append.retried | append.rejected
    first |= {reject.key for reject in listed} - seen
    ids = [append.build_id for append in appends]
    of_first = [shard for shard in manifest.shards if build_of(shard.path) not in ids]
    options = {name: value for name, value in manifest.options.items() if name != "appended"}
    whole = _only(manifest, build_of(of_first[0].path), options, of_first)
    parts = [BuildPart(whole, frozenset(first), restored_options(whole), seed)]
    for append in appends:
        shards = [shard for shard in manifest.shards if build_of(shard.path) == append.build_id]
        part = _only(manifest, append.build_id, append.options, shards)
        parts.append(BuildPart(part, frozenset(append.rejected), Options(), 0))
    return parts


def _only(
    manifest: Manifest, build_id: str, options: Mapping[str, Json], shards: Sequence[Shard]
) -> Manifest:
    kept = {shard.path for shard in shards}
    splits = {
        name: Split(found)
        for name, split in manifest.splits.items()
        if (found := tuple(shard for shard in split.shards if shard.path in kept))
    }
    return replace(manifest, build_id=build_id, options=options, splits=splits)


_REMEDY = (
    "the content of an input has changed; give the inputs that the dataset was built from, or replace the "
    "dataset with a new build"
)


def rebuild(
    folder: Path,
    manifest: Manifest,
    damaged: set[str],
    inputs: Source | Sequence[str],
    faults: dict[str, InputError],
) -> Iterator[str]:
    """Rebuild damaged shards, their companions and the rejects file; yield the path of each.

    A shard one of whose inputs is missing or has changed is left as it is, unless all damaged ones are so.
    """
    kind_of_source(manifest, is_given=not isinstance(inputs, Sequence))
    name = rejects_name(manifest.build_id)
    with staged_folder(folder) as staging:
        for sub in ("source", "out"):
            (staging / sub).mkdir()
        by = restored_options(manifest).group_by
        reader = _source(manifest, inputs).stage(staging / "source", group_by=by)
        listing = reader.listing()
        for part in parts_of(folder, manifest):
            of, shards = part.manifest, {shard.path for shard in part.manifest.shards}
            if not damaged & (shards if manifest.made.appends else {*shards, name}):
                continue
            try:
                plan, is_there = _plan(folder, reader, listing, part)
            except InputError as error:
                # the inputs may be those of another part
                faults.update(dict.fromkeys(damaged & {*shards, name}, error))
                continue
            build = PlannedBuild(
                reader=reader,
                plan=plan,
                # separate from the area that builds use; its output is not a dataset
                area=BuildArea(staging / "out", of.build_id),
                options=restored_options(of),
            )
            if part.rejected is not None:
                rejects = [Reject(key, "", "", 0) for key in sorted(part.rejected)]
            elif name in damaged:
                rejects = _rejects(build, of)
                write_files(folder, {name: rejects_text(rejects)})
                yield name
            else:
                rejects = read_rejects(folder / name) if manifest.totals.rejected else []
            for split, layout in final_layouts(plan, rejects, part.options, may_be_empty=True).items():
                for index, (numbers, expected) in enumerate(
                    zip(layout, of.splits[split].shards, strict=True)
                ):
                    if expected.path not in damaged:
                        continue
                    try:
                        _check_there(expected.path, plan.listing, numbers, is_there, inputs)
                        _write_expected(build, ShardId(split, index), numbers, expected)
                    except InputError as error:
                        # the inputs of the other shards may be unchanged
                        faults[expected.path] = error
                        continue
                    for path in (*expected.companion_digests, expected.path):
                        if path in damaged:
                            make_folder(folder, path)
                            os.replace(str(build.area.shards / path), folder / path)
                            sync_directory((folder / path).parent)
                            yield path
    if faults and faults.keys() >= damaged & {shard.path for shard in manifest.shards}:
        raise next(iter(faults.values()))


def _source(manifest: Manifest, inputs: Source | Sequence[str]) -> Source:
    """Return the source of the inputs, with the class names of the dataset and any new ones after them."""
    names = manifest.schema.class_names
    nameless = replace(manifest, schema=replace(manifest.schema, class_names=()))
    source = restored_source(nameless, inputs, is_grown=True) if isinstance(inputs, Sequence) else inputs
    return source.with_class_names((*names, *new_class_names(source, names))) if names else source


def _check_there(
    path: str, listing: Listing, numbers: IntArray, is_there: BoolArray, inputs: Source | Sequence[str]
) -> None:
    """Raise InputError if one of the inputs of the shard ``path`` is missing."""
    missing = numbers[~is_there[numbers]]
    if len(missing):
        more = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        where = ", ".join(inputs) if isinstance(inputs, Sequence) else "the source"
        raise InputError(
            "input-missing", path=path, keys=to_text(listing.keys[int(missing[0])]), more=more, where=where
        )


def _write(build: PlannedBuild, phase: Phase, shard: ShardId, numbers: IntArray) -> FinishedShard:
    build.area.open()
    build.area.write_plan(phase, shard, build.plan.listing.columns(numbers))
    return write_shard(build.task(phase, build.plan.layouts, Reporter()), shard)


def _write_expected(build: PlannedBuild, shard: ShardId, numbers: IntArray, expected: Shard) -> None:
    found = _write(build, "final", shard, numbers).shard
    if found != expected:
        raise InputError(
            "repair-differs",
            path=expected.path,
            digest=found.digest,
            digest2=expected.digest,
            remedy=_REMEDY,
        )


def _rejects(build: PlannedBuild, manifest: Manifest) -> list[Reject]:
    """Read every input, return the rejected ones, and check that they equal the dataset's."""
    first: dict[ShardId, FinishedShard] = {}
    for split, layout in build.plan.layouts.items():
        for index, numbers in enumerate(layout):
            shard = ShardId(split, index)
            first[shard] = _write(build, "first", shard, numbers)
            # only the rejected inputs are needed
            (build.area.shards / first[shard].shard.path).unlink()
    found = [reject for done in first.values() for reject in done.rejected]
    # the build has warned of them
    with lines_to(nowhere):
        found += repeated_inputs(build.plan, first, restored_options(manifest))
    if bytes_digest(rejects_text(found)) != manifest.rejects_digest:
        name = rejects_name(manifest.build_id)
        raise InputError("repair-rejects-differ", rejects_name=name, remedy=_REMEDY)
    return found


def _plan(folder: Path, reader: Reader, now: Listing, part: BuildPart) -> tuple[Plan, BoolArray]:
    """Return the plan of the build that wrote a part, and for each of its inputs whether it is still there.

    The plan is made from the inputs that the build recorded, or from ``now`` if there is no record.
    """
    manifest, options, listing = part.manifest, part.options, replace(now, schema=part.manifest.schema)
    _check_options(reader, manifest)
    recorded = read_inputs(folder, manifest.build_id)
    if recorded is not None:
        listing = replace(
            listing,
            keys=recorded.keys,
            sizes=recorded.sizes,
            stamps=recorded.stamps,
            labels=recorded.labels,
            splits=recorded.splits,
        )
        options = replace(options, splits={}, stratify=False, group_by=None)
    try:
        plan = make_plan(
            reader, manifest.name, ShardCounts(None, manifest.made.shards), part.seed, options, listing
        )
    except InputError as error:
        # such as a split that is missing
        raise _others(str(error)) from None
    is_other = plan.inputs_digest != manifest.inputs_digest or now.schema != manifest.schema
    if recorded is None and is_other:
        raise _others("their number, names, sizes, labels, splits, features or class names differ")
    found = [now.find(to_text(key)) for key in listing.keys]
    numbers = np.array([-1 if number is None else number for number in found], np.int64)
    is_there = numbers >= 0
    if not is_there.any():
        raise _others(f"{to_text(listing.keys[0])!r} and all others are missing")
    # readers refuse a file of another size or time than it is listed with; its digest decides
    listing = replace(listing, sizes=now.sizes[numbers], stamps=now.stamps[numbers])
    return replace(plan, listing=listing), is_there


def _others(difference: str) -> InputError:
    return InputError("inputs-differ", difference=difference)


def _check_options(reader: Reader, manifest: Manifest) -> None:
    """Raise InputError if options of the source, or the libraries that read it, differ from the build."""
    before, now = manifest.options, reader.options()
    changed = [name for name in sorted({*now} - {"follow_links"}) if now[name] != before.get(name)]
    if changed:
        found = (
            f"{name} is {shown(now[name])} instead of {shown(before[name]) if name in before else 'absent'}"
            for name in changed
        )
        raise _others("; ".join(found))
