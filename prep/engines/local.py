"""Write shards on all cores of this machine: the default engine, and its processes.

``ProcessPoolExecutor`` would run the user's script again in each process, does not name the process that was
killed, cannot end calls before Python 3.14, and leaves its processes behind when this one is killed.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from tfshards.prep.engines.table import Work, run_on_threads, share
from tfshards.prep.progress.lines import Written
from tfshards.prep.progress.threads import is_limited, limited_jobs, num_jobs, num_writers
from tfshards.schemas import BuildError, OptionsError
from tfshards.schemas.storage.any_path import in_store

_PROGRAM = "import sys; sys.path[:] = {path}; from tfshards.prep.engines.local import serve; serve({jobs})"
# A helper takes a third of a second to start, which is also the time to write about this much. Examples count
# as well as their bytes, for example where they are rows of small arrays.
_BYTES_PER_HELPER = 32 << 20
# for a helper to give up its call
_END_SECONDS = 10


def find_run(arguments: Sequence[str]) -> Callable[[Work], None]:
    """Return ``run``; raise OptionsError if there are arguments, which only Apache Beam accepts."""
    if arguments:
        raise OptionsError("beam-args-useless", arguments=list(arguments))
    return run


def run(work: Work) -> None:
    """Call the function with every item, in this process and in helpers; raise the first failure."""
    number, function = num_helpers(work.size, len(work.items)), pickled(work.function)
    if not number or function is None:
        run_on_threads(work)
        return
    # a helper writes one shard at a time, and so does this process
    num_threads = num_writers() if in_store(work.folder) else 1
    with ExitStack() as stack:
        helpers = [stack.enter_context(Helper(function)) for _ in range(number)]

        def end() -> None:
            for helper in helpers:
                helper.end()

        share(work, [*[work.function] * num_threads, *helpers], end=end)


def num_helpers(size: Written, num_shards: int, num_cores: int | None = None) -> int:
    """Return the number of processes that help to write this many examples and bytes."""
    paid = size.work // _BYTES_PER_HELPER
    return max(0, min(num_cores or num_jobs(), num_shards, paid) - 1)


def pickled(function: Callable[[Any], object]) -> bytes | None:
    """Return a function for helpers; None if they could not load it, for example from a script."""
    try:
        content = pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return None if b"__main__" in content else content


class Helper:
    """A process for calls of one function; a context manager that ends it."""

    def __init__(self, function: bytes) -> None:
        """Start the process, which imports tfshards meanwhile; ``pickled`` returns the function."""
        program = _PROGRAM.format(path=[*map(str, sys.path)], jobs=1 if is_limited() else None)
        # in a session of its own, since the main process decides what Ctrl-C means
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # a file would get the number of a closed standard error
            stderr=subprocess.DEVNULL if sys.stderr is None else None,
            start_new_session=True,
        )
        self._send(function)

    def __call__(self, item: object) -> None:
        """Call the function with an item; raise what it raises, or BuildError if the process has died."""
        self._send(pickle.dumps(item))
        assert self._process.stdout is not None
        try:
            error = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            status = self._process.wait()
            end = signal.Signals(-status).name if status < 0 else f"status {status}"
            raise BuildError("worker-lost", process=self._process.pid, end=end) from None
        if error is not None:
            raise error

    def _send(self, content: bytes) -> None:
        assert self._process.stdin is not None
        # a process that has died is found by its missing answer
        with suppress(BrokenPipeError):
            self._process.stdin.write(content)
            self._process.stdin.flush()

    def end(self) -> None:
        """Make the process give up its call and end."""
        self._process.terminate()

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self._process.communicate(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def serve(jobs: int | None) -> None:
    """Call the function that standard input brings with each object after it, until the end of the input."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # what anything prints must not mix with the answers
    os.dup2(2, 1)
    # leaves nothing half written, also in a store
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with limited_jobs(jobs), suppress(EOFError, BrokenPipeError):
        function = pickle.load(requests)
        while True:
            answers.write(_answer(function, pickle.load(requests)))
            answers.flush()


def _answer(function: Callable[[object], object], item: object) -> bytes:
    """Return the error of a call, or None, as a pickle."""
    error = None
    try:
        function(item)
    except Exception as raised:  # the main process decides what it means
        error = raised
    try:
        answer = pickle.dumps(error)
        pickle.loads(answer)
    except Exception:  # a class of errors may break pickle in any way
        answer = pickle.dumps(BuildError("build-failed", text=f"{type(error).__name__}: {error}"))
    return answer
