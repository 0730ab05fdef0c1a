"""Measure what a build does before its first shard: list a folder of images, plan, and write the plan files.

    python benchmarks/scale.py --folder FOLDER
    python benchmarks/scale.py --reshard

The second command measures what ``reshard`` does before its first shard.

The images are hard links to a few sparse files: the folder holds real entries, which the file system lists
and describes one by one, but which need no room for content, since nothing before the build reads it.
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
from pathlib import Path

import measure
import numpy as np

COUNTS = (100_000, 1_000_000, 10_000_000)
CLASSES = 1_000
# of ext4, less some
LINKS_PER_FILE = 60_000
SMALLEST, LARGEST = 50_000, 150_000
MAX_SECONDS, MAX_MB = 120, 3_000
# of the time per input, of the largest count over the smallest; the start of the interpreter is not counted
MAX_GROWTH = 1.5
# of a dataset that is resharded: shards, records in each, and new shards
OLD_SHARDS, SHARD_RECORDS, NEW_SHARDS = 10_000, 10_000, 8_000
MAX_RESHARD_SECONDS, MAX_RESHARD_MB = 10, 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="numbers of images")
    parser.add_argument("--folder", type=Path, help="where to create them (default: a temporary folder)")
    parser.add_argument("--planned", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--reshard", action="store_true", help="measure a reshard")
    parser.add_argument("--resharded", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.resharded:
        print(json.dumps(plan_reshard(options.resharded)))
        return
    if options.reshard:
        measure_reshard(options.folder)
        return
    if options.planned:
        print(json.dumps(plan(options.planned)))
        return
    rows, per_input = [], []
    for count in options.counts:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="scale-") as folder:
            started = time.perf_counter()
            make_images(Path(folder), count)
            print(f"{count:,} images made in {time.perf_counter() - started:.0f} s", file=sys.stderr)
            load = os.getloadavg()[0]
            command = [sys.executable, __file__, "--planned", folder]
            whole = measure.measure(command, Path.cwd())
            found = json.loads(whole.output.splitlines()[-1])
            print(f"{count:,}: {whole.wall:.1f} s; removing them", file=sys.stderr)
        seconds, cpu = found["seconds"], found["cpu"]
        per_input.append(sum(cpu.values()) / count)
        row = [
            f"{count:,}",
            *(f"{seconds[step]:.1f} ({cpu[step]:.1f})" for step in ("list", "plan", "write")),
        ]
        row += [f"{whole.wall:.1f}", f"{whole.cpu:.1f}", f"{whole.rss / measure.MB:,.0f}"]
        row += [f"{found['shards']:,}", f"{found['plan_bytes'] / measure.MB:,.0f}", f"{load:.1f}"]
        rows.append(row)
        print(" | ".join(row), file=sys.stderr, flush=True)
    head = ["inputs", "list, s (CPU)", "plan, s (CPU)", "write plan files, s (CPU)", "wall, s", "CPU, s"]
    print(f"\n{measure.table([*head, 'peak RSS, MB', 'shards', 'plan files, MB', 'load'], rows)}\n")
    print(measure.goal(f"{count:,} inputs: seconds", whole.wall, MAX_SECONDS))
    print(measure.goal(f"{count:,} inputs: MB at the peak", whole.rss / measure.MB, MAX_MB))
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


def plan(folder: Path) -> dict[str, object]:
    """List and plan the images in ``folder``, write the plan files, and return what each step took."""
    from tfshards.prep import ImageFolder, Options
    from tfshards.prep.planning.make_plan import make_plan
    from tfshards.prep.planning.options import ShardCounts
    from tfshards.prep.writing.area import BuildArea, ShardId

    clock = _Clock()
    source = ImageFolder(folder / "images")
    listing = source.listing()
    clock.end("list")
    found = make_plan(
        source, "scale", ShardCounts(), 0, Options(splits={"train": 0.9, "val": 0.1}), listing=listing
    )
    clock.end("plan")
    area = BuildArea(folder / "dataset", found.plan_id)
    area.open()
    for split, layout in found.layouts.items():
        for index, numbers in enumerate(layout):
            area.write_plan("first", ShardId(split, index), listing.columns(numbers))
    clock.end("write")
    plan_files = [path.stat().st_size for path in area.root.rglob("*.plan")]
    shutil.rmtree(area.out)
    return {
        "seconds": clock.seconds,
        "cpu": clock.cpu,
        "shards": len(plan_files),
        "plan_bytes": sum(plan_files),
    }


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
    from tfshards.schemas.files import bytes_digest
    from tfshards.schemas.index import RecordIndex, index_path
    from tfshards.schemas.manifest_file import write_manifest

    rng = np.random.default_rng(0)
    index = RecordIndex(rng.integers(SMALLEST, LARGEST, SHARD_RECORDS))
    text = index.to_text().encode("ascii")
    (folder / "index").mkdir(parents=True)
    (folder / "index.idx").write_bytes(text)
    shards = []
    for number in range(OLD_SHARDS):
        path = f"old-train-0123abcd.tfrecord-{number:05d}-of-{OLD_SHARDS:05d}"
        with (folder / path).open("wb") as file:
            file.truncate(index.num_bytes)
        os.link(folder / "index.idx", folder / index_path(path))
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
            )
        )
    count = OLD_SHARDS * SHARD_RECORDS
    schema = Schema((Feature("image", "image", "uint8", (None, None, 3)), Feature("key", "bytes", "bytes")))
    splits = {"train": Split(tuple(shards))}
    write_manifest(Manifest("old", "0123abcd", schema, splits, Totals(count, count)), folder)


def plan_reshard(folder: Path) -> dict[str, int]:
    """Reshard the dataset ``old`` until its shards are handed to an engine."""
    from tfshards.prep import reshard
    from tfshards.prep.engines import local
    from tfshards.prep.rewriting import write

    class PlannedError(Exception):
        """The plan is made."""

    def end(work: object, arguments: object = ()) -> None:
        raise PlannedError

    local.run = end
    # the sparse files claim more space than a disk has
    write.require_space = lambda *_: None
    try:
        reshard(folder / "old", folder / "new", shards=NEW_SHARDS)
    except PlannedError:
        plans = [path.stat().st_size for path in folder.rglob("*.plan")]
        return {"plans": len(plans), "plan_bytes": sum(plans)}
    raise AssertionError("the reshard had nothing to do")


class _Clock:
    """Wall time and CPU time of steps."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
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
