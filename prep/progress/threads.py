"""Threads that process one item each, report their progress, and stop after an error."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# Called with the number of bytes that were processed since the last call.
Tick: TypeAlias = Callable[[int], object]

# CPU time that a container may use, in a period, both in microseconds:
# https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores(quota: Path = _QUOTA) -> int:
    """Return the number of cores that this process may use, on which a container may have a quota."""
    # macOS has no affinity
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        allowed, period = quota.read_text().split()
        # "max" without a quota
        return max(1, min(cores, math.ceil(int(allowed) / int(period))))
    return cores


NUM_CORES = available_cores()
# Threads that write shards: more of them than cores would only wait for each other.
NUM_WRITERS = max(2, min(4, NUM_CORES))
# Into an object store: a thread that ends a shard waits for some round trips, in which others can write.
NUM_REMOTE_WRITERS = 3 * NUM_WRITERS


class _StopError(Exception):
    """Raised to end threads after an error, when their results are no longer needed."""


def in_threads(work: Callable[[Item, Tick], Result], items: Sequence[Item], tick: Tick) -> list[Result]:
    """Return the result of ``work`` for each item.

    Args:
        work: called with an item and a function to which it reports progress. After an error in one thread,
            that function ends the other threads, so ``work`` should call it often, with 0 if need be.
        items: one item per call.
        tick: receives the progress of all threads, from any thread.

    Raises:
        Exception: the first error of a thread.
    """
    stop = threading.Event()

    def tick_on(num_bytes: int) -> None:
        if stop.is_set():
            raise _StopError
        tick(num_bytes)

    with ThreadPoolExecutor(NUM_CORES) as pool:
        try:
            futures = [pool.submit(work, item, tick_on) for item in items]
            for future in as_completed(futures):
                # raises the error of a thread at once, even if an earlier item is still being processed
                future.result()
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
