"""How far a build is: workers report over loopback, the main process shows a bar or plain lines.

Reports are UDP datagrams, so that a worker never waits and a lost one costs nothing. Where workers run on
other machines none arrive; the build area's finished shards are the progress there.
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

from tfshards.schemas import one_line
from tfshards.schemas.sizes import size

_HOST = "127.0.0.1"
_TICK_SECONDS = 0.1
_LINE_SECONDS = 10.0


Talk: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Reporter:
    """A worker's end; pickled to wherever the worker runs.

    Attributes:
        port: of the main process on this machine; 0 reports nothing.
        token: tells our datagrams from others'.
    """

    port: int = 0
    token: str = ""

    def report(self, num_examples: int, num_bytes: int) -> None:
        """Report examples and bytes written since the last report."""
        if self.port:
            # without a loopback device nobody hears it, which is no reason to fail
            with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(f"{self.token} {num_examples} {num_bytes}".encode(), (_HOST, self.port))


class Progress:
    """The main process's end: a bar on a terminal, a line every ten seconds otherwise."""

    def __init__(self, label: str, num_examples: int, stream: TextIO | None = None) -> None:
        """Open the port; ``num_examples`` is the whole of the work, and ``stream`` standard error."""
        self._stream = stream or sys.stderr
        self._total = num_examples
        self._label = label
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((_HOST, 0))
        self._socket.settimeout(_TICK_SECONDS)
        self.reporter = Reporter(self._socket.getsockname()[1], secrets.token_hex(8))
        self._examples = 0
        self._bytes = 0

    def follow(self, thread: threading.Thread) -> None:
        """Show progress until ``thread`` ends."""
        if self._stream.isatty():
            self._follow_with_bar(thread)
        else:
            self._follow_with_lines(thread)
        self._socket.close()

    def _follow_with_bar(self, thread: threading.Thread) -> None:
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
            while thread.is_alive():
                bar.update(self._receive())
                bar.set_postfix_str(size(self._bytes), refresh=False)
            bar.update(self._drain())
            bar.set_postfix_str(size(self._bytes))

    def _follow_with_lines(self, thread: threading.Thread) -> None:
        started = last = time.monotonic()
        while thread.is_alive():
            self._receive()
            now = time.monotonic()
            if now - last >= _LINE_SECONDS:
                last = now
                self._say(now - started)
        self._drain()

    def _say(self, seconds: float) -> None:
        rate = self._examples / seconds
        left = f"{(self._total - self._examples) / rate:.0f} s left" if rate else "time left unknown"
        done = f"{self._examples:,} of {self._total:,} examples, {size(self._bytes)}"
        print(f"{self._label}: {done}, {rate:,.0f} examples/s, {left}", file=self._stream, flush=True)

    def _receive(self) -> int:
        """Wait for one tick's datagram and return how many examples it and those behind it report."""
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
    """Return a number of things for people, such as ``1 shard`` or ``1,000 shards``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def to_stderr(line: str) -> None:
    """Print a line to standard error: the default for what a command has to say on its way."""
    print(one_line(line), file=sys.stderr, flush=True)
