"""A read-only S3 server whose answers take a while, and which notes what it was asked for.

It has a thread per connection and the objects in memory: emulators answer fewer requests per second than 32
in flight make. Whoever measures leaves it in a process of its own, and measures in another one.
"""

from __future__ import annotations

import bisect
import hashlib
import mmap
import re
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit

BUCKET = "benchmark-bucket"
_PAGE = 1000
_RANGE = re.compile(rb"(?i)^range: *bytes=(\d+)-(\d+)")
_DATE = "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
_NO_OBJECT = b"<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>"


@dataclass(frozen=True)
class Request:
    """A request that was answered.

    Attributes:
        begun: when it arrived, as ``time.perf_counter`` of all processes of a machine counts.
        method: GET or HEAD.
        key: the key, or an empty string for a listing.
        num_bytes: the bytes of the answer's body.
    """

    begun: float
    method: str
    key: str
    num_bytes: int


class ObjectServer:
    """A server in threads of this process, until the process ends.

    Attributes:
        requests: what was answered; whoever reads it may empty it.
        most_in_flight: the number of requests that were answered at the same time.
    """

    def __init__(self, objects: Mapping[str, bytes | mmap.mmap], delay: float) -> None:
        """Serve the objects, each answer ``delay`` seconds after its request."""
        self.delay = delay
        self.requests: list[Request] = []
        self.most_in_flight = self._in_flight = 0
        self._objects, self._keys = objects, sorted(objects)
        # equal objects, such as copies of one image, are hashed once
        tags = {id(each): hashlib.md5(each).hexdigest() for each in objects.values()}
        self._tags = {key: tags[id(each)] for key, each in objects.items()}
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        threading.Thread(target=self._accept, daemon=True).start()

    def environment(self) -> dict[str, str]:
        """Return the variables with which other processes find the server."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._socket.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
        }

    def _accept(self) -> None:
        while True:
            connection = self._socket.accept()[0]
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as lines:
                while head := _head(lines):
                    self._answer(connection, *head)
        except ConnectionError:
            return

    def _answer(
        self, connection: socket.socket, method: str, target: str, wanted: tuple[int, int] | None
    ) -> None:
        begun = time.perf_counter()
        with self._lock:
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        time.sleep(self.delay)
        url = urlsplit(target)
        key = unquote(url.path).removeprefix(f"/{BUCKET}").lstrip("/")
        content = self._objects.get(key)
        status, extra, body = "200 OK", "", memoryview(b"")
        if not key:
            body = memoryview(self._listing(parse_qs(url.query)))
        elif content is None:
            status, body = "404 Not Found", memoryview(_NO_OBJECT)
        elif wanted and wanted[0] >= len(content):
            status = "416 Range Not Satisfiable"
        else:
            body, extra = memoryview(content), f'ETag: "{self._tags[key]}"\r\n'
            if wanted:
                status = "206 Partial Content"
                start, end = wanted[0], min(wanted[1] + 1, len(content))
                body, extra = (
                    body[start:end],
                    extra + f"Content-Range: bytes {start}-{end - 1}/{len(content)}\r\n",
                )
        # before the answer, after which the next request may arrive
        with self._lock:
            self._in_flight -= 1
            self.requests.append(Request(begun, method, key, 0 if method == "HEAD" else len(body)))
        connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{_DATE}{extra}\r\n".encode())
        if method != "HEAD":
            connection.sendall(body)

    def _listing(self, query: dict[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        first = max(bisect.bisect_left(self._keys, prefix), bisect.bisect_right(self._keys, after))
        found = [key for key in self._keys[first : first + _PAGE] if key.startswith(prefix)]
        is_more = len(found) == _PAGE
        contents = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(self._objects[key])}</Size>"
            f"<ETag>&quot;{self._tags[key]}&quot;</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in found
        )
        token = f"<NextContinuationToken>{found[-1]}</NextContinuationToken>" if is_more else ""
        return (
            f"<ListBucketResult><IsTruncated>{str(is_more).lower()}</IsTruncated>{token}{contents}</ListBucketResult>"
        ).encode()


def objects_of(folder: Path, prefix: str) -> dict[str, bytes | mmap.mmap]:
    """Return the files below a folder as objects whose keys start with ``prefix``, in memory."""
    found: dict[str, bytes | mmap.mmap] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        key = f"{prefix}/{path.relative_to(folder).as_posix()}"
        with path.open("rb") as file:
            is_empty = not path.stat().st_size
            found[key] = b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return found


def _head(lines: BinaryIO) -> tuple[str, str, tuple[int, int] | None] | None:
    """Return the method, the target and the range of the next request; None at the end of the connection."""
    first = lines.readline().split()
    if not first:
        return None
    wanted = None
    while line := lines.readline().strip():
        if found := _RANGE.match(line):
            wanted = int(found[1]), int(found[2])
    return first[0].decode(), first[1].decode(), wanted
