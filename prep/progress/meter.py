"""Show how many bytes of files are processed: a bar on a terminal, a line every ten seconds otherwise."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TextIO

from tfshards.prep.progress.bars import bar_class, shows_bars
from tfshards.prep.progress.lines import LINE_SECONDS
from tfshards.schemas.sizes import size


class Meter:
    """Counts processed bytes from any thread; a context manager that removes its bar at the end."""

    def __init__(self, label: str, num_bytes: int, stream: TextIO | None = None) -> None:
        """Start at 0 of ``num_bytes``; ``stream`` is standard error by default."""
        self._stream = stream or sys.stderr
        self._label, self._total, self._done = label, num_bytes, 0
        self._started = self._last_line = time.monotonic()
        self._lock = threading.Lock()
        self._bar = (
            bar_class()(
                total=num_bytes,
                desc=label,
                unit="B",
                unit_scale=True,
                unit_divisor=1024,
                file=self._stream,
                dynamic_ncols=True,
                leave=False,
            )
            if shows_bars(self._stream)
            else None
        )

    def __enter__(self) -> Meter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def add(self, num_bytes: int) -> None:
        """Count bytes as processed."""
        with self._lock:
            self._done += num_bytes
            if self._bar is not None:
                self._bar.update(num_bytes)
                return
            now = time.monotonic()
            if now - self._last_line < LINE_SECONDS:
                return
            self._last_line = now
        rate = self._done / (now - self._started)
        left = f"{(self._total - self._done) / rate:.0f} s left" if rate else "time left unknown"
        done = f"{size(self._done)} of {size(self._total)}, {size(rate)}/s, {left}"
        print(f"{self._label}: {done}", file=self._stream, flush=True)
