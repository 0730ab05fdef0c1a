"""Compare building shards from arrays: tfshards and TFDS in process, 60,000 images of 28 x 28 bytes.

    python benchmarks/arrays.py --rounds 5

The values are random and in the page cache: this measures the conversion, not the disk.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import measure
import numpy as np
from measure import MB, Measurement, ratios, spread

CONTESTANTS = Path(__file__).resolve().parent / "contestants.py"
NAMES = {
    "tfshards": "tfshards, command",
    "tfshards-arrays": "tfshards, from Python",
    "tfds-arrays": "TFDS, in process",
    "tfds-arrays-without-key": "TFDS, in process, without a key",
}
TFDS = ("tfds-arrays", "tfds-arrays-without-key")
PACKAGES = ("tfshards", "apache-beam", "tensorflow-datasets", "tensorflow", "numpy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--examples", type=int, default=60_000, help="number of rows (default: 60,000)")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs per contestant (default: 5)")
    parser.add_argument(
        "--shards", type=int, default=8, help="shards that each contestant writes (default: 8)"
    )
    parser.add_argument("--work", type=Path, help="folder of the files (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.work, prefix="tfshards-bench-") as folder:
        work = Path(folder).resolve()
        values = np.random.default_rng(0)
        np.save(work / "X.npy", values.integers(0, 256, (options.examples, 28, 28), dtype=np.uint8))
        np.save(work / "Y.npy", values.integers(0, 10, options.examples))
        taken = measure.rounds(list(NAMES), options.rounds, lambda name: run(name, work, options))
    print(f"\n{report(taken, options)}")


def run(name: str, work: Path, options: argparse.Namespace) -> Measurement:
    """Run one contestant on arrays that are in the page cache, and check that it wrote all of them."""
    for array in ("X.npy", "Y.npy"):
        (work / array).read_bytes()
    os.sync()
    out = work / "out"
    if name == "tfshards":
        command = [
            sys.executable,
            "-m",
            "tfshards",
            "build",
            "arrays",
            "image=X.npy",
            "label=Y.npy",
        ]
        command += [str(out), "--shards", str(options.shards)]
    else:
        command = [sys.executable, str(CONTESTANTS), name, "X.npy", "Y.npy", str(out), str(options.shards)]
    result = measure.measure(command, work)
    records = [path for path in out.rglob("*.tfrecord-*") if path.parent.name != "index"]
    written = sum(path.stat().st_size for path in records)
    if len(records) != options.shards or written < options.examples * 28 * 28:
        raise SystemExit(f"{name} wrote {len(records)} files of {written} bytes")
    shutil.rmtree(out)
    return result


def report(taken: Mapping[str, Sequence[Measurement]], options: argparse.Namespace) -> str:
    """Return the result as Markdown."""
    wall = {name: [result.wall for result in results] for name, results in taken.items()}
    alone = {
        name: [
            float(seconds)
            for result in results
            for seconds in re.findall(r"^seconds (.*)$", result.output, re.M)
        ]
        for name, results in taken.items()
    }
    rows = [
        [
            NAMES[name],
            spread(wall[name], 2),
            spread([result.cpu for result in results], 2),
            f"{options.examples / statistics.median(wall[name]):,.0f}",
            f"{options.examples / statistics.median(alone[name]):,.0f}" if alone[name] else "",
            spread([result.rss / MB for result in results], 0),
        ]
        for name, results in taken.items()
    ]
    head = ("", "wall, s", "CPU, s", "examples/s", "examples/s of the call alone", "peak RSS, MB")
    whole = {name: ratios(wall[name], wall["tfshards"]) for name in TFDS}
    call = {name: ratios(alone[name], alone["tfshards-arrays"]) for name in TFDS}
    factors = [[NAMES[name], spread(whole[name], 2), spread(call[name], 2)] for name in TFDS]
    faster = statistics.median(whole["tfds-arrays"])
    return "\n".join(
        [
            measure.table(head, rows),
            "",
            measure.table(("multiple of tfshards, by round", "whole process", "the call alone"), factors),
            "",
            measure.goal("whole process, times faster than TFDS, by round", faster, 4, at_least=True),
            "",
            f"{options.examples:,} examples of 28 x 28 uint8 and a label, {options.shards} shards; "
            f"{options.rounds} rounds in turns, page cache warm. The call alone is `build()` against "
            f"`download_and_prepare()`, after all imports. {measure.HOW}",
            "",
            measure.machine(PACKAGES),
            "",
            f"`python benchmarks/arrays.py --examples {options.examples} --rounds {options.rounds}`",
        ]
    )


if __name__ == "__main__":
    main()
