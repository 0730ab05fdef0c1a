"""What is reported while something works: status lines, warnings, and how much is done.

Lines go to the logger ``tfshards``, and how much is done to a bar of tqdm, or to the logger as well.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from tfshards.schemas.errors import one_line

if TYPE_CHECKING:
    from tqdm.std import tqdm

LOGGER = logging.getLogger("tfshards")

# before the first line about how much is done, and between two of them, where there is no bar
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

    A terminal and a notebook show a bar, unless status lines are not wanted either; otherwise there is a line
    a minute.
    """

    def __init__(self, label: str, total: int | None, unit: Literal["examples", "bytes"] = "bytes") -> None:
        """Start at 0 of ``total``, which is None if it is not known."""
        self._lock = threading.Lock()
        self._bar = _bar(label, total, is_bytes=unit == "bytes")

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
        with self._lock:
            self._bar.update(max(0, done - self._bar.n))


def _bar(label: str, total: int | None, *, is_bytes: bool) -> tqdm[object]:
    # not at the top: most commands do not need it
    from tqdm.std import tqdm

    notebook = _notebook_bar()
    # standard error may be closed
    has_bar = notebook is not None or (sys.stderr is not None and sys.stderr.isatty())
    bar = (notebook or tqdm)(
        total=total,
        desc=label,
        unit="B" if is_bytes else " examples",
        unit_scale=is_bytes or (total or 0) >= _SCALED_EXAMPLES,
        unit_divisor=1024 if is_bytes else 1000,
        file=None if has_bar else _Lines(),
        bar_format=None if has_bar else "{desc}: {n_fmt} of {total_fmt}{unit}, {rate_fmt}, {remaining} left",
        dynamic_ncols=has_bar,
        # nothing is left of what only compares or verifies
        leave=has_bar and not is_bytes,
        delay=0 if has_bar else LINE_SECONDS,
        mininterval=0.1 if has_bar else LINE_SECONDS,
        miniters=0,
        # examples arrive shard by shard: only the average since the start gives the time left
        smoothing=0,
        disable=LOGGER.level > logging.INFO,
    )
    return cast("tqdm[object]", bar)


def _notebook_bar() -> type[tqdm[object]] | None:
    """Return the bars of a notebook, which also require ipywidgets; None elsewhere."""
    if "ipykernel" not in sys.modules:
        return None
    from tqdm.asyncio import tqdm_asyncio
    from tqdm.auto import tqdm

    return None if tqdm is tqdm_asyncio else cast("type[tqdm[object]]", tqdm)


class _Lines:
    """A file that reports what tqdm writes to it."""

    def write(self, text: str) -> None:
        """Report a line, unless it only clears the one before."""
        if line := text.strip():
            report_line(line)

    def flush(self) -> None:
        """Do nothing."""
