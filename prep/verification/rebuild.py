"""Rebuild single shards and the rejects file of a dataset from the inputs that it was built from.

The build id and the digest of each file must be the same as before; a file that differs replaces nothing.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tfshards.prep.building.commit import read_rejects, rejects_text
from tfshards.prep.building.rejects import final_layouts, repeated_inputs
from tfshards.prep.building.restore import kind_of_source, restored_options, restored_shards, restored_source
from tfshards.prep.planning.plan import Plan, make_plan
from tfshards.prep.progress.lines import Reporter
from tfshards.prep.sources.base import Reader, Source
from tfshards.prep.writing.area import AREA_NAME, BuildArea, FinishedShard, Phase, Reject, ShardId
from tfshards.prep.writing.shard import ShardTask, write_shard
from tfshards.schemas import InputError, Manifest, Shard
from tfshards.schemas.files import bytes_digest, sync_directory, write_atomically
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import shown
from tfshards.schemas.names import rejects_name

_REMEDY = (
    "the content of an input has changed, but not its size and modification time; give the inputs that the "
    "dataset was built from, or replace the dataset with a new build"
)


def rebuild(
    folder: Path, manifest: Manifest, damaged: set[str], inputs: Source | Sequence[str]
) -> Iterator[str]:
    """Rebuild damaged shards, their companions and the rejects file; yield the path of each.

    Args:
        folder: the dataset's folder, which no other process writes into.
        manifest: the dataset's manifest.
        damaged: the paths of the files to rebuild.
        inputs: inputs that the dataset was built from.

    Raises:
        OptionsError: there are more inputs than the dataset was built from.
        InputError: the inputs are not those that the dataset was built from.
    """
    kind_of_source(manifest)
    with staging_folder(folder) as staging:
        source = restored_source(manifest, inputs) if isinstance(inputs, Sequence) else inputs
        reader = source.stage(staging / "source")
        build = Rebuild(folder, manifest, reader, _plan(reader, manifest), staging)
        name = rejects_name(manifest.build_id)
        if name in damaged:
            rejects = build.rejects()
            write_atomically(folder / name, rejects_text(rejects))
            yield name
        else:
            rejects = read_rejects(folder / name) if manifest.totals.rejected else []
        layouts = final_layouts(build.plan, rejects, restored_options(manifest))
        for split, layout in layouts.items():
            for index, numbers in enumerate(layout):
                shard = manifest.splits[split].shards[index]
                if shard.path in damaged:
                    yield from build.replace(ShardId(split, index), numbers, shard, damaged)


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
        """The build area, separate from that of builds; its output is not a dataset."""
        return BuildArea(self.staging / "out", self.manifest.build_id)

    def write(
        self, phase: Phase, shard: ShardId, numbers: IntArray, expected: Shard | None = None
    ) -> FinishedShard:
        """Write one shard of these examples into the area, and check that it is the expected one."""
        self.area.open()
        self.area.write_plan(phase, shard, self.plan.listing.rows(numbers))
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
                f"{expected.path}: the inputs now give bytes of digest {done.shard.digest} instead of "
                f"{expected.digest}; {_REMEDY}"
            )
        return done

    def replace(self, shard: ShardId, numbers: IntArray, expected: Shard, damaged: set[str]) -> Iterator[str]:
        """Write one shard, and replace those of its files that are damaged; yield the path of each."""
        self.write("final", shard, numbers, expected)
        for path in (*expected.companion_digests, expected.path):
            if path in damaged:
                (self.folder / path).parent.mkdir(exist_ok=True)
                (self.area.out / path).replace(self.folder / path)
                sync_directory((self.folder / path).parent)
                yield path

    def rejects(self) -> list[Reject]:
        """Read every input, return the rejected ones, and check that they are those of the dataset."""
        first: dict[ShardId, FinishedShard] = {}
        for split, layout in self.plan.layouts.items():
            for index, numbers in enumerate(layout):
                shard = ShardId(split, index)
                first[shard] = self.write("first", shard, numbers)
                # only the rejected inputs are needed
                (self.area.out / first[shard].shard.path).unlink()
        found = [reject for done in first.values() for reject in done.rejected]
        found += repeated_inputs(self.plan, first, restored_options(self.manifest), lambda _: None)
        if bytes_digest(rejects_text(found)) != self.manifest.rejects_digest:
            raise InputError(
                f"{rejects_name(self.manifest.build_id)}: the rejected inputs, or the reasons, differ from "
                f"those in the dataset; {_REMEDY}"
            )
        return found


def _plan(reader: Reader, manifest: Manifest) -> Plan:
    """Return the plan of the build that made the dataset.

    Raises:
        InputError: the inputs, or the libraries that read them, have changed.
    """
    seed = manifest.options.get("seed")
    assert isinstance(seed, int)
    options, listing = restored_options(manifest), reader.listing()
    lacking = [] if options.splits else sorted({*manifest.splits} - {*(listing.splits or ["train"])})
    if lacking:
        raise InputError(
            f"these are not the inputs that the dataset was built from: they have no split {lacking[0]!r}; "
            "give those, or replace the dataset with a new build"
        )
    plan = make_plan(reader, manifest.name, restored_shards(manifest), seed, options, listing)
    if plan.build_id != manifest.build_id:
        found = "; ".join(_differences(plan, manifest))
        raise InputError(
            f"these are not the inputs that the dataset was built from: {found} (build {manifest.build_id}, "
            f"this would be {plan.build_id}); give those, or replace the dataset with a new build"
        )
    return plan


def _differences(plan: Plan, manifest: Manifest) -> Iterator[str]:
    """Yield what differs from the build that made the dataset."""
    names = sorted({*plan.options, *manifest.options})
    changed = [name for name in names if plan.options.get(name) != manifest.options.get(name)]
    for name in changed:
        both = (plan.options, manifest.options)
        now, then = (shown(options[name]) if name in options else "absent" for options in both)
        yield f"{name} is {now} instead of {then}"
    if plan.listing.schema != manifest.schema:
        yield "features or class names differ"
    inputs, before = plan.listing.num_examples, manifest.totals.accepted + manifest.totals.rejected
    if inputs != before:
        yield f"{inputs:,} inputs instead of {before:,}"
    elif not changed and plan.listing.schema == manifest.schema:
        yield "names, sizes, modification times, labels or skipped entries differ"


@contextmanager
def staging_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder inside the dataset, so that it is on the same file system."""
    area = folder / AREA_NAME
    try:
        area.mkdir(exist_ok=True)
        # builds remove folders of this name if a killed process left them
        staging = Path(tempfile.mkdtemp(prefix="staged-", dir=area))
        (staging / "source").mkdir()
        (staging / "out").mkdir()
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from None
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        with suppress(OSError):
            # not empty if an interrupted build has files in it
            area.rmdir()
