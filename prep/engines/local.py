"""Write shards on all cores of this machine: this process, and others. It is the default engine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.context import SpawnProcess
from types import ModuleType
from typing import Any

from tfshards.prep.engines.table import Work, run_on_threads, share
from tfshards.prep.progress.threads import is_limited, limited_jobs, num_jobs, num_writers
from tfshards.schemas import BuildError, TfshardsError
from tfshards.schemas.storage.any_path import in_store

# A process takes a third of a second to start, which is also the time to write about this much. Examples
# count as well as their bytes, for example where they are rows of small arrays.
_BYTES_PER_PROCESS = 32 << 20
_STARTING = threading.Lock()
# the status of a process that was ended
_ENDED = 128 + signal.SIGTERM


def run(work: Work) -> None:
    """Call the function with every item, in this process and in others; raise the first failure."""
    number = _num_others(work)
    if not number:
        run_on_threads(work)
        return
    others = [_Worker(work.function) for _ in range(number)]

    def end() -> None:
        for each in others:
            if each.process is not None:
                each.process.terminate()

    # each of the others writes one shard at a time, and so does this one
    num_threads = num_writers() if in_store(work.folder) else 1
    try:
        share(work, [*[work.function] * num_threads, *[each.call for each in others]], end=end)
    finally:
        end()
        for each in others:
            if each.process is not None:
                each.process.join()


def _num_others(work: Work) -> int:
    """Return the number of other processes that pay off.

    There are none where they cannot be started, would get another file as their standard error, or could not
    load the function, for example from a script.
    """
    if multiprocessing.current_process().daemon or sys.stderr is None:
        return 0
    try:
        is_portable = b"__main__" not in pickle.dumps(work.function)
    except (pickle.PicklingError, AttributeError, TypeError):
        is_portable = False
    paid = work.size.work // _BYTES_PER_PROCESS if is_portable else 0
    return max(0, min(num_jobs(), len(work.items), paid) - 1)


class _Worker:
    """Another process, which calls the function with one item after the other."""

    def __init__(self, function: Callable[[Any], object]) -> None:
        self._items, others = Pipe()
        self._served = others, function, 1 if is_limited() else None
        self.process: SpawnProcess | None = None

    def _start(self) -> SpawnProcess:
        """Start the process, which would run a script without a guard again, and obey Ctrl-C itself."""
        process = SpawnProcess(target=_serve, args=self._served, daemon=True)
        with _STARTING:
            script = sys.modules["__main__"]
            sys.modules["__main__"] = ModuleType("__main__")
            # inherited, and for good
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                sys.modules["__main__"] = script
        # else the end of the process would not show
        self._served[0].close()
        return process

    def call(self, item: object) -> None:
        """Let the process call the function; raise the failure, or BuildError if the process has died."""
        self.process = process = self.process or self._start()
        try:
            self._items.send(item)
            failure = self._items.recv()
        except (EOFError, OSError):
            process.join()
            status = process.exitcode or 0
            end = signal.Signals(-status).name if status < 0 else f"status {status}"
            raise BuildError(
                f"the worker process {process.pid} died ({end}), perhaps because memory ran out; run the "
                "same command to resume",
                code="worker-lost",
            ) from None
        if failure is not None:
            raise failure


def _serve(items: Connection, function: Callable[[Any], object], jobs: int | None) -> None:
    """Call the function with items, and send each failure, or None, until the main process has ended."""
    # nothing is left half written, also in a store
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_ENDED))
    threading.Thread(target=_end_with_main, daemon=True).start()
    # what anything prints must not mix with the result of the command
    os.dup2(2, 1)
    with suppress(EOFError), limited_jobs(jobs):
        while True:
            items.send(_failure_of(function, items.recv()))


def _end_with_main() -> None:
    main = multiprocessing.parent_process()
    assert main is not None
    wait([main.sentinel])
    os._exit(1)


def _failure_of(function: Callable[[Any], object], item: object) -> Exception | None:
    try:
        function(item)
    except (TfshardsError, OSError) as error:
        return error
    except Exception as error:  # its class may break pickle in any way
        return BuildError(f"{type(error).__name__}: {error}")
    return None
