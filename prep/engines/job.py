"""The job that an engine runs elsewhere, and the job server of a runner."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from tfshards.prep.engines.table import Work
from tfshards.prep.engines.worker import has_arrived
from tfshards.prep.progress.lines import Written, as_warning
from tfshards.schemas import BuildError
from tfshards.schemas.files import write_atomically
from tfshards.schemas.storage import AnyPath

# How long to wait for a cancelled job and for threads of this process to end.
_CANCEL_SECONDS = 60
_END_SECONDS = 10
# A job ends soon after an error of a worker, unless its engine repeats the tasks.
_FAILURE_SECONDS = 10


@dataclass(frozen=True)
class JobNote:
    """A job of a job service.

    Attributes:
        job_id: id that the job service gave to the job.
        endpoint: host and port of the job service; empty if Beam does not know it.
    """

    job_id: str
    endpoint: str

    def __str__(self) -> str:
        return f"the job {self.job_id}" + (f" at {self.endpoint}" if self.endpoint else "")

    def write(self, path: AnyPath) -> None:
        """Write the note."""
        write_atomically(path, json.dumps(asdict(self)).encode("ascii"))


class Handle(Protocol):
    """A job that has started."""

    @property
    def job_id(self) -> str:
        """The id that the job service gave to it."""

    def has_ended(self) -> bool:
        """Return whether it has ended, in whatever way.

        Raises:
            BuildError: the job service does not answer, or does not know the job.
        """

    def cancel(self) -> None:
        """Cancel the job and wait for its end.

        Raises:
            BuildError: the job service does not answer, or does not know the job.
        """


@dataclass
class Job:
    """The job of a run, which another thread starts, and the main thread cancels.

    Attributes:
        work: the work of the job.
        is_local: whether its workers are threads or processes that Beam's local runner starts.
        endpoint: host and port of the job service, or nothing.
        is_lasting: whether the job service does not end with this process.
    """

    work: Work
    is_local: bool
    endpoint: str = ""
    is_lasting: bool = False
    _handle: Handle | None = None
    _note: JobNote | None = None
    _has_ended: bool = False
    _is_cancelled: bool = False
    _failed_at: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, handle: Handle) -> None:
        """Take the handle of the job, which has started; if it is to be cancelled, do that now."""
        if self.is_local:
            return
        with self._lock:
            self._handle = handle
            self._note = JobNote(handle.job_id, self.endpoint)
            if self.work.area is not None and self.is_lasting:
                self._note.write(self.work.area.job_path)
            is_cancelled = self._is_cancelled
        if is_cancelled:
            handle.cancel()

    def finish(self) -> None:
        """Take note that the job has ended, if that is so; its job service may end next."""
        with suppress(BuildError):
            self._has_ended = self._handle is not None and self._handle.has_ended()

    def forget(self) -> None:
        """Remove the note of the job, which has ended."""
        if self.work.area is not None:
            self.work.area.job_path.unlink(missing_ok=True)

    def measure(self) -> Written:
        """Return the examples and bytes that workers have written, according to the build area.

        Raises:
            BuildError: a worker has failed, but the job continues.
        """
        if self.work.area is not None and self.work.area.stop_reason() is not None:
            # the engine may repeat the task, which cannot succeed any more
            self._failed_at = self._failed_at or time.monotonic()
            if time.monotonic() - self._failed_at >= _FAILURE_SECONDS:
                raise BuildError("worker-failed")
        return self.work.measure()

    def where(self) -> str:
        """Return where to look if the job makes no progress."""
        if self.is_local:
            return f"the output of worker processes is in {self.work.log_path}" if self.work.log_path else ""
        if self._note is None:
            at = f" at {self.endpoint}" if self.endpoint else ""
            return f"the job has not started; see the job service{at}, and {self.work.log_path}"
        if self.work.area is not None and not has_arrived(self.work.area.unfinished_path("")):
            return (
                f"{self._note} has no worker: it waits for free slots, or workers cannot start; see their "
                "logs, and whether their Python has apache_beam and tfshards"
            )
        return f"see {self._note}, and the logs of its workers"

    def cancel(self, thread: threading.Thread) -> None:
        """Cancel the job, wait until it and the thread have ended; if that fails, log how to do it."""
        if self.is_local:
            thread.join(_END_SECONDS)
            return
        with self._lock:
            self._is_cancelled = True
            handle = self._handle
        problems: list[BaseException] = []

        def cancel(handle: Handle) -> None:
            try:
                handle.cancel()
            except BaseException as error:  # whatever it is, the job may still run
                problems.append(error)

        try:
            if handle is not None and not self._has_ended:
                # in a thread, since calls of Beam have no time limit
                canceller = threading.Thread(target=cancel, args=(handle,), name="cancel", daemon=True)
                canceller.start()
                canceller.join(_CANCEL_SECONDS)
                if canceller.is_alive():
                    problems.append(TimeoutError(f"it has not ended for {_CANCEL_SECONDS} s"))
            thread.join(_END_SECONDS)
        except KeyboardInterrupt as again:
            problems.append(again)
        if handle is None and self.endpoint and thread.is_alive():
            self.work.log(
                as_warning(f"{self.endpoint} does not answer; it may still start a job of this build")
            )
        elif problems and handle is not None and (self.is_lasting or thread.is_alive()):
            # a job service of this process ends when Beam's thread does, and may be gone before it answers
            why = (str(problems[0]).splitlines() or ["interrupted again"])[0]
            self.work.log(
                as_warning(
                    f"{self._note} may still run, since it could not be cancelled ({why}); cancel it in the "
                    "interface of its engine, or run the same command, which cancels it first"
                )
            )
        elif handle is not None:
            self.forget()


# The shell ends the server when its standard input is closed, which happens even if this process is killed.
_UNTIL_CLOSED = 'exec 3<&0; "$@" </dev/null & server=$!; { read -r _ <&3; kill $server; } & wait $server'


@contextmanager
def running(command: Sequence[str], endpoint: str, log_path: Path, seconds: float) -> Iterator[None]:
    """Run a server, and end it afterwards.

    Args:
        command: program and arguments.
        endpoint: host and port at which the server answers when it is ready.
        log_path: file to which its output is appended.
        seconds: how long to wait until it is ready.

    Raises:
        BuildError: the server ended, or does not answer.
    """
    with log_path.open("ab") as log:
        # In a session of its own, Ctrl-C does not end the server, which is still needed to cancel the job.
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
            process.wait(_END_SECONDS)
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
