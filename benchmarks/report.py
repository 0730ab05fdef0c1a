"""Measure `tfshards report` on a dataset of many small images and classes: seconds, memory, size of the page.

    python benchmarks/report.py --folder FOLDER

The images are JPEG files of 64 x 64 pixels, each with its own bytes. The dataset stays in FOLDER for the next
run.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from pathlib import Path

import measure
import numpy as np

COUNT, CLASSES = 1_000_000, 1_000
SIDE = 64
# As many different pictures are encoded; a comment makes the bytes of each example its own.
PICTURES = 4_000
MAX_SECONDS, MAX_MB = 60, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=COUNT, help="number of images (default: %(default)s)")
    parser.add_argument("--folder", type=Path, required=True, help="where to build the dataset")
    options = parser.parse_args()
    dataset = options.folder / f"images{options.count}"
    if not (dataset / "dataset.json").exists():
        started = time.perf_counter()
        build(dataset, options.count)
        print(f"{options.count:,} images built in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    page = options.folder / "report.html"
    load = os.getloadavg()[0]
    code = "from tfshards.prep.cli.main import entry; entry()"
    command = [sys.executable, "-c", code, "report", str(dataset), "--output", str(page)]
    whole = measure.measure(command, Path.cwd())
    num_bytes = page.stat().st_size
    figures = (f"{whole.wall:.1f}", f"{whole.cpu:.1f}", f"{whole.rss / measure.MB:,.0f}")
    rows = [["page", *figures, f"{num_bytes / measure.MB:.1f}", f"{load:.1f}"]]
    goals = [
        measure.goal(f"{options.count:,} examples, {CLASSES:,} classes: s", whole.wall, MAX_SECONDS),
        measure.goal("size of the page in MB", num_bytes / measure.MB, MAX_MB),
    ]
    head = ["written", "wall, s", "CPU, s", "peak RSS, MB", "page, MB", "load"]
    print(f"\n{measure.table(head, rows)}\n", *goals, sep="\n")
    print(f"\n{measure.machine(['tfshards', 'numpy', 'pillow', 'jinja2'])}")


def build(dataset: Path, count: int) -> None:
    """Build a dataset of ``count`` images from a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tfshards.prep import ImageOptions, Options, Table
    from tfshards.prep import build as build_dataset

    pictures = [encoded(number) for number in range(PICTURES)]
    path = dataset.with_suffix(".parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema({"image": pa.binary(), "label": pa.string()})
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, count, 50_000):
            numbers = range(first, min(first + 50_000, count))
            images = [commented(pictures[number * 7919 % PICTURES], number) for number in numbers]
            labels = [f"class{number * 31 % CLASSES:04d}" for number in numbers]
            writer.write_table(pa.table([images, labels], schema=schema))
    splits = Options(splits={"train": 0.9, "val": 0.1})
    build_dataset(Table(path, images=ImageOptions(check="none")), dataset, shards=128, options=splits)
    path.unlink()


def encoded(number: int) -> bytes:
    """Return a JPEG of soft blobs, different for each number."""
    from PIL import Image

    coarse = np.random.default_rng(number).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(file, "JPEG", quality=85)
    return file.getvalue()


def commented(picture: bytes, number: int) -> bytes:
    """Return a JPEG with a number in a comment after its first marker."""
    text = f"{number:012d}".encode()
    return picture[:2] + b"\xff\xfe" + (len(text) + 2).to_bytes(2, "big") + text + picture[2:]


if __name__ == "__main__":
    main()
