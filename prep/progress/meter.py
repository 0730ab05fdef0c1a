"""Show how many bytes of files are processed."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from tfshards.prep.progress.bars import Display
from tfshards.prep.progress.console import Console


class Meter:
    """Counts processed bytes from any thread; a context manager that removes its bar at the end."""

    def __init__(self, label: str, num_bytes: int, shown_on: Console | None = None) -> None:
        """Start at 0 of ``num_bytes``, shown on the console of the process by default."""
        self._done, self._started = 0, time.monotonic()
        self._display = Display(label, num_bytes, "bytes", shown_on)
        self._lock = threading.Lock()

    def __enter__(self) -> Meter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._display.report_end(self._done, self._rate)
        self._display.__exit__(kind, error, trace)

    def add(self, num_bytes: int) -> None:
        """Count bytes as processed."""
        with self._lock:
            self._done += num_bytes
            self._display.advance(num_bytes)
            if self._display.is_due:
                self._display.report(self._done, self._rate)

    @property
    def _rate(self) -> float:
        return self._done / max(time.monotonic() - self._started, 1e-9)
