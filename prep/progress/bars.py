"""Show how much of some work is done: a bar on a terminal or in a notebook, otherwise lines at intervals."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Literal, cast

from tfshards.prep.progress.console import console
from tfshards.schemas.errors import size

if TYPE_CHECKING:
    from tqdm.asyncio import tqdm_asyncio

# between two lines where there is no bar
LINE_SECONDS = 10.0
_TICK_SECONDS = 0.1
# Below this number, a bar counts in whole examples.
_SCALED_EXAMPLES = 10_000


class Display:
    """Shows how much is done; a context manager that ends the bar."""

    def __init__(self, label: str, total: int | None, unit: Literal["examples", "bytes"]) -> None:
        """Show 0 of ``total``, which is None if it is not known, on the console of the process."""
        self._console = console()
        self._label, self._total, self._unit = label, total, unit
        self._reported = time.monotonic()
        self._bar = self._make_bar()
        self._console.bar = self._bar

    def _make_bar(self) -> tqdm_asyncio[object] | None:
        stream = self._console.stream
        if self._console.is_quiet or stream is None:
            return None
        if not stream.isatty() and not (stream is sys.stderr and _is_in_notebook()):
            return None
        is_bytes = self._unit == "bytes"
        bar = bar_class()(
            total=self._total,
            desc=self._label,
            unit="B" if is_bytes else " examples",
            unit_scale=is_bytes or (self._total or 0) >= _SCALED_EXAMPLES,
            unit_divisor=1024 if is_bytes else 1000,
            file=stream,
            dynamic_ncols=True,
            # of what only compares or verifies, nothing is left
            leave=not is_bytes,
            miniters=0,
            mininterval=_TICK_SECONDS,
            # Examples arrive shard by shard: only the average since the start gives the time left.
            smoothing=0,
        )
        return cast("tqdm_asyncio[object]", bar)

    def __enter__(self) -> Display:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._console.bar = None
        if self._bar is not None:
            self._bar.close()

    def advance(self, count: int, postfix: str = "") -> None:
        """Advance the bar, if there is one."""
        if self._bar is not None:
            self._bar.set_postfix_str(postfix, refresh=False)
            self._bar.update(count)

    @property
    def is_due(self) -> bool:
        """Whether it is time to report."""
        return time.monotonic() - self._reported >= LINE_SECONDS

    def report(self, done: int, rate: float, num_bytes: int | None = None) -> None:
        """Report how much is done, at ``rate`` per second, and the bytes if they are not the unit."""
        self._reported = time.monotonic()
        seconds = (self._total - done) / rate if rate and self._total is not None else None
        left = "time left unknown" if seconds is None else f"{seconds:.0f} s left"
        if self._unit == "bytes":
            what = f"{size(done)} of {size(self._total or 0)}, {size(rate)}/s"
        else:
            of = "" if self._total is None else f" of {self._total:,}"
            what = f"{done:,}{of} examples, {size(num_bytes or 0)}, {rate:,.0f} examples/s"
        self._console.progress(f"{self._label}: {what}, {left}")


def bar_class() -> type[tqdm_asyncio[object]]:
    """Return the bars of tqdm that fit: notebook widgets, or text."""
    # not at the top: it imports asyncio, which most commands do not need
    from tqdm.auto import tqdm

    return cast("type[tqdm_asyncio[object]]", tqdm)


def _is_in_notebook() -> bool:
    """Return whether tqdm shows the bars of a notebook, which also requires ipywidgets."""
    if "ipykernel" not in sys.modules:
        return False
    from tqdm.asyncio import tqdm_asyncio

    return bar_class() is not tqdm_asyncio
