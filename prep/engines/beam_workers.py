"""Notice that a worker process of Beam has died, for which Beam itself would wait forever."""

from __future__ import annotations

import threading
import traceback

from tfshards.prep.engines.beam_log import ignore_beam
from tfshards.prep.engines.table import Work
from tfshards.schemas import BuildError

# Names of the threads in which Beam waits for a worker process to end, and for its responses.
WORKER_THREADS = ("run_worker", "beam_control_read")
_LOST_WORKER = (
    "a worker process died, perhaps because memory ran out (its output is in {log}); "
    "run the same command to resume"
)


class Workers:
    """The worker processes of a pipeline; the only sign of a dead one is an exception in a thread of Beam.

    Attributes:
        is_lost: whether a worker process has died.
    """

    def __init__(self, work: Work, failures: list[BaseException]) -> None:
        """Begin without watching.

        Args:
            work: the work, which is stopped when a worker has died.
            failures: receives the failure.
        """
        self._work, self._failures = work, failures
        self._hook = threading.excepthook
        self.is_lost: bool = False

    def watch(self) -> None:
        """Receive the exceptions of threads."""
        self._hook, threading.excepthook = threading.excepthook, self._note

    def leave(self, *, will_fail: bool) -> None:
        """Watch no more; if a worker is lost, or others will fail, ignore further failures of Beam."""
        if self.is_lost or will_fail:
            ignore_beam()
        else:
            threading.excepthook = self._hook

    def _note(self, death: threading.ExceptHookArgs) -> None:
        if not _is_of_beam(death):
            self._hook(death)
        elif death.thread and death.thread.name in WORKER_THREADS and not self._work.progress.has_ended:
            why = _LOST_WORKER.format(log=self._work.log_path)
            self._failures.append(BuildError("build-failed", text=why))
            # before the other workers stop, whose failure ends the pipeline
            self.is_lost = True
            self._work.stop(why)
            self._work.progress.end()


def _is_of_beam(death: threading.ExceptHookArgs) -> bool:
    frames = traceback.walk_tb(death.exc_traceback)
    return any(frame.f_globals.get("__name__", "").startswith("apache_beam.") for frame, _ in frames)
