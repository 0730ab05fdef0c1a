"""A process that calls a function for another process; also the program that it runs.

Unlike ``multiprocessing``, it imports nothing of the program that started it, which may be a script without
``if __name__ == "__main__"``. Both send pickled objects through pipes.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from tfshards.prep.progress.threads import is_limited, limited_jobs
from tfshards.schemas import BuildError

_PROGRAM = "import sys; sys.path[:] = {path}; from tfshards.prep.engines.helper import serve; serve({jobs})"
# for the end of a helper, which stops at the next piece of its shard
_END_SECONDS = 10


def pickled(function: Callable[[Any], None]) -> bytes | None:
    """Return a function for helpers; None if they could not load it, for example from a script."""
    try:
        content = pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return None if b"__main__" in content else content


class Helper:
    """A process for calls of one function; a context manager that ends it."""

    def __init__(self, function: bytes) -> None:
        """Start the process; it imports tfshards while this one continues.

        Args:
            function: the function to call, as ``pickled`` returns it.
        """
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
        """Call the function with an item.

        Raises:
            BuildError: the process has died.
            Exception: what the function raised.
        """
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
    with limited_jobs(jobs):
        _serve()


def _serve() -> None:
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    # what anything prints must not mix with the answers
    os.dup2(2, 1)
    function: Any = None
    while True:
        try:
            content = pickle.load(requests)
        except EOFError:
            return
        if function is None:
            function = content
            continue
        error = None
        try:
            function(content)
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
