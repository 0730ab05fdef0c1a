"""Measure what planning costs: which worker reads what in which order, without any file.

    python benchmarks/plan.py

It calls the loader's own functions. The figures are those of one worker, since every worker plans for itself,
and do not include the reading of index files.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import measure
import numpy as np

SHARDS = 10_000
BATCH_SIZE = 256
WORKERS = 64
STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Cost:
    """The cost of a plan: seconds, CPU seconds, bytes added at the peak, and the number of intervals."""

    seconds: float
    cpu: float
    added: int
    intervals: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--no-photos", action="store_true", help="leave out the epoch of records of 29 KB")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs per plan (default: 5)")
    options = parser.parse_args()
    rows, goals = [], []
    for count, record_bytes, workers, steps in (
        (1_000_000, 29_000, WORKERS, 1),
        (100_000_000, 784, WORKERS, 1),
        (100_000_000, 784, 1, None),
        (100_000_000, 29_000, 1, None),
    ):
        if options.no_photos and not steps and record_bytes > 1000:
            continue
        plan = planner(count, record_bytes, workers, steps)
        # The first call of an operation in a process takes longer; later calls reuse its memory.
        first = cost_of(plan)
        costs = [cost_of(plan) for _ in range(options.rounds)]
        seconds = statistics.median(cost.seconds for cost in costs)
        added = first.added
        what = "first step" if steps else "whole epoch"
        title = f"{what}, {count:,} records of {record_bytes:,} bytes, {workers} workers"
        milliseconds = measure.spread([cost.seconds * 1000 for cost in costs], 1)
        print(f"{title}: {milliseconds} ms, {added / measure.MB:.0f} MB", file=sys.stderr, flush=True)
        cpu = measure.spread([cost.cpu * 1000 for cost in costs], 1)
        rows.append([title, milliseconds, cpu, f"{added / measure.MB:.0f}", f"{costs[0].intervals:,}"])
        if steps:
            goals.append(measure.goal(f"{title}: milliseconds", seconds * 1000, 50))
        else:
            goals.append(measure.goal(f"{title}: seconds", seconds, 1))
            goals.append(measure.goal(f"{title}: MB added at the peak", added / measure.MB, 200))
    print(f"\n{measure.table(['', 'ms', 'CPU, ms', 'MB added at the peak', 'intervals of files'], rows)}\n")
    print("\n".join(goals))
    print(f"\n{SHARDS:,} shards, {BATCH_SIZE} examples per worker and step; {options.rounds} rounds.\n")
    print(measure.machine(["tfshards", "tensorflow", "numpy"]))
    print(f"\n`python benchmarks/plan.py --rounds {options.rounds}`")


def planner(count: int, record_bytes: int, workers: int, steps: int | None) -> Callable[[], int]:
    """Return a function that plans an epoch, or its first ``steps``, and returns the number of intervals."""
    import tensorflow as tf

    from tfshards.loader import Position, Shuffle, Worker
    from tfshards.loader.order.assignment import Stored, assign, lane_start
    from tfshards.loader.order.epoch import RunOrder
    from tfshards.loader.order.plan import ReadPlan
    from tfshards.loader.order.population import Ranges
    from tfshards.loader.records.located import interval_table, record_intervals
    from tfshards.loader.records.record_reader import BLOCK_RUNS, on_graph
    from tfshards.loader.records.shards import Shards

    none = np.zeros(0, np.int64)
    sizes = np.diff(np.arange(SHARDS + 1, dtype=np.int64) * count // SHARDS)
    shards = Shards(
        paths=("",) * SHARDS,
        sizes=sizes,
        offsets=none,
        first_offsets=none,
        stride=1,
        compression="",
        buffer_bytes=0,
        bad_starts=none,
        bad_ends=none,
    )

    def plan() -> int:
        worker = Worker(workers - 1, workers)
        stored = Stored(record_bytes, SHARDS)
        assignment = assign(
            count, stored, batch_size=BATCH_SIZE, worker=worker, remainder="drop", shuffle=Shuffle()
        )
        population = Ranges(np.zeros(1, np.int64), np.array([count], np.int64))
        order = RunOrder(
            num_positions=count, run=assignment.run, seed=1, lanes=assignment.lanes, is_entered=True
        )
        plan = ReadPlan(
            population=population,
            order=order,
            assignment=assignment,
            record_bytes=record_bytes,
            begin=Position(),
            epochs=1,
            is_next_epoch_each_time=False,
            facts=None,
        )
        order = on_graph(plan).order
        epoch = order.epoch(tf.constant(1, tf.int64))
        table = interval_table(shards, population, circular=True)

        def intervals_of(read: list[tuple[int, int]]) -> int:
            starts, counts = (tf.constant(each, tf.int64) for each in zip(*read, strict=True))
            members = order.intervals(epoch, starts, counts)
            return int(record_intervals(order.ops, shards, table, *members)[0].shape[0])

        if steps:
            last = range(assignment.lanes - assignment.worker_lanes, assignment.lanes)
            return intervals_of(
                [(lane_start(count, assignment.lanes, lane), assignment.rows_per_lane) for lane in last]
            )
        starts = [lane_start(count, assignment.lanes, lane) for lane in range(assignment.lanes)]
        rows, block = assignment.rows_per_lane * assignment.num_steps, assignment.run * BLOCK_RUNS
        # all lanes are open at the same time, each with the intervals of its next block
        return sum(
            intervals_of([(start + done, min(block, rows - done)) for start in starts])
            for done in range(0, rows, block)
        )

    return plan


def cost_of(plan: Callable[[], int]) -> Cost:
    """Return what one call of ``plan`` costs."""
    # resets the peak of resident memory, see proc(5)
    Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    started, started_cpu = time.perf_counter(), time.process_time()
    intervals = plan()
    seconds, cpu = time.perf_counter() - started, time.process_time() - started_cpu
    return Cost(seconds, cpu, _memory("VmHWM") - before, intervals)


def _memory(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
