"""How many processes and threads work at the same time, and how threads stop after an error."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from tfshards.schemas import OptionsError

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


_NUM_CORES = available_cores()
# the limits of ``limited_jobs``, of which the innermost holds in every thread
_limits: list[tuple[int, threading.Semaphore]] = []


def num_jobs() -> int:
    """Return how many processes, or threads that compute, may work at the same time."""
    return _limits[-1][0] if _limits else _NUM_CORES


def is_limited() -> bool:
    """Return whether the number of jobs is limited."""
    return bool(_limits)


def computing() -> AbstractContextManager[object]:
    """Return what waits until a thread may compute; without a limit the system shares the cores."""
    return _limits[-1][1] if _limits else nullcontext()


def num_writers(*, waits: bool = False) -> int:
    """Return the number of threads that write shards, of which more than cores would wait for each other.

    A thread that ends a shard in an object store waits for some round trips, in which others can write: with
    ``waits`` there are more of them.
    """
    if _limits:
        return min(num_jobs(), 12 if waits else 4)
    return max(2, min(4, num_jobs())) * (3 if waits else 1)


@contextmanager
def limited_jobs(number: int | None) -> Iterator[None]:
    """Limit the processes, and the threads that compute, of what runs in the context.

    >>> with prep.limited_jobs(2):
    ...     manifest = prep.build(source, "data/photos")

    The limit holds for every thread of this process. Engines other than the local one have their own.

    Args:
        number: how many may work at the same time; None for as many as there are cores.

    Raises:
        OptionsError: ``number`` is less than 1.
    """
    if number is None:
        yield
        return
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise OptionsError(f"jobs={number!r} must be an integer of at least 1")
    limit = (number, threading.Semaphore(number))
    _limits.append(limit)
    try:
        yield
    finally:
        _limits.remove(limit)


class StoppedError(BaseException):
    """Raised to end threads after an error, when their results are no longer needed; no handler of errors."""


# folders, or other names, of the work of this process that failed or was interrupted
STOPPED: set[object] = set()


def check_working(work: object) -> None:
    """Raise StoppedError if some work, such as that of a folder, has stopped; long calls do this often."""
    if work in STOPPED:
        raise StoppedError
