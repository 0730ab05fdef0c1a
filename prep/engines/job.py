"""The job that an engine runs elsewhere (note it, cancel it, report where to look), and a server for it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tfshards.prep.engines.table import Work
from tfshards.prep.progress.lines import Written, report_warning
from tfshards.schemas import BuildError
from tfshards.schemas.files import write_atomically

# How long to wait for a cancelled job and for threads of this process to end.
_CANCEL_SECONDS = 60
END_SECONDS = 10
# A job ends soon after an error of a worker, unless its engine repeats the tasks.
_FAILURE_SECONDS = 10


@dataclass(frozen=True)
class JobNote:
    """A job of the job service at an endpoint, which is empty if Beam does not know it."""

    job_id: str
    endpoint: str

    def __str__(self) -> str:
        return f"the job {self.job_id}" + (f" at {self.endpoint}" if self.endpoint else "")


class Job:
    """The job of a run, which another thread starts, and the main thread cancels.

    Attributes:
        endpoint: host and port of its job service, or nothing.
        log_path: output of the job service that this process starts.
    """

    def __init__(self, work: Work, endpoint: str = "", log_path: Path | None = None) -> None:
        """Begin without a job."""
        self._work = work
        self.endpoint: str = endpoint
        self.log_path: Path | None = log_path
        self._cancel: Callable[[], object] | None = None
        self._note: JobNote | None = None
        self._is_cancelled = False
        self._failed_at: float | None = None
        self._lock = threading.Lock()

    def start(self, job_id: str, cancel: Callable[[], object]) -> None:
        """Take note of the job, which has started, and how to cancel it; do that now if it is to be."""
        with self._lock:
            self._cancel = cancel
            self._note = JobNote(job_id, self.endpoint)
            # a job service of this process ends with it
            if self._work.area is not None and self.endpoint and self.log_path is None:
                write_atomically(self._work.area.job_path, json.dumps(asdict(self._note)).encode("ascii"))
            is_cancelled = self._is_cancelled
        if is_cancelled:
            cancel()

    def forget(self) -> None:
        """Remove the note of the job, which has ended."""
        if self._work.area is not None:
            self._work.area.job_path.unlink(missing_ok=True)

    def measure(self) -> Written:
        """Return the examples and bytes that workers have written, according to the build area.

        Raises:
            BuildError: a worker has failed, but the job continues.
        """
        if self._work.area is not None and self._work.area.stop_reason() is not None:
            # the engine may repeat the task, which cannot succeed any more
            self._failed_at = self._failed_at or time.monotonic()
            if time.monotonic() - self._failed_at >= _FAILURE_SECONDS:
                raise BuildError("worker-failed")
        return self._work.measure()

    def where(self) -> str:
        """Return where to look if the job makes no progress."""
        if self._note is None:
            output = f", and {self.log_path}" if self.log_path else ""
            return f"the job has not started; see the job service {self.endpoint}".rstrip() + output
        return (
            f"{self._note} waits for free slots, or its workers cannot start or are slow; see their logs, "
            "and whether their Python has apache_beam and tfshards"
        )

    def cancel(self, thread: threading.Thread) -> None:
        """Cancel the job, wait until it and the thread have ended; if that fails, log how to do it."""
        with self._lock:
            self._is_cancelled = True
            known = self._cancel
        problems: list[BaseException] = []

        def cancel() -> None:
            try:
                if known is not None:
                    known()
            except BaseException as error:  # whatever it is, the job may still run
                problems.append(error)

        try:
            # in a thread, since calls of Beam have no time limit
            canceller = threading.Thread(target=cancel, name="cancel", daemon=True)
            canceller.start()
            canceller.join(_CANCEL_SECONDS)
            if canceller.is_alive():
                problems.append(TimeoutError(f"it has not ended for {_CANCEL_SECONDS} s"))
            thread.join(END_SECONDS)
        except KeyboardInterrupt as again:
            problems.append(again)
        if problems and self.log_path is None:
            why = (str(problems[0]).splitlines() or ["interrupted again"])[0]
            report_warning(
                f"{self._note or 'a job'} may still run, since it could not be cancelled ({why}); cancel "
                "it in the interface of its engine, or run the same command, which cancels it first"
            )
        elif known is not None:
            self.forget()


# The shell ends the server when its standard input is closed, which happens even if this process is killed.
_UNTIL_CLOSED = 'exec 3<&0; "$@" </dev/null & server=$!; { read -r _ <&3; kill $server; } & wait $server'


@contextmanager
def running(command: Sequence[str], endpoint: str, log_path: Path, seconds: float) -> Iterator[None]:
    """Run a server that answers at ``endpoint`` within ``seconds``, append its output to a file, and end it.

    Raises:
        BuildError: the server ended, or does not answer.
    """
    with log_path.open("ab") as log:
        # in a session of its own, since after Ctrl-C it is still needed to cancel the job
        process = subprocess.Popen(
            ["sh", "-c", _UNTIL_CLOSED, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        _wait_until_ready(process, command[0], endpoint, log_path, seconds)
        yield
    finally:
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until_ready(
    process: subprocess.Popen[bytes], name: str, endpoint: str, log_path: Path, seconds: float
) -> None:
    host, _, port = endpoint.rpartition(":")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise BuildError("job-server-ended", name=name, returncode=process.returncode, log_path=log_path)
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.05)
    raise BuildError("job-server-silent", name=name, endpoint=endpoint, log_path=log_path)
