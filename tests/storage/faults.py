"""A proxy between a program and an object store that counts requests and answers some of them with faults.

    with FaultProxy(server.endpoint) as proxy:
        proxied = server.behind(proxy.endpoint)  # set its environment
        proxy.add(Answer(503, "SlowDown"), "put .*/shards/", count=3)

It listens on the loopback interface and runs in a thread. Requests reach the server unchanged, with their
Host header, so that the signatures of S3 hold: a client signs for the address of the proxy.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

BLOCK = 1 << 16


@dataclass(frozen=True)
class Head:
    """The first lines of a request or an answer, as received."""

    lines: list[bytes]
    fields: dict[str, str]

    def content(self, without: tuple[str, ...] = (), **added: str) -> bytes:
        """Return the bytes, without some fields (in lower case) and with others."""
        kept = [one for one in self.lines[1:] if one.split(b":")[0].decode("latin-1").lower() not in without]
        more = [f"{name.replace('_', '-')}: {value}".encode() for name, value in added.items()]
        return b"\r\n".join([self.lines[0], *kept, *more, b"", b""])


async def read_head(reader: asyncio.StreamReader) -> Head:
    """Read up to the empty line; an answer 100 is skipped."""
    while True:
        lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
        if not lines[0].startswith(b"HTTP/1.1 100"):
            break
    pairs = [line.decode("latin-1").split(":", 1) for line in lines[1:]]
    return Head(lines, {name.lower(): value.strip() for name, value in pairs})


async def body_blocks(
    reader: asyncio.StreamReader, head: Head, method: str, status: int = 0
) -> AsyncIterator[bytes]:
    """Yield the body of a request (status 0) or of an answer, with the sizes of its chunks if it has any."""
    if status and has_no_body(method, status):
        return
    if "chunked" in head.fields.get("transfer-encoding", "").lower():
        size = -1
        while size:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            yield line + await reader.readexactly(size + 2)
    elif "content-length" in head.fields:
        left = int(head.fields["content-length"])
        while left:
            block = await reader.read(min(left, BLOCK))
            if not block:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(block)
            yield block
    elif status:
        while block := await reader.read(BLOCK):
            yield block


def is_delimited(head: Head) -> bool:
    """Return whether the message says where its body ends."""
    return "content-length" in head.fields or "transfer-encoding" in head.fields


def has_no_body(method: str, status: int) -> bool:
    """Return whether such an answer never has a body."""
    return method == "HEAD" or status in (204, 304)


# What a request does


@dataclass
class Request:
    """A request that the proxy has received; the numbers change until it has been answered.

    Attributes:
        kind: ``get``, ``head``, ``list``, ``put``, ``copy``, ``delete``; of uploads in parts, ``begin``,
            ``part``, ``complete``, ``abort`` and ``uploads`` (their listing); ``other``.
        sent: bytes of the body of the request.
        received: bytes of the body of the answer that were passed on.
        status: status of the answer; 0 if the client got none.
        fault: the fault that happened to it, if any.
    """

    kind: str
    method: str
    target: str
    sent: int = 0
    received: int = 0
    status: int = 0
    fault: object = None

    def __str__(self) -> str:
        return f"{self.kind} {self.method} {self.target}"


def kind_of(method: str, target: str, headers: Mapping[str, str]) -> str:
    """Return what a request of S3, of Google's XML or JSON interface, or of Azure does.

    The names of the headers are in lower case.
    """
    url = urlsplit(target)
    query = parse_qs(url.query, keep_blank_values=True)
    component = query.get("comp", [""])[0]
    is_copy = any(name in headers for name in ("x-amz-copy-source", "x-goog-copy-source", "x-ms-copy-source"))
    in_parts = "uploads" in query or "uploadId" in query
    # fmt: off
    table = [
        ("list", method == "GET" and ("list-type" in query or component == "list")),
        ("list", method == "GET" and bool(re.fullmatch(r"/storage/v1/b/[^/]+/o/?", url.path))),
        ("uploads", method == "GET" and "uploads" in query),
        ("begin", method == "POST" and "uploads" in query),
        ("complete", (method == "POST" and in_parts) or component == "blocklist"),
        ("abort", method == "DELETE" and in_parts),
        ("part", method == "PUT" and ("partNumber" in query or component == "block")),
        ("copy", method == "PUT" and is_copy),
        ("delete", method == "DELETE" or (method == "POST" and ("delete" in query or component == "batch"))),
        ("get", method == "GET"),
        ("head", method == "HEAD"),
        ("put", method == "PUT"),
    ]
    # fmt: on
    return next((kind for kind, matches in table if matches), "other")


# The proxy


@dataclass(frozen=True)
class Delay:
    """Wait before the request is passed on; other requests do not wait for it."""

    seconds: float


@dataclass(frozen=True)
class Answer:
    """Answer with an error of the store, which does not see the request."""

    status: int
    code: str = "InternalError"


@dataclass(frozen=True)
class Hang:
    """Never answer; the store does not see the request."""


@dataclass(frozen=True)
class LoseAnswer:
    """Close the connection after the store has answered, and before the client hears of it."""


@dataclass(frozen=True)
class Cut:
    """Send these bytes of the body of the answer, and reset or close the connection."""

    after: int
    reset: bool = True


@dataclass(frozen=True)
class Stall:
    """Send these bytes of the body of the answer, and no more, on an open connection."""

    after: int


@dataclass(frozen=True)
class Shorten:
    """Send these bytes of the body of the answer, with their number as Content-Length."""

    to: int


Fault = Delay | Answer | Hang | LoseAnswer | Cut | Stall | Shorten


@dataclass
class _Rule:
    fault: Fault
    pattern: re.Pattern[str]
    left: int | None
    rate: float
    random: random.Random

    def applies(self, request: Request) -> bool:
        """Return whether the fault happens to this request, and count it."""
        if self.left == 0 or not self.pattern.search(str(request)) or self.random.random() >= self.rate:
            return False
        self.left = None if self.left is None else self.left - 1
        return True


class FaultProxy:
    """The proxy; a block runs it.

    Attributes:
        endpoint: its address.
        requests: the requests in the order in which they arrived.
        most_in_flight: the largest number of requests that it had received and not yet answered.
    """

    def __init__(self, endpoint: str) -> None:
        address = urlsplit(endpoint)
        self._upstream = (str(address.hostname), int(address.port or 80))
        self.requests: list[Request] = []
        self.most_in_flight = 0
        self._in_flight = 0
        self._rules: tuple[_Rule, ...] = ()
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        starting = asyncio.start_server(self._connected, "127.0.0.1", 0, limit=1 << 20, backlog=512)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        self.endpoint = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, kind, error, trace) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def add(self, fault, matching="", *, count=None, rate=1.0, seed=0) -> None:
        """Let a fault happen to requests.

        Args:
            fault: what happens. Of several that apply to a request, delays add up, and the first other one
                happens.
            matching: regular expression, searched in ``kind METHOD target``, such as ``put PUT /bucket/key``.
            count: how often it happens; by default always.
            rate: share of the matching requests to which it happens, chosen at random by ``seed``.
        """
        rule = _Rule(fault, re.compile(matching), count, rate, random.Random(seed))
        self._rules = (*self._rules, rule)

    def clear(self) -> None:
        """Let no more faults happen, and forget all requests."""
        self._rules = ()
        self.requests = []
        self.most_in_flight = 0

    def count(self) -> Counter[str]:
        """Return the number of requests of each kind."""
        return Counter(request.kind for request in self.requests)

    async def _close(self) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._serve_one(reader, writer):
                    pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve a request; return whether another one can follow on the connection."""
        head = await read_head(reader)
        method, target, _ = head.lines[0].decode("latin-1").split(" ", 2)
        request = Request(kind_of(method, target, head.fields), method, target)
        rules = [rule for rule in self._rules if rule.applies(request)]
        faults = [rule.fault for rule in rules if not isinstance(rule.fault, Delay)]
        request.fault = faults[0] if faults else None
        exchange = _Exchange(head, reader, writer, request)
        self.requests.append(request)
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            await asyncio.sleep(sum(rule.fault.seconds for rule in rules if isinstance(rule.fault, Delay)))
            return await exchange.run(self._upstream)
        finally:
            self._in_flight -= 1


@dataclass
class _Exchange:
    """A request, and its answer."""

    head: Head
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    request: Request

    async def run(self, upstream: tuple[str, int]) -> bool:
        """Answer the request; return whether another one can follow on the connection."""
        match self.request.fault:
            case Hang():
                while await self.reader.read(BLOCK):
                    pass
                return False
            case Answer(status, code):
                await self.drain()
                text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>"
                return await self.answer(status, text.encode())
        reader, writer = await asyncio.open_connection(*upstream, limit=1 << 20)
        try:
            return await self._pass_on(reader, writer)
        finally:
            writer.close()

    async def drain(self) -> None:
        """Read the body of the request."""
        await self._continue()
        async for block in body_blocks(self.reader, self.head, self.request.method):
            self.request.sent += len(block)

    async def answer(self, status: int, body: bytes) -> bool:
        """Answer the request without the server."""
        head = (
            f"HTTP/1.1 {status} Fault\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.request.status = status
        self.request.received = len(body)
        self.writer.write(head.encode() + (b"" if self.request.method == "HEAD" else body))
        await self.writer.drain()
        return True

    async def _continue(self) -> None:
        if self.head.fields.get("expect"):
            self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await self.writer.drain()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await self._continue()
        writer.write(self.head.content(without=("expect",)))
        fault = self.request.fault
        async for block in body_blocks(self.reader, self.head, self.request.method):
            self.request.sent += len(block)
            writer.write(block)
            await writer.drain()
        head = await read_head(reader)
        status = int(head.lines[0].split()[1])
        if isinstance(fault, LoseAnswer):
            async for _ in body_blocks(reader, head, self.request.method, status):
                pass
            return False
        return await self._pass_back(reader, head, status)

    async def _pass_back(self, reader: asyncio.StreamReader, head: Head, status: int) -> bool:
        """Pass the answer of the server on."""
        self.request.status = status
        body = body_blocks(reader, head, self.request.method, status)
        match self.request.fault:
            case Shorten(to):
                self.writer.write(head.content(without=("content-length",), Content_Length=str(to)))
                left: int | None = to
            case Cut(after) | Stall(after):
                self.writer.write(head.content())
                left = after
            case _:
                self.writer.write(head.content())
                left = None
        async for block in body:
            passed = block if left is None else block[:left]
            self.request.received += len(passed)
            self.writer.write(passed)
            await self.writer.drain()
            left = None if left is None else left - len(passed)
        match self.request.fault:
            case Stall():
                while await self.reader.read(BLOCK):
                    pass
                return False
            case Cut(_, reset):
                return await self._reset() if reset else False
        closes = "close" in head.fields.get("connection", "").lower()
        return not closes and (is_delimited(head) or has_no_body(self.request.method, status))

    async def _reset(self) -> bool:
        # what was sent before is lost with the connection unless the client has read it
        await asyncio.sleep(0.02)
        connection = self.writer.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
        return False
