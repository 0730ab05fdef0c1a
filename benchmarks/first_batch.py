"""Measure the time from ``loader.load`` to its first batch, each in a new process, without imports.

Usage: python benchmarks/first_batch.py DATASET [--rounds 5]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys

ORDERS = ("stored", "shuffled")
# the program of each process; prints the wall and CPU seconds of each stage as JSON
MEASURED = """
import json, sys, time
import tensorflow as tf
from tfshards import loader

taken = [(time.perf_counter(), time.process_time())]
shuffle = loader.Shuffle(seed=1) if sys.argv[2] == "shuffled" else None
dataset = loader.load(sys.argv[1], batch_size=256, shuffle=shuffle)
taken.append((time.perf_counter(), time.process_time()))
iterator = iter(dataset)
taken.append((time.perf_counter(), time.process_time()))
next(iterator)
taken.append((time.perf_counter(), time.process_time()))
print(json.dumps(taken))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dataset", help="folder of a dataset with one split")
    parser.add_argument("--rounds", type=int, default=5, help="processes per order (default: 5)")
    options = parser.parse_args()
    rounds = [[stages(options.dataset, order) for order in ORDERS] for _ in range(options.rounds)]
    print("|  | wall, s | CPU, s | load() | iter() | first next() |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for order, taken in zip(ORDERS, zip(*rounds, strict=True), strict=True):
        columns = [statistics.median(values) for values in zip(*taken, strict=True)]
        print(f"| {order} | " + " | ".join(f"{value:.2f}" for value in columns) + " |")
    print(f"\nload average {os.getloadavg()[0]:.1f}")


def stages(dataset: str, order: str) -> list[float]:
    """Return the seconds of one process: wall, CPU, and the CPU time of ``load``, ``iter`` and ``next``."""
    command = [sys.executable, "-c", MEASURED, dataset, order]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    times = json.loads(done.stdout)
    cpu = [later[1] - earlier[1] for earlier, later in itertools.pairwise(times)]
    return [times[-1][0] - times[0][0], sum(cpu), *cpu]


if __name__ == "__main__":
    main()
