"""Build from a bucket whose answers take a while, with 1, 2, 4, ... requests in flight.

    python benchmarks/remote.py --delay 0.05

The bucket is a small server of its own, which has the answers in memory and waits before each: emulators
answer fewer requests per second than 32 in flight would make. Images per second are those of whole builds
without the start of the interpreter. ``ideal`` is the speed with one request, times the number in flight.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import measure
import numpy as np

IN_FLIGHT = (1, 2, 4, 8, 16, 32)
BUCKET = "photos-bucket"
LEAST = 0.7
_PAGE = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--delay", type=float, default=0.05, help="seconds before each answer")
    parser.add_argument("--per-request", type=int, default=100, help="images for each request in flight")
    parser.add_argument("--side", type=int, default=200, help="width and height of the images, in pixels")
    parser.add_argument("--build", type=int, metavar="IN_FLIGHT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        print(json.dumps(build(options.build)))
        return
    image = make_image(options.side)
    rows = []
    first = 0.0
    for in_flight in IN_FLIGHT:
        store = Store(image, options.per_request * in_flight, options.delay)
        environment = {**os.environ, **store.environment()}
        command = [sys.executable, __file__, "--build", str(in_flight)]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        rate = store.count / found["seconds"]
        first = first or rate
        rows.append((in_flight, store.count, found["seconds"], rate, rate / first, found["rss"] / measure.MB))
        assert store.most_in_flight <= in_flight
    print(f"{len(image):,} bytes per image, {options.delay * 1000:.0f} ms before each answer\n")
    print("| in flight | images | seconds | images/s | speed-up | of ideal | RSS, MB |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for in_flight, count, seconds, rate, speedup, rss in rows:
        of_ideal = speedup / in_flight
        cells = [
            in_flight,
            f"{count:,}",
            f"{seconds:.1f}",
            f"{rate:.0f}",
            f"{speedup:.1f}",
            f"{of_ideal:.2f}",
        ]
        print("| " + " | ".join(map(str, [*cells, f"{rss:.0f}"])) + " |")
    slow = [row[0] for row in rows if row[4] < LEAST * row[0]]
    if slow:
        sys.exit(f"less than {LEAST} of the ideal speed with {slow} requests in flight")


def build(in_flight: int) -> dict[str, float]:
    """Build a dataset with so many requests in flight; return the seconds and the memory."""
    import resource

    from tfshards.schemas.storage import reading

    # before the modules that take it from there
    reading.NUM_REQUESTS = in_flight
    from tfshards import prep

    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        source = prep.ImageFolder(f"s3://{BUCKET}/photos", prep.ImageOptions(check="header"))
        prep.build(source, Path(folder) / "out", shards=4, log=lambda line: None)
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def make_image(side: int) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((side, side)).save(file, "JPEG", quality=90)
    return file.getvalue()


class Store:
    """An S3 server in a thread, with a number of equal images."""

    def __init__(self, image: bytes, count: int, delay: float) -> None:
        self.image, self.count, self.delay = image, count, delay
        self.most_in_flight = self._in_flight = 0
        self._tag = f'"{hashlib.md5(image).hexdigest()}"'
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        starting = asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=256)
        server = asyncio.run_coroutine_threadsafe(starting, loop).result()
        self._port = server.sockets[0].getsockname()[1]

    def environment(self) -> dict[str, str]:
        """Return the variables with which the build finds the server."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
        }

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                target = urlsplit(head.split(b" ", 2)[1].decode())
                self._in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self._in_flight)
                await asyncio.sleep(self.delay)
                self._in_flight -= 1
                body = self._listing(parse_qs(target.query)) if "list-type" in target.query else self.image
                writer.write(
                    f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nETag: {self._tag}\r\n"
                    "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _listing(self, query: dict[str, list[str]]) -> bytes:
        start = int(re.sub(r"\D", "", query.get("continuation-token", ["0"])[0]))
        end = min(start + _PAGE, self.count)
        more = end < self.count
        objects = "".join(
            f"<Contents><Key>photos/{number % 10}/{number:07}.jpg</Key><Size>{len(self.image)}</Size>"
            f"<ETag>{self._tag.replace(chr(34), '&quot;')}</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for number in range(start, end)
        )
        token = f"<NextContinuationToken>{end}</NextContinuationToken>" if more else ""
        return (
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{objects}</ListBucketResult>"
        ).encode()


if __name__ == "__main__":
    main()
