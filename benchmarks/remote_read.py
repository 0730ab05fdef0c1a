"""Train from a bucket whose answers take a while: bytes, requests, speed, and the first batch.

    python benchmarks/remote_read.py --delay 0.05

The bucket is that of ``object_server.py``, in this process; each measurement is a process of its own. Photos
are JPEG files of noise of about 29 KB, arrays have 784 bytes. Local files are in the page cache.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import measure
import numpy as np
from object_server import BUCKET, ObjectServer, objects_of

TABLES = ("bytes", "caches", "speed")
EPOCHS = 5
# Of the bytes of a split: the limits of caches.
SHARES = (0.1, 0.3, 0.5, 0.7)
SHARDS = 16
# What S3 Standard in us-east-1 asks for 1,000 GET requests, in dollars.
PRICE = 0.0004
# The image whose JPEG file has about 29 KB.
SIDE = 304
DISTINCT = 64


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a process reads; its fields are the parameters of ``loader.load``.

    Attributes:
        source: the folder, or the URL.
        batch_size: the batch size.
        decode: the side to which images are decoded; 0 if they are not.
        epochs: the epochs.
        cache: ``cache=``.
    """

    source: str
    batch_size: int = 256
    decode: int = 0
    epochs: int = 1
    cache: str | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--delay", type=float, default=0.05, help="seconds before each answer")
    parser.add_argument("--photos", type=int, default=36_000, help="photos of 29 KB (default: 36,000)")
    parser.add_argument("--arrays", type=int, default=400_000, help="arrays of 784 bytes (default: 400,000)")
    parser.add_argument("--rounds", type=int, default=3, help="number of measured runs (default: 3)")
    parser.add_argument("--only", nargs="+", choices=TABLES, default=TABLES, help="tables to measure")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--fetch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(json.dumps(read(Reading(**json.loads(options.read)))))
        return
    if options.fetch:
        print(json.dumps(fetch(options.fetch)))
        return
    with tempfile.TemporaryDirectory(prefix="tfshards-remote-read-") as work:
        folders = {
            "photos": build_photos(Path(work), options.photos),
            "arrays": build_arrays(Path(work), options.arrays),
        }
        objects = dict(itertools.chain(*(objects_of(each, name).items() for name, each in folders.items())))
        server = ObjectServer(objects, options.delay)
        if "bytes" in options.only:
            print(report_bytes(server, folders), flush=True)
        if "caches" in options.only:
            print(report_caches(server, folders, Path(work)), flush=True)
        if "speed" in options.only:
            print(report_speed(server, folders, options.rounds), flush=True)
    print(f"\n{measure.machine(['tfshards', 'tensorflow', 'obstore', 'numpy'])}")
    print(f"load average {os.getloadavg()[0]:.1f}")
    print(
        f"\n`python benchmarks/remote_read.py --delay {options.delay} --photos {options.photos} --arrays "
        f"{options.arrays} --rounds {options.rounds} --only {' '.join(options.only)}`"
    )


def make_image(side: int, seed: int = 0) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((side, side)).save(file, "JPEG", quality=90)
    return file.getvalue()


def build_photos(work: Path, count: int) -> Path:
    images = [make_image(SIDE, seed) for seed in range(DISTINCT)]
    for number in range(count):
        path = work / "source" / f"{number % 10}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(images[number % DISTINCT])
    return build(["images", str(work / "source"), str(work / "photos"), "--check", "none"], work / "photos")


def build_arrays(work: Path, count: int) -> Path:
    random = np.random.default_rng(0)
    np.save(work / "image.npy", random.integers(0, 256, (count, 28, 28), dtype=np.uint8))
    np.save(work / "label.npy", random.integers(0, 10, count))
    names = [str(work / name) for name in ("image.npy", "label.npy", "arrays")]
    return build(["arrays", *names], work / "arrays")


def build(arguments: list[str], folder: Path) -> Path:
    command = [sys.executable, "-m", "tfshards", "build", *arguments, "--shards", str(SHARDS)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


# What a process measures


def read(reading: Reading) -> dict[str, float]:
    """Read a dataset; return times as ``time.perf_counter`` counts, and numbers of examples."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf  # noqa: F401 -- not measured

    from tfshards import loader

    begun = time.perf_counter()
    data = loader.load(
        reading.source,
        batch_size=reading.batch_size,
        shuffle=loader.Shuffle(seed=0),
        epochs=reading.epochs,
        cache=reading.cache,
        image=loader.Image(size=(reading.decode, reading.decode)) if reading.decode else None,
    )
    iterator = iter(data)
    opened = time.perf_counter()
    next(iterator)
    first = time.perf_counter()
    batches = 1 + sum(1 for _ in iterator)
    ended = time.perf_counter()
    return {
        "begun": begun,
        "opened": opened,
        "first": first,
        "ended": ended,
        "examples": batches * reading.batch_size,
    }


def fetch(source: str) -> dict[str, float]:
    """Fetch all shards in ranges of 1 MiB, 32 at a time, and do nothing with them."""
    from tfshards.schemas import read_manifest
    from tfshards.schemas.storage import any_path, in_flight, read_range

    root = any_path(source)
    size = 1 << 20
    ranges = [
        (root / shard.path, start, min(start + size, shard.num_bytes))
        for shard in read_manifest(root).shards
        for start in range(0, shard.num_bytes, size)
    ]
    begun = time.perf_counter()
    num_bytes = sum(in_flight(lambda each: len(read_range(*each)), ranges))
    return {"num_bytes": num_bytes, "seconds": time.perf_counter() - begun}


# Tables


def report_bytes(server: ObjectServer, folders: Mapping[str, Path]) -> str:
    head = ("", "examples", "MB used", "MB fetched", "fetched over used", "requests", "per GB", "$ per GB")
    rows, goals = [], []
    for name, folder in folders.items():
        found = measured(server, source=remote(name))
        count, size = totals(folder)
        used, fetched = size * found["examples"] / count, sum(each.num_bytes for each in server.requests)
        opening = sum(1 for each in server.requests if each.begun < found["opened"])
        requests = len(server.requests)
        rows.append(
            (
                name,
                f"{found['examples']:,}",
                f"{used / 1e6:,.1f}",
                f"{fetched / 1e6:,.1f}",
                f"{fetched / used:.3f}",
                f"{requests:,}, {opening} of them to open it",
                f"{requests / used * 1e9:,.0f}",
                f"{requests / used * 1e9 / 1000 * PRICE:.5f}",
            )
        )
        goals.append(measure.goal(f"{name}, bytes fetched over bytes used", fetched / used, 1.05))
    return "\n".join(["\n### One shuffled epoch, without a cache\n", measure.table(head, rows), *goals])


def report_caches(server: ObjectServer, folders: Mapping[str, Path], work: Path) -> str:
    head = ("", "cache", "GB fetched", "over those without a cache")
    rows, goals = [], []
    for name, folder in folders.items():
        size, without = totals(folder)[1], 0
        for share in (0.0, *SHARES):
            near = work / f"cache-{name}-{share}"
            cache = f"disk:{near}, {int(share * size)}B" if share else None
            measured(server, source=remote(name), epochs=EPOCHS, cache=cache)
            fetched = sum(each.num_bytes for each in server.requests)
            without = without or fetched
            rows.append((name, f"{share:.0%}", f"{fetched / 1e9:.2f}", f"{fetched / without:.3f}"))
            # the first epoch fetches everything, each of the others what is not kept
            least = 1 - share * (EPOCHS - 1) / EPOCHS
            goals.append(measure.goal(f"{name}, cache of {share:.0%}", fetched / without, least * 1.03))
    return "\n".join([f"\n### {EPOCHS} shuffled epochs with a cache\n", measure.table(head, rows), *goals])


def report_speed(server: ObjectServer, folders: Mapping[str, Path], rounds: int) -> str:
    cases = {
        "photos, undecoded": {"name": "photos"},
        "photos, decoded to 224": {"name": "photos", "decode": 224},
        "arrays of 784 bytes": {"name": "arrays"},
    }
    speeds, firsts, lines = [], [], []
    for case, reading in cases.items():
        name = reading.pop("name")
        local, far, waits, ceiling, asked = [], [], [], [], 0
        for number in range(rounds):
            for source, taken in ((str(folders[name]), local), (remote(name), far)):
                found = measured(server, source=source, **reading)
                taken.append(found)
                print(f"round {number + 1}: {case}: {source}: {rate(found):,.0f}/s", file=sys.stderr)
            asked = sum(1 for each in server.requests if each.begun < far[-1]["first"])
            waits.append(until_first(far[-1]) - until_first(local[-1]))
            alone = run(server, "--fetch", remote(name))
            ceiling.append(alone["num_bytes"] / alone["seconds"] / 1e6)
        share = measure.ratios([rate(each) for each in far], [rate(each) for each in local])
        count, size = totals(folders[name])
        speeds.append(
            (
                case,
                measure.spread([rate(each) for each in local], 0),
                measure.spread([rate(each) for each in far], 0),
                measure.spread([rate(each) * size / count / 1e6 for each in far], 0),
                measure.spread(ceiling, 0),
                measure.spread(share, 2),
            )
        )
        firsts.append(
            (
                case,
                measure.spread([until_first(each) for each in local], 2),
                measure.spread([until_first(each) for each in far], 2),
                measure.spread(waits, 2),
                f"{asked}",
            )
        )
        median = statistics.median(share)
        lines.append(measure.goal(f"{case}, speed over that of local files", median, 0.9, at_least=True))
        lines.append(
            measure.goal(
                f"{case}, seconds more to the first batch", statistics.median(waits), 1 + 4 * server.delay
            )
        )
    heads = (
        "",
        "local, examples/s",
        "bucket, examples/s",
        "bucket, MB/s",
        "only fetched, MB/s",
        "bucket over local",
    )
    waiting = ("", "local, s", "bucket, s", "more, s", "requests begun before it")
    return "\n".join(
        [
            f"\n### Speed, {server.delay * 1000:.0f} ms before each answer\n",
            measure.table(heads, speeds),
            "\n### From load() to the first batch\n",
            measure.table(waiting, firsts),
            "",
            *lines,
        ]
    )


def rate(found: Mapping[str, float]) -> float:
    return found["examples"] / (found["ended"] - found["opened"])


def until_first(found: Mapping[str, float]) -> float:
    return found["first"] - found["begun"]


def totals(folder: Path) -> tuple[int, int]:
    """Return the number of examples of a dataset, and the bytes of its shards."""
    from tfshards.schemas import read_manifest

    shards = read_manifest(folder).shards
    return sum(shard.num_examples for shard in shards), sum(shard.num_bytes for shard in shards)


def run(server: ObjectServer, flag: str, value: str) -> dict:
    server.requests.clear()
    command = [sys.executable, __file__, flag, value]
    environment = {**os.environ, **server.environment()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])
    return json.loads(done.stdout.splitlines()[-1])


def measured(server: ObjectServer, **reading: object) -> dict:
    return run(server, "--read", json.dumps(reading))


def remote(name: str) -> str:
    return f"s3://{BUCKET}/{name}"


if __name__ == "__main__":
    main()
