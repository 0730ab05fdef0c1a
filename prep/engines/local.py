"""Write shards on all cores of this machine: this process, and a pool of others. It is the default engine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any

from tfshards.prep.engines.work import Work, run_on_threads, share
from tfshards.prep.progress.threads import is_limited, limited_jobs, num_jobs, num_writers
from tfshards.schemas import BuildError, TfshardsError

# A process takes a third of a second to start, which is also the time to write about this much. Examples
# count as well as their bytes, for example where they are rows of small arrays.
_BYTES_PER_PROCESS = 32 << 20


def run(work: Work) -> None:
    """Call the function with every item, in this process and in others; raise the first failure."""
    number, function = _num_processes(work), _pickled(work.function)
    if not number or function is None:
        run_on_threads(work)
        return
    others, jobs = _Processes(), 1 if is_limited() else None
    try:
        pool = ProcessPoolExecutor(number, others, _begin, (function, jobs))
    except (ImportError, NotImplementedError, OSError):
        # a container may have no semaphores
        run_on_threads(work)
        return

    def call(item: object) -> None:
        answer = pool.submit(_call, item)
        # a pool notices the death of a process that was just started from its next answer on
        pool.submit(os.getpid)
        answer.result()

    # each of the others writes one shard at a time, and so does this one
    num_threads = num_writers() if work.folder.is_far else 1
    try:
        with pool:
            callers = [*[work.function] * num_threads, *[call] * number]
            share(work.items, callers, work.folder, work.follow, others.end)
    except BrokenProcessPool:
        raise others.lost() from None


def _num_processes(work: Work) -> int:
    """Return the number of other processes that pay off.

    There are none where they cannot be started, or would get another file as their standard error.
    """
    if multiprocessing.current_process().daemon or sys.stderr is None:
        return 0
    return max(0, min(num_jobs(), len(work.items), work.size.work // _BYTES_PER_PROCESS) - 1)


def _pickled(function: Callable[[Any], object]) -> bytes | None:
    """Return a function for other processes; None if they could not load it, for example from a script."""
    try:
        content = pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return None if b"__main__" in content else content


_STARTING = threading.Lock()


class _Process(SpawnProcess):
    def start(self) -> None:
        """Start the process, which would run a script without a guard again, and obey Ctrl-C itself."""
        with _STARTING:
            script = sys.modules["__main__"]
            sys.modules["__main__"] = ModuleType("__main__")
            # inherited, and for good
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                super().start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                sys.modules["__main__"] = script


class _Processes(SpawnContext):
    """What a pool starts its processes with, which keeps them."""

    def __init__(self) -> None:
        self._started: list[_Process] = []

    def Process(self, *args: Any, **options: Any) -> _Process:  # type: ignore[override]  # noqa: ANN401, N802
        """Return a new process."""
        self._started.append(_Process(*args, **options))
        return self._started[-1]

    def end(self) -> None:
        """Make the processes give up their calls and end."""
        for process in self._started:
            if process.is_alive():
                process.terminate()

    def lost(self) -> BuildError:
        """Return the error that names the process that has died."""
        # then the pool ended the others by SIGTERM
        for process in sorted(self._started, key=lambda each: each.exitcode == -signal.SIGTERM):
            if (status := process.exitcode) not in (None, 0, _ENDED):
                end = signal.Signals(-status).name if status < 0 else f"status {status}"
                what = f"the worker process {process.pid} died ({end})"
                break
        else:
            what = "a worker process was ended"
        text = f"{what}, perhaps because memory ran out; run the same command to resume"
        return BuildError(text, code="worker-lost")


# In each of the other processes: the function, its limit of jobs, and the status of one that was ended.
_function: Callable[[Any], object] = print
_num_jobs: int | None = None
_ENDED = 128 + signal.SIGTERM


def _begin(function: bytes, jobs: int | None) -> None:
    """Prepare a process of the pool."""
    global _function, _num_jobs
    threading.Thread(target=_end_with_main, daemon=True).start()
    # what anything prints must not mix with the result of the command
    os.dup2(2, 1)
    _function, _num_jobs = pickle.loads(function), jobs
    # at last, since a pool reports what ends this function
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_ENDED))


def _end_with_main() -> None:
    main = multiprocessing.parent_process()
    assert main is not None
    wait([main.sentinel])
    os._exit(1)


def _call(item: object) -> None:
    try:
        with limited_jobs(_num_jobs):
            _function(item)
    except (TfshardsError, OSError):
        raise
    except SystemExit:
        # nothing is left half written, also in a store; a pool would send it as a result
        os._exit(_ENDED)
    except Exception as error:  # its class may break pickle in any way
        raise BuildError(f"{type(error).__name__}: {error}") from None
