"""Compare the time to the first batch at step 100,000 of a million examples with that at step 0.

Each is timed from the call of load() to its first batch, in one process, in turns, after a warm-up round. The
bytes that are read are those that the kernel counts.

Usage: python benchmarks/resume.py [--rounds 7]
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import measure
import numpy as np

EXAMPLES, BATCH_SIZE, STEP = 1_000_000, 8, 100_000
GOAL = 1.0


def main() -> None:
    """Build a dataset of small arrays, time first batches, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="number of measured runs (default: 7)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfshards-resume-") as work:
        dataset = build(Path(work) / "numbers")
        taken = time_first_batches(dataset, options.rounds)
    rows = [
        (name, measure.spread([each[0] for each in pairs], 2), measure.spread([each[1] for each in pairs], 1))
        for name, pairs in taken.items()
    ]
    print(measure.table(("first batch", "seconds", "MB read"), rows))
    for name, pairs in taken.items():
        if str(STEP) in name:
            seconds = float(np.median([each[0] for each in pairs]))
            print(measure.goal(f"{name}, seconds", seconds, GOAL))
    print(measure.machine(["tfshards", "tensorflow", "numpy"]))
    print(f"\n`python benchmarks/resume.py --rounds {options.rounds}`")


def build(path: Path) -> Path:
    """Build a million examples of one number in 16 shards."""
    from tfshards.prep import Arrays
    from tfshards.prep import build as build_dataset

    build_dataset(Arrays({"number": np.arange(EXAMPLES)}), path, shards=16)
    return path


def time_first_batches(dataset: Path, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return seconds and MB of each first batch in each round, except the first round."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from tfshards import loader

    orders = {"runs": loader.Shuffle(seed=0), "full": loader.Shuffle(how="full", seed=0), "stored": None}
    taken: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds + 1):
        for order, shuffle in orders.items():
            for step in (0, STEP):

                def begin(shuffle: loader.Shuffle | None = shuffle, step: int = step) -> Iterable[object]:
                    start = loader.Position(0, step)
                    return loader.load(dataset, batch_size=BATCH_SIZE, shuffle=shuffle, start=start)

                found = _first_batch(begin)
                if number:
                    taken.setdefault(f"{order}, step {step}", []).append(found)
    return taken


def _first_batch(begin: Callable[[], Iterable[object]]) -> tuple[float, float]:
    read, started = _bytes_read(), time.perf_counter()
    next(iter(begin()))
    return time.perf_counter() - started, (_bytes_read() - read) / 1e6


def _bytes_read() -> int:
    """Return how many bytes this process has read by system calls so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


if __name__ == "__main__":
    main()
