"""Rebuild single shards and the rejects file of a dataset from the inputs that it was built from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from tfshards.prep.building.commit import read_rejects, rejects_text
from tfshards.prep.building.inputs_file import read_inputs
from tfshards.prep.building.rejects import final_layouts, repeated_inputs
from tfshards.prep.building.restore import kind_of_source, restored_options, restored_source
from tfshards.prep.imaging.options import with_all_images
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.planning.make_plan import make_plan
from tfshards.prep.planning.options import Options, ShardCounts
from tfshards.prep.planning.plan import Plan
from tfshards.prep.progress.lines import Reporter
from tfshards.prep.sources.base import Listing, Reader, Source
from tfshards.prep.sources.keys import to_text
from tfshards.prep.writing.area import BuildArea, FinishedShard, Phase, Reject, ShardId
from tfshards.prep.writing.shard import ShardTask, write_shard
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
    """The shards of one build of a dataset.

    Attributes:
        manifest: manifest of the dataset with the id, the options and the shards of this build.
        rejected: keys of the inputs that this build rejected; None if they are those in the rejects file.
        options: options of the build that determine which inputs are in which shard.
        seed: random seed of the build.
    """

    manifest: Manifest
    rejected: frozenset[str] | None
    options: Options
    seed: int


def parts_of(folder: AnyPath, manifest: Manifest) -> list[BuildPart]:
    """Return the parts of a dataset: what the build wrote, then what each append wrote.

    Raises:
        InputError: examples were appended, and the rejects file cannot be read.
    """
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
        balance = restored_options(part).balance
        parts.append(BuildPart(part, frozenset(append.rejected), Options(balance=balance), 0))
    return parts


def _only(
    manifest: Manifest, build_id: str, options: Mapping[str, Json], shards: Sequence[Shard]
) -> Manifest:
    """Return the manifest with only these shards."""
    kept = {shard.path for shard in shards}
    splits = {
        name: Split(tuple(shard for shard in split.shards if shard.path in kept))
        for name, split in manifest.splits.items()
    }
    splits = {name: split for name, split in splits.items() if split.shards}
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

    Args:
        folder: the dataset's folder, which no other process writes into.
        manifest: the dataset's manifest.
        damaged: the paths of the files to rebuild.
        inputs: inputs that the dataset was built from; more of them, or only those of one part.
        faults: receives why a shard cannot be rebuilt, by its path.

    Raises:
        OptionsError: there are more inputs than the dataset was built from.
        InputError: the inputs are not those that the dataset was built from.
    """
    kind_of_source(manifest)
    parts = parts_of(folder, manifest)
    with staged_folder(folder) as staging:
        for name in ("source", "out"):
            (staging / name).mkdir()
        reader = _source(manifest, inputs, staging / "names").stage(staging / "source")
        listing = reader.listing()
        name = rejects_name(manifest.build_id)
        for number, part in enumerate(parts):
            shards = {shard.path for shard in part.manifest.shards}
            if not damaged & (shards if manifest.made.appends else {*shards, name}):
                continue
            try:
                plan, is_there = _plan(folder, reader, listing, part)
            except InputError as error:
                # the inputs may be those of another part
                faults.update(dict.fromkeys(damaged & {*shards, name}, error))
                continue
            build = Rebuild(folder, part.manifest, reader, plan, staging / f"part{number}")
            if part.rejected is not None:
                rejects = [Reject(key, "", "", 0) for key in sorted(part.rejected)]
            elif name in damaged:
                rejects = build.rejects()
                write_files(folder, {name: rejects_text(rejects)})
                yield name
            else:
                rejects = read_rejects(folder / name) if manifest.totals.rejected else []
            for shard, numbers, expected in _expected(part, plan, rejects):
                if expected.path not in damaged:
                    continue
                try:
                    _check_there(expected.path, plan.listing, numbers, is_there, inputs)
                    yield from build.replace(shard, numbers, expected, damaged)
                except InputError as error:
                    # the inputs of the other shards may be unchanged
                    faults[expected.path] = error
    if faults and faults.keys() >= damaged & {shard.path for shard in manifest.shards}:
        raise next(iter(faults.values()))


def _source(manifest: Manifest, inputs: Source | Sequence[str], staging: Path) -> Source:
    """Return the source of the inputs, with the class names of the dataset and any new ones after them."""
    names = manifest.schema.class_names
    nameless = replace(manifest, schema=replace(manifest.schema, class_names=()))
    source = restored_source(nameless, inputs, is_grown=True) if isinstance(inputs, Sequence) else inputs
    if not names:
        return source
    staging.mkdir()
    found = source.stage(staging, preview=True).listing().schema.class_names
    return source.with_class_names((*names, *(name for name in found if name not in names)))


def _expected(
    part: BuildPart, plan: Plan, rejects: Sequence[Reject]
) -> Iterator[tuple[ShardId, IntArray, Shard]]:
    """Yield each shard of a part with the numbers of its inputs, and its entry in the manifest."""
    for split, layout in final_layouts(plan, rejects, part.options, may_be_empty=True).items():
        for index, numbers in enumerate(layout):
            yield ShardId(split, index), numbers, part.manifest.splits[split].shards[index]


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


@dataclass(frozen=True)
class Rebuild:
    """The rebuilding of single files of a dataset.

    Attributes:
        folder: the dataset's folder.
        manifest: the dataset's manifest.
        reader: the source's reader.
        plan: the plan of the build.
        staging: holds new files until they are verified.
    """

    folder: Path
    manifest: Manifest
    reader: Reader
    plan: Plan
    staging: Path

    @cached_property
    def area(self) -> BuildArea:
        """A build area separate from the one that builds use; its output is not a dataset."""
        return BuildArea(self.staging / "out", self.manifest.build_id)

    def write(
        self, phase: Phase, shard: ShardId, numbers: IntArray, expected: Shard | None = None
    ) -> FinishedShard:
        """Write one shard of these examples into the area, and check that it is the expected one."""
        self.area.open()
        self.area.write_plan(phase, shard, self.plan.listing.columns(numbers))
        task = ShardTask(
            area=self.area,
            reader=self.reader,
            schema=self.plan.listing.schema,
            phase=phase,
            name=self.manifest.name,
            num_shards={split: len(shards) for split, shards in self.plan.layouts.items()},
            reporter=Reporter(),
            finds_duplicates=phase == "first" and "duplicates" in self.manifest.options,
            compression=self.manifest.compression,
        )
        write_shard(task, shard)
        done = self.area.read_finished(phase, shard)
        assert done is not None
        if expected and done.shard != expected:
            raise InputError(
                "repair-differs",
                path=expected.path,
                digest=done.shard.digest,
                digest2=expected.digest,
                remedy=_REMEDY,
            )
        return done

    def replace(self, shard: ShardId, numbers: IntArray, expected: Shard, damaged: set[str]) -> Iterator[str]:
        """Write one shard, and replace those of its files that are damaged; yield the path of each."""
        self.write("final", shard, numbers, expected)
        for path in (*expected.companion_digests, expected.path):
            if path in damaged:
                make_folder(self.folder, path)
                os.replace(str(self.area.shards / path), self.folder / path)
                sync_directory((self.folder / path).parent)
                yield path

    def rejects(self) -> list[Reject]:
        """Read every input, return the rejected ones, and check that they equal the dataset's."""
        first: dict[ShardId, FinishedShard] = {}
        for split, layout in self.plan.layouts.items():
            for index, numbers in enumerate(layout):
                shard = ShardId(split, index)
                first[shard] = self.write("first", shard, numbers)
                # only the rejected inputs are needed
                (self.area.shards / first[shard].shard.path).unlink()
        found = [reject for done in first.values() for reject in done.rejected]
        found += repeated_inputs(self.plan, first, restored_options(self.manifest), lambda _: None)
        if bytes_digest(rejects_text(found)) != self.manifest.rejects_digest:
            raise InputError(
                "repair-rejects-differ", rejects_name=rejects_name(self.manifest.build_id), remedy=_REMEDY
            )
        return found


def _plan(folder: Path, reader: Reader, now: Listing, part: BuildPart) -> tuple[Plan, BoolArray]:
    """Return the plan of the build that wrote a part, and for each of its inputs whether it is still there.

    The plan is made from the inputs that the build recorded, or from ``now`` if there is no record.

    Raises:
        InputError: the options differ, for example by the release of Pillow, or without a record the inputs.
    """
    manifest, options = part.manifest, part.options
    recorded = read_inputs(folder, manifest.build_id)
    listing = replace(now, schema=manifest.schema)
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
    _check_options(reader, manifest)
    if recorded is None:
        _check_splits(now, part)
    plan = make_plan(
        reader, manifest.name, ShardCounts(None, manifest.made.shards), part.seed, options, listing
    )
    if recorded is None:
        if plan.inputs_digest != manifest.inputs_digest or now.schema != manifest.schema:
            raise _others(_difference(plan, now, manifest))
        return plan, np.ones(now.num_examples, np.bool_)
    found = [now.find(to_text(key)) for key in recorded.keys]
    numbers = np.array([-1 if number is None else number for number in found], np.int64)
    is_there = numbers >= 0
    if not is_there.any():
        raise _others(f"{to_text(recorded.keys[0])!r} and all others are missing")
    # readers refuse a file of another size or time than it is listed with; its digest decides
    listing = replace(listing, sizes=now.sizes[numbers], stamps=now.stamps[numbers])
    return replace(plan, listing=listing), is_there


def _others(difference: str) -> InputError:
    return InputError("inputs-differ", difference=difference)


def _check_options(reader: Reader, manifest: Manifest) -> None:
    """Raise InputError if options of the source, or the libraries that read it, differ from the build."""
    before, now = with_all_images(manifest.options), reader.options()
    ignored = {"follow_links"}
    if "conversion" not in before:
        # of an earlier release; digests decide
        ignored.add("conversion")
    changed = [name for name in sorted({*now} - ignored) if now[name] != before.get(name)]
    if changed:
        found = (
            f"{name} is {shown(now[name])} instead of {shown(before[name]) if name in before else 'absent'}"
            for name in changed
        )
        raise _others("; ".join(found))


def _check_splits(now: Listing, part: BuildPart) -> None:
    splits = part.manifest.splits
    lacking = [] if part.options.splits else sorted({*splits} - {*(now.splits or ["train"])})
    if lacking:
        raise _others(f"they have no split {lacking[0]!r}")


def _difference(plan: Plan, now: Listing, manifest: Manifest) -> str:
    inputs, before = plan.listing.num_examples, manifest.totals.accepted + manifest.totals.rejected
    if inputs != before:
        return f"{inputs:,} inputs instead of {before:,}"
    if now.schema != manifest.schema:
        return "features or class names differ"
    return "names, sizes, labels or splits differ"
