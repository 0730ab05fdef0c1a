"""The one place through which a command reports: status lines, warnings, progress, details and errors.

The library reports to the console of the process: standard error, unless the command line replaces it for
one command. No report raises an error: a closed stream, or one whose reader has ended, must not end a build.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, BinaryIO, TextIO

from tfshards.schemas.errors import one_line
from tfshards.schemas.json_reader import Json

if TYPE_CHECKING:
    from tqdm.asyncio import tqdm_asyncio

# The start of a line of a log.
_LOG_LINE = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00 ")
# The start of a warning where it is text.
WARNING = "warning: "


class Console:
    """Prints reports to a stream as text or, one per line, as JSON, and appends them to a file."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        is_quiet: bool = False,
        is_verbose: bool = False,
        has_events: bool = False,
        log_file: TextIO | None = None,
    ) -> None:
        """Create a console."""
        self._stream, self._log_file = stream, log_file
        self._is_verbose = is_verbose
        self.is_quiet: bool = is_quiet
        self.has_events: bool = has_events
        self._lock = threading.RLock()
        self.bar: tqdm_asyncio[object] | None = None

    @property
    def stream(self) -> TextIO | None:
        """Where reports are printed; None if standard error was closed before the start."""
        return self._stream or sys.stderr

    @property
    def has_details(self) -> bool:
        """Whether details are reported anywhere."""
        return self._is_verbose or self._log_file is not None

    def line(self, text: str, *, is_warning: bool = False) -> None:
        """Report a status line, or a warning."""
        text = one_line(text)
        event: dict[str, Json] = {"event": "warning" if is_warning else "status", "message": text}
        self._report(
            f"{WARNING}{text}" if is_warning else text, event, is_printed=is_warning or not self.is_quiet
        )

    def progress(self, text: str, values: Mapping[str, Json]) -> None:
        """Report how much is done, unless a bar shows it."""
        is_printed = not self.is_quiet and self.bar is None
        self._report(text, {"event": "progress", **values}, is_printed=is_printed)

    def detail(self, text: str) -> None:
        """Report something that only helps to find the cause of a problem, such as a traceback."""
        for line in map(one_line, text.splitlines()):
            self._report(line, {"event": "detail", "message": line}, is_printed=self._is_verbose)

    def error(self, text: str, document: Mapping[str, Json]) -> None:
        """Report the error that ends the command, which is a JSON object, too."""
        self._report(text, {"event": "error", **document})

    def _report(self, text: str, event: Mapping[str, Json], *, is_printed: bool = True) -> None:
        with self._lock:
            if self._log_file is not None:
                self._append(text)
            # a closed file raises ValueError
            with suppress(OSError, ValueError):
                if is_printed and self.stream is not None:
                    self._print(json.dumps(event) if self.has_events else text, self.stream)

    def _print(self, text: str, stream: TextIO) -> None:
        if self.bar is not None:
            self.bar.write(text, file=stream)
            return
        stream.write(f"{text}\n")
        stream.flush()

    def _append(self, text: str) -> None:
        assert self._log_file is not None
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        try:
            for line in text.strip().splitlines():
                self._log_file.write(f"{now} {line}\n")
            self._log_file.flush()
        except (OSError, ValueError) as error:
            file, self._log_file = self._log_file, None
            # it has content that cannot be written
            with suppress(OSError, ValueError):
                file.close()
            self.line(f"{file.name} is incomplete: {error}", is_warning=True)


def is_log(file: BinaryIO) -> bool:
    """Return whether a file begins with a line of a log."""
    return _LOG_LINE.match(file.read(64)) is not None


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
    """Make ``to`` the console of the process, with what libraries log if it has details."""
    handler, root = _Handler(), logging.getLogger()
    handler.setFormatter(logging.Formatter("%(name)s: %(levelname)s: %(message)s"))
    level = root.level
    _consoles.append(to)
    if to.has_details:
        root.addHandler(handler)
        root.setLevel(logging.INFO)
    try:
        yield
    finally:
        _consoles.remove(to)
        if to.has_details:
            root.removeHandler(handler)
            root.setLevel(level)
