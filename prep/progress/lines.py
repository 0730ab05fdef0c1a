"""What is reported while something works: status lines, warnings, and how much is done.

Lines go to the logger ``tfshards``, and how much is done to tqdm, which shows a bar, or lines as well.
"""

from __future__ import annotations

import logging
import sys
import threading
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


class _Lines:
    """A file for tqdm that reports its texts."""

    def write(self, text: str) -> None:
        if line := text.strip():
            report_line(line)

    def flush(self) -> None:
        pass


class Meter:
    """Shows how much is done, counted from any thread; a context manager that ends the bar.

    A terminal and a notebook show a bar; elsewhere there is a line a minute. There is neither if status lines
    are not wanted.
    """

    def __init__(self, label: str, total: int | None, unit: Literal["examples", "bytes"] = "bytes") -> None:
        """Start at 0 of ``total``, which is None if it is not known."""
        is_notebook = "ipykernel" in sys.modules
        # standard error may be closed
        has_bar = is_notebook or (sys.stderr is not None and sys.stderr.isatty())
        options: dict[str, object] = {"unit": "B", "unit_scale": True, "unit_divisor": 1024}
        if unit == "examples":
            options = {"unit": " examples", "unit_scale": (total or 0) >= _SCALED_EXAMPLES}
        if not has_bar:
            options |= {"file": _Lines(), "mininterval": LINE_SECONDS, "delay": LINE_SECONDS}
            options["bar_format"] = "{desc}: {n_fmt} of {total_fmt}{unit}, {rate_fmt}, {remaining} left"
        # not at the top: most commands do not need it
        bar = import_module("tqdm.auto" if is_notebook else "tqdm.std").tqdm(
            total=total,
            desc=label,
            dynamic_ncols=has_bar,
            # nothing is left of what only compares or verifies
            leave=has_bar and unit == "examples",
            miniters=0,
            # examples arrive shard by shard: only the average since the start gives the time left
            smoothing=0,
            disable=LOGGER.level > logging.INFO,
            **options,
        )
        self._bar = cast("tqdm[object]", bar)
        self._lock = threading.Lock()

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._bar.close()

    def add(self, count: int) -> None:
        """Count examples or bytes as done."""
        with self._lock:
            self._bar.update(count)

    def reach(self, done: int) -> None:
        """Count what is done by now, given as a total; it never decreases."""
        self.add(max(0, done - int(self._bar.n)))
