"""The job that an engine runs elsewhere: note it, cancel it, and report where to look."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from tfshards.prep.engines.table import Work
from tfshards.prep.progress.lines import Written, as_warning
from tfshards.schemas import BuildError
from tfshards.schemas.files import write_atomically

# How long to wait for a cancelled job and for threads of this process to end.
_CANCEL_SECONDS = 60
_END_SECONDS = 10
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
    """The job of a run, which another thread starts, and the main thread cancels."""

    def __init__(self, work: Work, endpoint: str, *, is_local: bool) -> None:
        """Begin without a job; the workers of a local one are threads of this process."""
        self._work, self._endpoint, self._is_local = work, endpoint, is_local
        self._cancel: Callable[[], object] | None = None
        self._note: JobNote | None = None
        self._is_cancelled = False
        self._failed_at: float | None = None
        self._lock = threading.Lock()

    def start(self, job_id: str, cancel: Callable[[], object]) -> None:
        """Take note of the job, which has started, and how to cancel it; do that now if it is to be."""
        if self._is_local:
            return
        with self._lock:
            self._cancel = cancel
            self._note = JobNote(job_id, self._endpoint)
            if self._work.area is not None and self._endpoint:
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
        if self._is_local:
            return ""
        if self._note is None:
            return f"the job has not started; see the job service {self._endpoint}".rstrip()
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
            thread.join(_END_SECONDS)
        except KeyboardInterrupt as again:
            problems.append(again)
        if problems:
            why = (str(problems[0]).splitlines() or ["interrupted again"])[0]
            self._work.log(
                as_warning(
                    f"{self._note or 'a job'} may still run, since it could not be cancelled ({why}); cancel "
                    "it in the interface of its engine, or run the same command, which cancels it first"
                )
            )
        elif known is not None:
            self.forget()
