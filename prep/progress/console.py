"""The one place through which a command reports: status lines, warnings, progress, details and errors.

The library reports to the console of the process: standard error, unless the command line replaces it for
one command. No report raises an error: a closed stream, or one whose reader has ended, must not end a build.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from tfshards.schemas.errors import one_line

if TYPE_CHECKING:
    from tqdm.asyncio import tqdm_asyncio

# The start of a warning where it is text.
WARNING = "warning: "


class Console:
    """Prints reports to a stream."""

    def __init__(
        self, stream: TextIO | None = None, *, is_quiet: bool = False, is_verbose: bool = False
    ) -> None:
        """Create a console."""
        self._stream = stream
        self.is_quiet: bool = is_quiet
        self.is_verbose: bool = is_verbose
        self._lock = threading.RLock()
        self.bar: tqdm_asyncio[object] | None = None

    @property
    def stream(self) -> TextIO | None:
        """Where reports are printed; None if standard error was closed before the start."""
        return self._stream or sys.stderr

    def line(self, text: str, *, is_warning: bool = False) -> None:
        """Report a status line, or a warning."""
        if is_warning or not self.is_quiet:
            self._report(f"{WARNING if is_warning else ''}{one_line(text)}")

    def progress(self, text: str) -> None:
        """Report how much is done, unless a bar shows it."""
        if not self.is_quiet and self.bar is None:
            self._report(text)

    def detail(self, text: str) -> None:
        """Report something that only helps to find the cause of a problem, such as a traceback."""
        if self.is_verbose:
            for line in map(one_line, text.splitlines()):
                self._report(line)

    def error(self, text: str) -> None:
        """Report the error that ends the command."""
        self._report(text)

    def _report(self, text: str) -> None:
        # a closed file raises ValueError
        with self._lock, suppress(OSError, ValueError):
            if self.bar is not None:
                self.bar.write(text, file=self.stream)
            elif self.stream is not None:
                self.stream.write(f"{text}\n")
                self.stream.flush()


class _Handler(logging.Handler):
    """Reports what libraries log as details."""

    def emit(self, record: logging.LogRecord) -> None:
        """Report one record."""
        console().detail(self.format(record))


_consoles = [Console()]


def console() -> Console:
    """Return the console of the process."""
    return _consoles[-1]


@contextmanager
def reporting(to: Console) -> Iterator[None]:
    """Make ``to`` the console of the process, with what libraries log if it is verbose."""
    handler, root = _Handler(), logging.getLogger()
    handler.setFormatter(logging.Formatter("%(name)s: %(levelname)s: %(message)s"))
    level = root.level
    _consoles.append(to)
    if to.is_verbose:
        root.addHandler(handler)
        root.setLevel(logging.INFO)
    try:
        yield
    finally:
        _consoles.remove(to)
        if to.is_verbose:
            root.removeHandler(handler)
            root.setLevel(level)
