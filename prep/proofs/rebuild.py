"""Making single shards and the rejects file of a dataset again, from the sources that it was built from.

The id of the build must come out again, and then the digest of each file: what differs is not put in place.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tfshards.prep.area import AREA_NAME, BuildArea, Done, Layout, Reject, ShardId
from tfshards.prep.commit import read_rejects, rejects_text
from tfshards.prep.files import bytes_digest
from tfshards.prep.forecast import Forecast, forecast
from tfshards.prep.plan import IntArray
from tfshards.prep.progress import Reporter
from tfshards.prep.proofs.files import rejects_path
from tfshards.prep.proofs.restore import kind_of_source, restored_options, restored_source
from tfshards.prep.rejects import final_layouts, repeated_inputs
from tfshards.prep.shard import Job, write_shard
from tfshards.prep.sources.listing import Reader, Source
from tfshards.schemas import InputError, Manifest, Shard
from tfshards.schemas.atomic import sync_directory, write_atomically
from tfshards.schemas.reading import shown

_REMEDY = (
    "an input has other content than then, with the same size and time; give what the dataset was built "
    "from, or build it again with --overwrite"
)


def rebuild(
    folder: Path, manifest: Manifest, damaged: set[str], inputs: Source | Sequence[str]
) -> Iterator[str]:
    """Make the damaged shards, with what is beside them, and the rejects file again; yield the path of each.

    Args:
        folder: the dataset's directory, which no other process writes into.
        manifest: of the dataset.
        damaged: the paths of the files that are to be made again.
        inputs: what the dataset was built from.

    Raises:
        OptionsError: there are more inputs than the dataset was built from.
        InputError: the inputs are not those that it was built from.
    """
    kind_of_source(manifest)
    with _staging(folder) as staging:
        source = restored_source(manifest, inputs) if isinstance(inputs, Sequence) else inputs
        reader = source.stage(staging / "source")
        again = _Again(folder, manifest, reader, _plan(reader, manifest), staging)
        if rejects_path(manifest) in damaged:
            rejects = again.rejects()
            write_atomically(folder / rejects_path(manifest), rejects_text(rejects))
            yield rejects_path(manifest)
        else:
            rejects = read_rejects(folder / rejects_path(manifest)) if manifest.totals.rejected else []
        layouts = final_layouts(again.plan, rejects, restored_options(manifest))
        for split, layout in layouts.items():
            for place, numbers in enumerate(layout):
                shard = manifest.splits[split].shards[place]
                if shard.path in damaged:
                    again.write("final", ShardId(split, place), numbers, shard)
                    for path in (*shard.beside, shard.path):
                        if path in damaged:
                            (folder / path).parent.mkdir(exist_ok=True)
                            (again.area.out / path).replace(folder / path)
                            sync_directory((folder / path).parent)
                            yield path


@dataclass(frozen=True)
class _Again:
    """A build of which single files are made again.

    Attributes:
        folder: the dataset's directory.
        manifest: of the dataset.
        reader: of the source.
        plan: of the build.
        staging: holds what is written until it is proved.
    """

    folder: Path
    manifest: Manifest
    reader: Reader
    plan: Forecast
    staging: Path

    @property
    def area(self) -> BuildArea:
        """A build area apart from that of builds; its output is no dataset."""
        return BuildArea(self.staging / "out", self.manifest.build_id)

    def write(self, layout: Layout, shard: ShardId, numbers: IntArray, proof: Shard | None = None) -> Done:
        """Write one shard of these examples into the area, and prove that it is ``proof``."""
        self.area.open()
        self.area.write_plan(layout, shard, self.plan.listing.rows(numbers))
        job = Job(
            self.area,
            self.reader,
            self.plan.listing.schema,
            layout,
            self.manifest.name,
            {split: len(shards) for split, shards in self.plan.layouts.items()},
            Reporter(),
            layout == "first" and "duplicates" in self.manifest.options,
            self.manifest.compression,
        )
        write_shard(job, shard)
        done = self.area.read_done(layout, shard)
        assert done is not None
        if proof and done.shard != proof:
            raise InputError(
                f"{proof.path}: the inputs give other bytes than were written, of digest {done.shard.digest} "
                f"instead of {proof.digest}; {_REMEDY}"
            )
        return done

    def rejects(self) -> list[Reject]:
        """Return the rejected inputs, for which every input is read; prove that they are those of then."""
        first: dict[ShardId, Done] = {}
        for split, layout in self.plan.layouts.items():
            for place, numbers in enumerate(layout):
                shard = ShardId(split, place)
                first[shard] = self.write("first", shard, numbers)
                # only what was rejected is wanted
                (self.area.out / first[shard].shard.path).unlink()
        found = [reject for done in first.values() for reject in done.rejected]
        found += repeated_inputs(self.plan, first, restored_options(self.manifest), lambda _: None)
        if bytes_digest(rejects_text(found)) != self.manifest.rejects_digest:
            raise InputError(
                f"{rejects_path(self.manifest)}: other inputs are rejected now than then, or for other "
                f"reasons; {_REMEDY}"
            )
        return found


def _plan(reader: Reader, manifest: Manifest) -> Forecast:
    """Return the forecast of the build that made the dataset.

    Raises:
        InputError: the inputs, or what reads them, are not those of then.
    """
    seed = manifest.options.get("seed")
    assert isinstance(seed, int)
    plan = forecast(reader, manifest.name, None, seed, restored_options(manifest))
    if plan.build_id != manifest.build_id:
        found = "; ".join(_differences(plan, manifest))
        raise InputError(
            f"the inputs are not what the dataset was built from: {found} (build {manifest.build_id}, this "
            f"would be {plan.build_id}); give what it was built from, or build it again with --overwrite"
        )
    return plan


def _differences(plan: Forecast, manifest: Manifest) -> Iterator[str]:
    """Yield what is other than it was when the dataset was built."""
    names = sorted({*plan.options, *manifest.options})
    changed = [name for name in names if plan.options.get(name) != manifest.options.get(name)]
    for name in changed:
        both = (plan.options, manifest.options)
        now, then = (shown(options[name]) if name in options else "absent" for options in both)
        yield f"{name} is {now}, was {then}"
    if plan.listing.schema != manifest.schema:
        yield "features or class names are others"
    inputs, before = plan.listing.num_examples, manifest.totals.accepted + manifest.totals.rejected
    if inputs != before:
        yield f"there are {inputs:,} inputs, were {before:,}"
    elif not changed and plan.listing.schema == manifest.schema:
        yield "names, sizes, modification times, labels or skipped entries are others"


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """Give a folder in the dataset's, on the same file system, for as long as a repair takes."""
    area = folder / AREA_NAME
    try:
        area.mkdir(exist_ok=True)
        # builds take such folders away if a process has left them
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
            # a build that was stopped may have its own things there
            area.rmdir()
