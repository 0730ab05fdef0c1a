"""Show the progress of a build: workers report over loopback, the main process prints a bar or plain lines.

Reports are UDP datagrams, so that a worker never waits and a lost report does no harm. Workers on other
machines are not included.
"""

from __future__ import annotations

import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO, TypeAlias

from tqdm import tqdm

from tfshards.schemas.errors import one_line
from tfshards.schemas.sizes import size

_HOST = "127.0.0.1"
_TICK_SECONDS = 0.1
# between two lines where there is no terminal
LINE_SECONDS = 10.0

Log: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Reporter:
    """Sends reports from a worker; it is pickled and sent to the worker's process.

    Attributes:
        port: port of the main process on this machine; 0 to report nothing.
        token: identifies the datagrams of this build.
    """

    port: int = 0
    token: str = ""

    def report(self, num_examples: int, num_bytes: int) -> None:
        """Report examples and bytes written since the last report."""
        if self.port:
            # without a loopback device the report is lost, which does no harm
            with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(f"{self.token} {num_examples} {num_bytes}".encode(), (_HOST, self.port))


class Progress:
    """Shows reports in the main process: a bar on a terminal, a line every ten seconds otherwise."""

    def __init__(self, label: str, num_examples: int, stream: TextIO | None = None) -> None:
        """Open the port for a total of ``num_examples``; ``stream`` is standard error by default."""
        self._stream = stream or sys.stderr
        self._total = num_examples
        self._label = label
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((_HOST, 0))
        self._socket.settimeout(_TICK_SECONDS)
        self.reporter: Reporter = Reporter(self._socket.getsockname()[1], secrets.token_hex(8))
        self._examples = 0
        self._bytes = 0
        self._ended = threading.Event()

    def end(self) -> None:
        """Make ``follow`` return, from any thread."""
        self._ended.set()
        # ends its wait for the next report
        self.reporter.report(0, 0)

    @property
    def has_ended(self) -> bool:
        """Whether ``end`` was called."""
        return self._ended.is_set()

    def follow(self) -> None:
        """Show progress until ``end`` is called."""
        if self._stream.isatty():
            self._follow_with_bar()
        else:
            self._follow_with_lines()
        self._socket.close()

    def _follow_with_bar(self) -> None:
        with tqdm(
            total=self._total,
            desc=self._label,
            unit=" examples",
            unit_scale=True,
            file=self._stream,
            dynamic_ncols=True,
            miniters=0,
            mininterval=_TICK_SECONDS,
        ) as bar:
            while not self.has_ended:
                bar.update(self._receive())
                bar.set_postfix_str(size(self._bytes), refresh=False)
            bar.update(self._drain())
            bar.set_postfix_str(size(self._bytes))

    def _follow_with_lines(self) -> None:
        started = last = time.monotonic()
        while not self.has_ended:
            self._receive()
            now = time.monotonic()
            if now - last >= LINE_SECONDS:
                last = now
                self._print_line(now - started)
        self._drain()

    def _print_line(self, seconds: float) -> None:
        rate = self._examples / seconds
        left = f"{(self._total - self._examples) / rate:.0f} s left" if rate else "time left unknown"
        done = f"{self._examples:,} of {self._total:,} examples, {size(self._bytes)}"
        print(f"{self._label}: {done}, {rate:,.0f} examples/s, {left}", file=self._stream, flush=True)

    def _receive(self) -> int:
        """Wait for a datagram for at most one tick; return the examples reported by all that have arrived."""
        try:
            datagram = self._socket.recv(256)
        except TimeoutError:
            return 0
        return self._count(datagram) + self._drain()

    def _drain(self) -> int:
        self._socket.setblocking(False)
        total = 0
        try:
            while True:
                total += self._count(self._socket.recv(256))
        except BlockingIOError:
            return total
        finally:
            self._socket.settimeout(_TICK_SECONDS)

    def _count(self, datagram: bytes) -> int:
        words = datagram.decode("ascii", "replace").split()
        if len(words) != 3 or words[0] != self.reporter.token:
            return 0
        num_examples, num_bytes = map(int, words[1:])
        self._examples += num_examples
        self._bytes += num_bytes
        return num_examples


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 shard`` or ``1,000 shards``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def to_stderr(line: str) -> None:
    """Print a status line to standard error: the default of every argument ``log``."""
    print(one_line(line), file=sys.stderr, flush=True)
