"""Compare the estimate of `tfshards plan --estimate` with the build: seconds, memory, bytes of the shards.

    python benchmarks/foresight.py --photos photos/ --copies 4

The files are in the page cache for both. Seconds are those of the command without the start of the program;
memory is that of all processes, without pages of files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import measure
import numpy as np

from prep import make_photos

# Private memory alone: pages of a mapped array count in each process that maps it, though the system needs
# none of them.
measure._rss = lambda pid: _private(pid)

FACTOR = 1.5
RUN = """
import sys, time
from tfshards.prep.building.build import build
from tfshards.prep.cli.main import main
began = time.perf_counter()
status = main()
print(time.perf_counter() - began)
sys.exit(status)
"""
COMMAND = [sys.executable, "-c", RUN]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--photos", type=Path, required=True, help="images in class folders, at any depth")
    parser.add_argument("--copies", type=int, default=4, help="copies of each photo (default: 4)")
    parser.add_argument("--arrays", type=int, default=400_000, help="arrays of 784 bytes (default: 400,000)")
    parser.add_argument("--only", nargs="+", help="datasets to build (default: all)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfshards-foresight-") as folder:
        work = Path(folder)
        photos = make_photos(options.photos, work / "photos", options.copies)
        random = np.random.default_rng(0)
        np.save(work / "image.npy", random.integers(0, 256, (options.arrays, 28, 28), dtype=np.uint8))
        np.save(work / "label.npy", random.integers(0, 10, options.arrays))
        of_photos = ["images", str(photos)]
        builds = {
            "photos, default check": [*of_photos, "--shards", "8"],
            "photos, --check none": [*of_photos, "--shards", "8", "--check", "none"],
            "photos, --resize short=256": [*of_photos, "--shards", "8", "--resize", "short=256"],
            "photos, --resize short=96, 1 shard": [*of_photos, "--shards", "1", "--resize", "short=96"],
            "arrays": ["arrays", str(work / "image.npy"), str(work / "label.npy"), "--shards", "8"],
            "arrays, gzip": [
                *("arrays", str(work / "image.npy"), str(work / "label.npy")),
                *("--shards", "8", "--compression", "gzip"),
            ],
        }
        rows, goals = [], []
        for name, arguments in builds.items():
            if options.only and name not in options.only:
                continue
            row, factors = compare(name, arguments, work)
            rows.append(row)
            goals += [
                measure.goal(f"{name}: {what}, factor", factor, FACTOR) for what, factor in factors.items()
            ]
            print(row, file=sys.stderr, flush=True)
    head = (
        *("", "estimate, s", "build, s", "estimate, MB of memory", "build, MB of memory"),
        *("estimate, MB of shards", "build, MB of shards", "sample, s"),
    )
    print(f"\n{measure.table(head, rows)}\n", *goals, sep="\n")
    print(f"\n{measure.machine(['tfshards', 'numpy', 'pillow'])}")


def compare(name: str, arguments: list[str], work: Path) -> tuple[list[str], dict[str, float]]:
    """Return a row of the table, and by how much the larger of estimate and build exceeds the other."""
    kind, *sources = arguments
    flags = sources[next((n for n, word in enumerate(sources) if word.startswith("--")), len(sources)) :]
    sources = sources[: len(sources) - len(flags)]
    out = work / "out"
    line = [kind, *sources, str(out), *flags]
    planned = measure.measure([*COMMAND, "plan", *line, "--estimate", "--json"], work)
    estimate = json.loads(planned.output.splitlines()[-2])["estimate"]
    built = measure.measure([*COMMAND, "build", *line], work)
    written = sum(path.stat().st_size for path in out.glob("*.tfrecord-*"))
    shutil.rmtree(out)
    pairs = {
        "seconds": (estimate["seconds"], seconds(built)),
        "memory": (estimate["memory_bytes"] / measure.MB, built.rss / measure.MB),
        "bytes": (estimate["output_bytes"] / measure.MB, written / measure.MB),
    }
    factors = {what: max(a / b, b / a) for what, (a, b) in pairs.items()}
    cells = [f"{value:,.1f}" for pair in pairs.values() for value in pair]
    return [name, *cells, f"{seconds(planned):.1f}"], factors


def _private(pid: int) -> int:
    fields = measure._read(f"/proc/{pid}/statm").split()
    return (int(fields[1]) - int(fields[2])) * measure._PAGE if fields else 0


def seconds(run: measure.Measurement) -> float:
    return float(run.output.splitlines()[-1])


if __name__ == "__main__":
    main()
