"""Status lines, and the progress of a build: workers report over loopback, the main process prints."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

from tfshards.prep.progress.bars import Display
from tfshards.prep.progress.console import WARNING, console
from tfshards.prep.progress.threads import StoppedError
from tfshards.schemas.errors import size

_HOST = "127.0.0.1"
_TICK_SECONDS = 0.1
# between two measurements, which may take a tenth of the time at most
MEASURE_SECONDS = 1.0
# without progress, until a line says so; then twice as long, and so on
STALL_SECONDS = 30.0

# The argument ``log`` of public functions: receives status lines and warnings, which start with "warning: ".
Log: TypeAlias = Callable[[str], None]
# What this room reports to: receives the text of a line, and whether it is a warning.
Sink: TypeAlias = Callable[[str, bool], None]
Params = ParamSpec("Params")
Value = TypeVar("Value")

# Tokens of the work of this process that failed or was interrupted. A reporter that was pickled, as in the
# threads of Beam's local runner, finds its token here as well.
_stopped: set[str] = set()


@dataclass(frozen=True)
class Reporter:
    """Sends reports from a worker; it is pickled and sent to the worker's process."""

    port: int = 0
    token: str = ""

    def check(self) -> None:
        """Raise StoppedError in a thread of the main process if the work failed or was interrupted."""
        if self.token in _stopped:
            raise StoppedError

    def stop(self) -> None:
        """Make ``check`` raise from now on in this process, where results are no longer needed."""
        _stopped.add(self.token)

    def report(self, num_examples: int, num_bytes: int) -> None:
        """Report examples and bytes written since the last report; raise as ``check`` does."""
        self.check()
        if self.port:
            # without a loopback device the report is lost, which does no harm
            with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(f"{self.token} {num_examples} {num_bytes}".encode(), (_HOST, self.port))


# Of workers that nobody follows.
NO_REPORTS = Reporter()

# The work for an example in addition to the work for its bytes, in bytes.
_BYTES_PER_EXAMPLE = 4 << 10


class Written(NamedTuple):
    """How much workers have written."""

    num_examples: int = 0
    num_bytes: int = 0

    @property
    def work(self) -> int:
        """The work for these examples and bytes, in bytes."""
        return self.num_bytes + _BYTES_PER_EXAMPLE * self.num_examples


class WorkProgress:
    """Shows reports in the main process."""

    def __init__(self, label: str, num_examples: int) -> None:
        """Open the port for a total of ``num_examples``."""
        self._total = num_examples
        self._label = label
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((_HOST, 0))
        self.reporter: Reporter = Reporter(self._socket.getsockname()[1], secrets.token_hex(8))
        self._written = Written()
        # the state when the first progress was seen, from which the rate is measured
        self._first: tuple[float, Written] | None = None
        self._measure: Callable[[], Written] | None = None
        self._where: Callable[[], str] = str
        self._ended = threading.Event()

    def end(self) -> None:
        """Make ``follow`` return, from any thread."""
        self._ended.set()
        # ends its wait for the next report
        Reporter(self.reporter.port).report(0, 0)

    @property
    def has_ended(self) -> bool:
        """Whether ``end`` was called."""
        return self._ended.is_set()

    def follow(
        self, measure: Callable[[], Written] | None = None, where: Callable[[], str] | None = None
    ) -> None:
        """Show progress until ``end`` is called."""
        self._measure = measure
        self._where = where or str
        self._started = self._advanced = self._measured = time.monotonic()
        self._patience = STALL_SECONDS
        try:
            with Display(self._label, self._total, "examples") as display:
                while not self.has_ended:
                    advance, stall = self._wait(), self._stall()
                    # between two measurements, a bar would take the rate for 0
                    if advance or not self._measure:
                        display.advance(advance, size(self._written.num_bytes))
                    if stall:
                        console().line(stall)
                    if display.is_due:
                        self._report(display)
                display.advance(self._receive(0) + self._take_measure(), size(self._written.num_bytes))
        finally:
            self._socket.close()

    def _report(self, display: Display) -> None:
        num_examples, num_bytes = self._written
        now = time.monotonic()
        seconds, since = now - self._started, num_examples
        if self._first and num_examples > self._first[1].num_examples:
            # without the time until the first worker started
            seconds, since = now - self._first[0], num_examples - self._first[1].num_examples
        display.report(num_examples, since / max(seconds, 1e-9), num_bytes)

    def _stall(self) -> str:
        """Return a line if there has been no progress for some time."""
        seconds = time.monotonic() - self._advanced
        if seconds < self._patience:
            return ""
        self._patience *= 2
        where = self._where()
        return f"{self._label}: no progress for {seconds:.0f} s" + (f"; {where}" if where else "")

    def _wait(self) -> int:
        """Wait for reports for at most one tick; return by how many examples the build has advanced."""
        advance, now = self._receive(_TICK_SECONDS), time.monotonic()
        if self._measure and now >= self._measured:
            advance += self._take_measure()
            after = time.monotonic()
            self._measured = after + max(MEASURE_SECONDS, 10 * (after - now))
        if advance:
            self._advanced, self._patience = now, STALL_SECONDS
            self._first = self._first or (now, self._written)
        return advance

    def _take_measure(self) -> int:
        """Take over what workers have written; return by how many examples that is more than before."""
        if not self._measure:
            return 0
        before = self._written.num_examples
        # a task that an engine repeats begins anew
        self._written = Written(*map(max, self._written, self._measure()))
        return self._written.num_examples - before

    def _receive(self, seconds: float) -> int:
        """Wait for a report, and return how many examples it and those that arrived with it add."""
        total = 0
        self._socket.settimeout(seconds)
        with suppress(TimeoutError, BlockingIOError):
            while True:
                total += self._count(self._socket.recv(256))
                self._socket.settimeout(0)
        return total

    def _count(self, datagram: bytes) -> int:
        words = datagram.decode("ascii", "replace").split()
        if self._measure or len(words) != 3 or words[0] != self.reporter.token:
            return 0
        num_examples, num_bytes = map(int, words[1:])
        self._written = Written(
            self._written.num_examples + num_examples, self._written.num_bytes + num_bytes
        )
        return num_examples


def to_stderr(text: str, is_warning: bool = False) -> None:
    """Report a line to the console of the process: the default of the argument ``log``."""
    console().line(text, is_warning=is_warning)


def nowhere(_text: str, _is_warning: bool) -> None:
    """Drop a line."""


# A thread that is started without a copy of the context reports to standard error.
_sink: ContextVar[Sink] = ContextVar("sink", default=to_stderr)


def report_line(*texts: str) -> None:
    """Report status lines."""
    for text in texts:
        _sink.get()(text, False)


def report_warning(*texts: str) -> None:
    """Report warnings, whose texts are without ``warning:``."""
    for text in texts:
        _sink.get()(text, True)


@contextmanager
def lines_to(sink: Sink) -> Iterator[None]:
    """Report lines to ``sink`` in the context; a generator that yields in it would change its caller's."""
    token = _sink.set(sink)
    try:
        yield
    finally:
        _sink.reset(token)


def takes_log(function: Callable[Params, Value]) -> Callable[Params, Value]:
    """Make a public function report lines to its argument ``log``, which it does not use itself.

    With the default ``to_stderr`` it reports to where its caller does.
    """
    default = signature(function).parameters["log"].default

    @wraps(function)
    def call(*args: Params.args, **options: Params.kwargs) -> Value:
        log = cast("Log", options.get("log", default))
        if log is to_stderr:
            return function(*args, **options)
        with lines_to(lambda text, is_warning: log(f"{WARNING}{text}" if is_warning else text)):
            return function(*args, **options)

    return call


class Meter:
    """Counts processed bytes from any thread; a context manager that removes its bar at the end."""

    def __init__(self, label: str, num_bytes: int) -> None:
        """Start at 0 of ``num_bytes``."""
        self._done, self._started = 0, time.monotonic()
        self._display = Display(label, num_bytes, "bytes")
        self._lock = threading.Lock()

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
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
