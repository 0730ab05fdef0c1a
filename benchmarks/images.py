"""Measure what checking images costs, compared with decoding them, and resizing on all cores.

    python benchmarks/images.py --photos photos/ --copies 4 --rounds 5

Every contestant runs in its own process on the same files, in turns. The CPU time of a build that keeps the
files is compared with that of decoding every file with Pillow; that of only reading them is subtracted from
both. All use the same number of threads.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import measure
from measure import Measurement, ratios, spread

from prep import make_photos

BUILDS = {
    "images that are kept": [],
    "short side 256": ["--resize", "short=256"],
    "short side 256 as PNG": ["--resize", "short=256", "--format", "png"],
}
LOOPS = {"read with Python": "read", "decode with Pillow": "decode"}
# On as many threads as there are cores, as in a build: if two cores are the hyperthreads of one, the same
# work takes more CPU time on both than on one.
LOOP = """
import io, os, sys
from concurrent.futures import ThreadPoolExecutor
from PIL import Image

def work(path):
    with open(path, "rb") as file:
        data = file.read()
    if sys.argv[1] == "decode":
        Image.open(io.BytesIO(data)).load()

paths = [os.path.join(folder, name) for folder, _, names in os.walk(sys.argv[2]) for name in names]
with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
    list(pool.map(work, paths, chunksize=16))
"""
PACKAGES = ("tfshards", "apache-beam", "pillow", "numpy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--photos", type=Path, required=True, help="images in class folders, at any depth")
    parser.add_argument("--copies", type=int, default=4, help="copies of each photo (default: 4)")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs per contestant (default: 5)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfshards-bench-") as folder:
        work = Path(folder).resolve()
        source = make_photos(options.photos, work / "photos", options.copies)
        files = [path for path in source.rglob("*") if path.is_file()]
        taken = measure.rounds([*LOOPS, *BUILDS], options.rounds, lambda name: run(name, source, work))
    size = f"{len(files):,} photos; {options.rounds} rounds in turns, page cache warm. {measure.HOW}"
    command = (
        f"`python benchmarks/images.py --photos PHOTOS --copies {options.copies} --rounds {options.rounds}`"
    )
    print(f"\n{report(taken)}\n\n{size}\n\n{measure.machine(PACKAGES)}\n\n{command}")


def run(name: str, source: Path, work: Path) -> Measurement:
    """Run one contestant."""
    if name in LOOPS:
        return measure.measure([sys.executable, "-c", LOOP, LOOPS[name], str(source)], work)
    with tempfile.TemporaryDirectory(dir=work) as out:
        build = [
            sys.executable,
            "-m",
            "tfshards",
            "build",
            "images",
            str(source),
            f"{out}/photos",
        ]
        return measure.measure([*build, "--shards", "16", *BUILDS[name]], work)


def report(taken: Mapping[str, Sequence[Measurement]]) -> str:
    """Return the result as Markdown."""
    wall = {name: [result.wall for result in results] for name, results in taken.items()}
    cpu = {name: [result.cpu for result in results] for name, results in taken.items()}
    rows = [
        [
            name,
            spread(wall[name]),
            spread(cpu[name]),
            spread(ratios(cpu[name], wall[name]), 2),
            spread([result.rss / measure.MB for result in results], 0),
        ]
        for name, results in taken.items()
    ]
    head = ("", "wall, s", "CPU, s", "CPU/wall", "peak RSS, MB")
    decoding = [a - b for a, b in zip(cpu["decode with Pillow"], cpu["read with Python"], strict=True)]
    keeping = [a - b for a, b in zip(cpu["images that are kept"], cpu["read with Python"], strict=True)]
    shares = ratios(keeping, decoding)
    cores = ratios(cpu["short side 256"], wall["short side 256"])
    return "\n".join(
        [
            measure.table(head, rows),
            "",
            f"- CPU of a build beyond reading, over a full decode: {spread(shares, 2)}",
            measure.goal("CPU/wall while resizing", statistics.median(cores), 1.7, at_least=True),
        ]
    )


if __name__ == "__main__":
    main()
