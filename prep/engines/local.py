"""Write shards on all cores of this machine: the default engine, and its processes."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

from tfshards.prep.engines.table import Work, run_on_threads
from tfshards.prep.progress.lines import Written
from tfshards.prep.progress.threads import is_limited, limited_jobs, num_jobs, num_writers
from tfshards.schemas import BuildError, OptionsError

_PROGRAM = "import sys; sys.path[:] = {path}; from tfshards.prep.engines.local import serve; serve({jobs})"
# for the end of a helper, which stops at the next piece of its shard
_END_SECONDS = 10


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
            raise BuildError("worker-lost") from None
        if error is not None:
            raise error

    def _send(self, content: bytes) -> None:
        assert self._process.stdin is not None
        # a process that has died is found by its missing answer
        with suppress(BrokenPipeError):
            self._process.stdin.write(content)
            self._process.stdin.flush()

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def serve(jobs: int | None) -> None:
    """Call the function that standard input brings with each object after it, until the end of the input."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    # what anything prints must not mix with the answers
    os.dup2(2, 1)
    with limited_jobs(jobs), suppress(EOFError):
        function = pickle.load(requests)
        while True:
            item, error = pickle.load(requests), None
            try:
                function(item)
            except Exception as raised:  # the main process decides what it means
                error = raised
            try:
                answer = pickle.dumps(error)
                pickle.loads(answer)
            except Exception:  # a class of errors may break pickle in any way
                answer = pickle.dumps(BuildError("build-failed", text=str(error)))
            with suppress(BrokenPipeError):
                answers.write(answer)
                answers.flush()


# A helper takes a third of a second to start, which is also the time to write about this much. Examples count
# as well as their bytes, for example where they are rows of small arrays.
_BYTES_PER_HELPER = 32 << 20


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise OptionsError if there are arguments, which only Apache Beam accepts."""
    if arguments:
        raise OptionsError("beam-args-useless", arguments=list(arguments))


def num_helpers(size: Written, num_shards: int, num_cores: int | None = None) -> int:
    """Return the number of processes that help to write this many examples and bytes."""
    paid = size.work // _BYTES_PER_HELPER
    return max(0, min(num_cores or num_jobs(), num_shards, paid) - 1)


class Crew(NamedTuple):
    """Who calls the function of some work on one machine."""

    num_helpers: int
    num_threads: int

    @staticmethod
    def of(work: Work) -> Crew:
        """Return the crew that pays off."""
        is_remote = work.area is not None and work.area.is_remote
        # a helper writes one shard at a time, and so does this process if it has some
        count = num_helpers(work.size, len(work.items))
        if not count or pickled(work.function) is None:
            return Crew(0, num_writers(is_remote=is_remote))
        return Crew(count, num_writers() if is_remote else 1)

    @contextmanager
    def calling(self, function: Callable[[Any], object]) -> Iterator[Callable[[Any], None]]:
        """Yield a function that has the given one called in this process or in a helper, when one is free."""
        with ExitStack() as helpers:
            calls: queue.SimpleQueue[Callable[[Any], object]] = queue.SimpleQueue()
            for _ in range(self.num_threads):
                calls.put(function)
            for _ in range(self.num_helpers):
                calls.put(helpers.enter_context(Helper(pickle.dumps(function))))

            def call(item: object) -> None:
                free = calls.get()
                try:
                    free(item)
                finally:
                    calls.put(free)

            yield call


def run(work: Work, arguments: Sequence[str] = ()) -> None:
    """Call the function with every item, in this process and in helpers; raise the first failure."""
    crew = Crew.of(work)
    with crew.calling(work.function) as call:
        run_on_threads(replace(work, function=call), sum(crew))
