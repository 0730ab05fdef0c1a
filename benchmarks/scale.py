"""Measure what one process does in a build: list a folder of images, plan, write the plan files, and commit.

    python benchmarks/scale.py --folder FOLDER
    python benchmarks/scale.py --reshard

The second command measures what ``reshard`` does before its first shard. ``--keep`` builds the images that an
earlier command left in FOLDER, or creates and leaves them.

The images are hard links to a few sparse files: the folder holds real entries, which the file system lists
and describes one by one, but which need no room for content. No worker reads it: sparse files of their sizes
and records like a worker's stand for the shards.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import measure
import numpy as np

if TYPE_CHECKING:
    from tfshards.prep.sources.base import Reader
    from tfshards.prep.writing.build_folder import ShardId
    from tfshards.prep.writing.shard import ShardTask

COUNTS = (100_000, 1_000_000, 10_000_000)
CLASSES = 1_000
# of ext4, less some
LINKS_PER_FILE = 60_000
SMALLEST, LARGEST = 50_000, 150_000
# of a dataset that is resharded: shards, records in each, and new shards
OLD_SHARDS, SHARD_RECORDS, NEW_SHARDS = 10_000, 10_000, 8_000
BUILD_HEAD = ("inputs", "list", "plan", "write plan files", "commit", "process")
BUILD_HEAD += ("peak RSS, MB", "shards", "plan files, MB")
RESHARD_HEAD = ("records", "process", "peak RSS, MB", "new shards", "plan files, MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="numbers of images")
    parser.add_argument("--folder", type=Path, help="where to create them (default: a temporary folder)")
    parser.add_argument("--keep", action="store_true", help="build the images that are in the folder")
    parser.add_argument("--reshard", action="store_true", help="measure a reshard")
    options = parser.parse_args()
    head, rows = RESHARD_HEAD if options.reshard else BUILD_HEAD, []
    for count in options.counts if not options.reshard else [OLD_SHARDS * SHARD_RECORDS]:
        with _folder(options.folder, keep=options.keep) as folder:
            if options.reshard:
                make_dataset(folder / "old")
            elif not (folder / "images").exists():
                make_images(folder, count)
            task = "plan-reshard" if options.reshard else "build"
            whole = measure.measure([sys.executable, __file__, task, str(folder)], Path.cwd())
        found = json.loads(whole.output.splitlines()[-1])
        row = [f"{count:,}", *(f"{wall:.1f} ({cpu:.1f})" for wall, cpu in found["steps"].values())]
        row += [f"{whole.wall:.1f} ({whole.cpu:.1f})", f"{whole.rss / measure.MB:,.0f}"]
        row += [f"{found['shards']:,}", f"{found['plan_bytes'] / measure.MB:,.0f}"]
        rows.append(row)
        print(" | ".join(row), file=sys.stderr, flush=True)
    print(f"\n{measure.table(head, rows)}\n\nSeconds of wall time, and of CPU time in brackets.")
    print(measure.footnote(["tfshards", "numpy"]))


def make_images(folder: Path, count: int) -> None:
    """Create ``count`` images in class folders below ``folder / "images"``."""
    (folder / "files").mkdir()
    num_files = max(CLASSES, -(-count // LINKS_PER_FILE))
    files = [str(folder / "files" / str(number)) for number in range(num_files)]
    for number, path in enumerate(files):
        with open(path, "wb") as file:
            file.truncate(SMALLEST + number * 7_919 % (LARGEST - SMALLEST))
    for index in range(CLASSES):
        inside = f"{folder}/images/class{index:04d}"
        os.makedirs(inside)
        for number in range(index, count, CLASSES):
            os.link(files[number * 31 % num_files], f"{inside}/image{number:09d}.jpg")


def build(folder: Path) -> dict[str, object]:
    """Build the images in ``folder`` with an engine that only pretends to, and return what each step took.

    The engine leaves sparse shards and their records, as workers would; its time does not count.
    """
    from tfshards import prep
    from tfshards.prep.building import build as steps
    from tfshards.prep.engines.work import Work
    from tfshards.schemas.storage import LocalPath

    clock = _Clock()
    dataset = folder / "dataset"
    options = prep.Options(splits={"train": 0.9, "val": 0.1})
    make_plan, plan_files = steps.make_plan, []

    def timed_plan(reader: Reader, *arguments: object) -> object:
        listing = reader.listing()
        clock.end("list")
        plan = make_plan(reader, *arguments, listing)
        clock.end("plan")
        return plan

    def pretend(work: Work) -> None:
        clock.end("write")
        task = work.function.args[0]
        for shard in work.items:
            plan_files.append(task.folder.note_path(shard, "plan").stat().st_size)
            leave_shard(task, shard)
        clock.start()

    steps.make_plan = timed_plan
    steps.find_run = lambda *_: pretend
    # the shards are sparse, and so are the images
    LocalPath.require_space = lambda *_: None
    prep.build(prep.ImageFolder(folder / "images"), dataset, options=options)
    clock.end("commit")
    shutil.rmtree(dataset)
    return {"steps": clock.steps, "shards": len(plan_files), "plan_bytes": sum(plan_files)}


def leave_shard(task: ShardTask, shard: ShardId) -> None:
    """Leave in the folder of the build what a worker leaves of a shard, with sparse or empty files."""
    from tfshards.prep.writing.build_folder import FinishedShard, plan_digest
    from tfshards.schemas import Shard

    folder = task.folder
    path, plan = f"{folder.name}/{task.shard_name(shard)}", folder.read_plan(shard)
    sizes = json.loads(plan)[2]
    described = Shard(
        path=path,
        num_examples=len(sizes),
        num_bytes=sum(sizes),
        record_bytes=sum(sizes),
        digest=f"sha256:{shard.shard_index:064x}",
        index_digest=f"sha256:{1:064x}",
        examples_digest=f"{shard.shard_index:016x}",
        last_bytes="00" * 8,
        labels_digest=f"sha256:{2:064x}",
        keys_digest=f"sha256:{3:064x}",
    )
    for each in described.files:
        with (folder.dataset / each).open("wb") as file:
            file.truncate(described.num_bytes if each == path else 0)
    folder.write_finished(shard, FinishedShard(described, plan_digest(plan), plan_digest(plan)))


@contextmanager
def _folder(where: Path | None, *, keep: bool) -> Iterator[Path]:
    """Yield the folder ``where``, or a temporary one in it."""
    if keep and where:
        where.mkdir(exist_ok=True)
        yield where
        return
    with tempfile.TemporaryDirectory(dir=where, prefix="scale-") as folder:
        yield Path(folder)


def make_dataset(folder: Path) -> None:
    """Create a dataset of sparse shards, whose indexes are hard links to one file."""
    from tfshards.schemas import Feature, Manifest, Schema, Shard, Split, Totals
    from tfshards.schemas.digests import bytes_digest
    from tfshards.schemas.index import RecordIndex, companion_path, keys_bytes

    rng = np.random.default_rng(0)
    index = RecordIndex(rng.integers(SMALLEST, LARGEST, SHARD_RECORDS))
    text = index.to_text().encode("ascii")
    (folder / "0123abcd" / "index").mkdir(parents=True)
    (folder / "index.idx").write_bytes(text)
    # the same keys in each shard: planning does not compare them
    keys = keys_bytes([b"%d" % number for number in range(SHARD_RECORDS)])
    (folder / "index.keys").write_bytes(keys)
    shards = []
    for number in range(OLD_SHARDS):
        path = f"0123abcd/old-train.tfrecord-{number:05d}-of-{OLD_SHARDS:05d}"
        with (folder / path).open("wb") as file:
            file.truncate(index.num_bytes)
        os.link(folder / "index.idx", folder / companion_path(path, "idx"))
        os.link(folder / "index.keys", folder / companion_path(path, "keys"))
        digest = f"sha256:{number:064x}"
        shards.append(
            Shard(
                path=path,
                num_examples=SHARD_RECORDS,
                num_bytes=index.num_bytes,
                record_bytes=index.num_bytes,
                digest=digest,
                index_digest=bytes_digest(text),
                examples_digest=f"{number:016x}",
                last_bytes="00" * 8,
                labels_digest="",
                keys_digest=bytes_digest(keys),
            )
        )
    count = OLD_SHARDS * SHARD_RECORDS
    schema = Schema((Feature("image", "image", "uint8", (None, None, 3)), Feature("key", "bytes", "bytes")))
    splits = {"train": Split(tuple(shards))}
    manifest = Manifest("old", "0123abcd", "0123abcd", schema, splits, Totals(count, count))
    (folder / "dataset.json").write_text(manifest.to_text())


def plan_reshard(folder: Path) -> dict[str, object]:
    """Reshard the dataset ``old`` until its shards are handed to an engine."""
    from tfshards.prep.deriving import reshard as steps
    from tfshards.schemas import TfshardsError
    from tfshards.schemas.storage import LocalPath

    class PlannedError(TfshardsError):
        """The plan is made."""

    def end(work: object) -> None:
        raise PlannedError("planned")

    steps.find_run = lambda *_: end
    # the sparse files claim more space than a disk has
    LocalPath.require_space = lambda *_: None
    try:
        steps.reshard(folder / "old", folder / "new", shards=NEW_SHARDS)
    except PlannedError:
        plans = [path.stat().st_size for path in folder.rglob("*.plan")]
        return {"steps": {}, "shards": len(plans), "plan_bytes": sum(plans)}
    raise AssertionError("the reshard had nothing to do")


class _Clock:
    """Wall time and CPU time of steps."""

    def __init__(self) -> None:
        self.steps: dict[str, tuple[float, float]] = {}
        self.start()

    def start(self) -> None:
        self._before = time.perf_counter(), time.process_time()

    def end(self, step: str) -> None:
        wall, cpu = self._before
        self.start()
        self.steps[step] = self._before[0] - wall, self._before[1] - cpu


if __name__ == "__main__":
    tasks = {"build": build, "plan-reshard": plan_reshard}
    if sys.argv[1:2] and sys.argv[1] in tasks:
        print(json.dumps(tasks[sys.argv[1]](Path(sys.argv[2]))))
    else:
        main()
