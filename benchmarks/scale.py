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
import resource
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
# of ten million images; for a hundred million the goals are 30 minutes and 20 GiB
MAX_SECONDS, MAX_MB = 180, 2_147
BUILD_STEPS = ("list", "plan", "write", "commit")
# of the time per input, of the largest count over the smallest; the start of the interpreter is not counted
MAX_GROWTH = 1.5
# of a dataset that is resharded: shards, records in each, and new shards
OLD_SHARDS, SHARD_RECORDS, NEW_SHARDS = 10_000, 10_000, 8_000
MAX_RESHARD_SECONDS, MAX_RESHARD_MB = 10, 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="numbers of images")
    parser.add_argument("--folder", type=Path, help="where to create them (default: a temporary folder)")
    parser.add_argument("--keep", action="store_true", help="build the images that are in the folder")
    parser.add_argument("--again", action="store_true", help="measure the same command a second time, too")
    parser.add_argument("--built", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--reshard", action="store_true", help="measure a reshard")
    parser.add_argument("--resharded", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.resharded:
        print(json.dumps(plan_reshard(options.resharded)))
        return
    if options.reshard:
        measure_reshard(options.folder)
        return
    if options.built:
        print(json.dumps(build(options.built, options.again)))
        return
    rows, per_input = [], []
    for count in options.counts:
        with _folder(options.folder, keep=options.keep) as folder:
            if not (folder / "images").exists():
                started = time.perf_counter()
                make_images(folder, count)
                print(f"{count:,} images made in {time.perf_counter() - started:.0f} s", file=sys.stderr)
            load = os.getloadavg()[0]
            command = [sys.executable, __file__, "--built", str(folder), *["--again"][: options.again]]
            output = measure.measure(command, Path.cwd()).output
            found = json.loads(output.splitlines()[-1])
        seconds, cpu = found["seconds"], found["cpu"]
        wall, used = (sum(each[step] for step in BUILD_STEPS) for each in (seconds, cpu))
        per_input.append(used / count)
        row = [f"{count:,}", *(f"{seconds[step]:.1f} ({cpu[step]:.1f})" for step in BUILD_STEPS)]
        row += [f"{wall:.1f} ({used:.1f})", f"{found['peak_mb']:,.0f}", f"{found['shards']:,}"]
        row.append(f"{found['plan_bytes'] / measure.MB:,.0f}")
        if options.again:
            row += [f"{seconds['again']:.1f} ({cpu['again']:.1f})", f"{found['again_mb']:,.0f}"]
        row.append(f"{load:.1f}")
        rows.append(row)
        print(" | ".join(row), file=sys.stderr, flush=True)
    head = ["inputs", "list, s (CPU)", "plan, s (CPU)", "write plan files, s (CPU)", "commit, s (CPU)"]
    head += ["together, s (CPU)", "peak RSS, MB", "shards", "plan files, MB"]
    head += ["again, s (CPU)", "peak RSS, MB"] if options.again else []
    print(f"\n{measure.table([*head, 'load average'], rows)}\n")
    print(measure.goal(f"{count:,} inputs: seconds", wall, MAX_SECONDS * max(1, count / COUNTS[-1])))
    most = MAX_MB * max(1, count / COUNTS[-1])
    print(measure.goal(f"{count:,} inputs: MB at the peak", found["peak_mb"], most))
    growth = per_input[-1] / per_input[0]
    print(measure.goal("CPU time per input, of most over fewest inputs", growth, MAX_GROWTH))
    print(f"\n{measure.machine(['tfshards', 'numpy'])}")
    print(f"\n`python benchmarks/scale.py --counts {' '.join(map(str, options.counts))}`")


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


def build(folder: Path, repeats: bool) -> dict[str, object]:
    """Build the images in ``folder`` with an engine that only pretends to, and return what each step took.

    The engine leaves sparse shards and their records, as workers would; its time does not count. ``repeats``
    also measures the same command again, which finds the dataset up to date.
    """
    from tfshards import prep
    from tfshards.prep.building import build as steps
    from tfshards.prep.building import write
    from tfshards.prep.engines.table import Work

    clock = _Clock()
    images, dataset = folder / "images", folder / "dataset"
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
    write.require_space = lambda *_: None
    prep.build(prep.ImageFolder(images), dataset, options=options)
    clock.end("commit")
    found = {"peak_mb": _peak_mb(), "seconds": {**clock.seconds}, "cpu": {**clock.cpu}}
    steps.make_plan = make_plan
    if repeats:
        prep.build(prep.ImageFolder(images), dataset, options=options)
        clock.end("again")
        for name, times in (("seconds", clock.seconds), ("cpu", clock.cpu)):
            found[name]["again"] = times["again"]
        found["again_mb"] = _peak_mb()
    shutil.rmtree(dataset)
    return {**found, "shards": len(plan_files), "plan_bytes": sum(plan_files)}


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


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / measure.MB


@contextmanager
def _folder(where: Path | None, *, keep: bool) -> Iterator[Path]:
    """Yield the folder ``where``, or a temporary one in it."""
    if keep and where:
        where.mkdir(exist_ok=True)
        yield where
        return
    with tempfile.TemporaryDirectory(dir=where, prefix="scale-") as folder:
        yield Path(folder)


def measure_reshard(where: Path | None) -> None:
    """Print the time and the memory until a reshard hands its shards to an engine."""
    with tempfile.TemporaryDirectory(dir=where, prefix="scale-") as folder:
        make_dataset(Path(folder) / "old")
        load = os.getloadavg()[0]
        whole = measure.measure([sys.executable, __file__, "--resharded", folder], Path.cwd())
    found = json.loads(whole.output.splitlines()[-1])
    what = f"plan a reshard of {OLD_SHARDS:,} shards, {OLD_SHARDS * SHARD_RECORDS:,} records"
    row = [what, f"{whole.wall:.1f}", f"{whole.cpu:.1f}", f"{whole.rss / measure.MB:,.0f}"]
    row += [f"{found['plans']:,}", f"{found['plan_bytes'] / measure.MB:,.0f}", f"{load:.1f}"]
    head = ["what", "wall, s", "CPU, s", "peak RSS, MB", "new shards", "plan files, MB", "load average"]
    print(f"\n{measure.table(head, [row])}\n")
    print(measure.goal(f"{what}: seconds", whole.wall, MAX_RESHARD_SECONDS))
    print(measure.goal(f"{what}: MB at the peak", whole.rss / measure.MB, MAX_RESHARD_MB))
    print(f"\n{measure.machine(['tfshards', 'numpy'])}")
    print("\n`python benchmarks/scale.py --reshard`")


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


def plan_reshard(folder: Path) -> dict[str, int]:
    """Reshard the dataset ``old`` until its shards are handed to an engine."""
    from tfshards.prep.building import write
    from tfshards.prep.deriving import reshard as steps
    from tfshards.schemas import TfshardsError

    class PlannedError(TfshardsError):
        """The plan is made."""

    def end(work: object) -> None:
        raise PlannedError("planned")

    steps.find_run = lambda *_: end
    # the sparse files claim more space than a disk has
    write.require_space = lambda *_: None
    try:
        steps.reshard(folder / "old", folder / "new", shards=NEW_SHARDS)
    except PlannedError:
        plans = [path.stat().st_size for path in folder.rglob("*.plan")]
        return {"plans": len(plans), "plan_bytes": sum(plans)}
    raise AssertionError("the reshard had nothing to do")


class _Clock:
    """Wall time and CPU time of steps."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.start()

    def start(self) -> None:
        self._before = self._now()

    def end(self, step: str) -> None:
        now = self._now()
        self.seconds[step], self.cpu[step] = (after - b for after, b in zip(now, self._before, strict=True))
        self._before = now

    def _now(self) -> tuple[float, float]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return time.perf_counter(), used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
