"""What is reported while something works: status lines, warnings, and how much is done.

Lines go to the logger ``tfshards``, and how much is done to a bar of tqdm, or to the logger as well.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from tfshards.schemas.errors import one_line

if TYPE_CHECKING:
    from tqdm.std import tqdm

LOGGER = logging.getLogger("tfshards")

# between two lines about how much is done, where there is no bar
LINE_SECONDS = 60.0
# the work for an example in addition to the work for its bytes, in bytes
_BYTES_PER_EXAMPLE = 4 << 10
# below this number, a bar counts in whole examples
_SCALED_EXAMPLES = 10_000


def report_line(*texts: str) -> None:
    """Report status lines."""
    for text in texts:
        LOGGER.info("%s", one_line(text))


def report_warning(*texts: str) -> None:
    """Report warnings, whose texts are without ``warning:``."""
    for text in texts:
        LOGGER.warning("%s", one_line(text))


class Written(NamedTuple):
    """How much is written."""

    num_examples: int = 0
    num_bytes: int = 0

    @property
    def work(self) -> int:
        """The work for these examples and bytes, in bytes."""
        return self.num_bytes + _BYTES_PER_EXAMPLE * self.num_examples


class Meter:
    """Shows how much is done, counted from any thread; a context manager that ends the bar.

    A terminal and a notebook show a bar, unless status lines are not wanted either; elsewhere there is a line
    a minute.
    """

    def __init__(self, label: str, total: int | None, unit: Literal["examples", "bytes"] = "bytes") -> None:
        """Start at 0 of ``total``, which is None if it is not known."""
        self._label, self._total, self._is_bytes = label, total, unit == "bytes"
        self._done, self._started = 0, time.monotonic()
        self._reported = self._started
        self._lock = threading.Lock()
        is_notebook = "ipykernel" in sys.modules
        # standard error may be closed
        has_bar = is_notebook or (sys.stderr is not None and sys.stderr.isatty())
        self._bar = self._make_bar("tqdm.auto" if is_notebook else "tqdm.std") if has_bar else None

    def _make_bar(self, module: str) -> tqdm[object]:
        # not at the top: most commands do not need it
        bar = import_module(module).tqdm(
            total=self._total,
            desc=self._label,
            **self._units,
            dynamic_ncols=True,
            # nothing is left of what only compares or verifies
            leave=not self._is_bytes,
            miniters=0,
            # examples arrive shard by shard: only the average since the start gives the time left
            smoothing=0,
            disable=LOGGER.level > logging.INFO,
        )
        return cast("tqdm[object]", bar)

    @property
    def _units(self) -> dict[str, str | int]:
        if self._is_bytes:
            return {"unit": "B", "unit_scale": True, "unit_divisor": 1024}
        return {"unit": " examples", "unit_scale": (self._total or 0) >= _SCALED_EXAMPLES}

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def add(self, count: int) -> None:
        """Count examples or bytes as done."""
        with self._lock:
            self._done += count
            if self._bar is not None:
                self._bar.update(count)
            elif (now := time.monotonic()) - self._reported >= LINE_SECONDS:
                self._reported = now
                report_line(self._line(now - self._started))

    def reach(self, done: int) -> None:
        """Count what is done by now, given as a total; it never decreases."""
        self.add(max(0, done - self._done))

    def _line(self, seconds: float) -> str:
        line = import_module("tqdm.std").tqdm.format_meter(
            self._done,
            self._total,
            seconds,
            prefix=self._label,
            bar_format="{desc}: {n_fmt} of {total_fmt}{unit}, {rate_fmt}, {remaining} left",
            **self._units,
        )
        return str(line)
