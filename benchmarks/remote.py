"""Train from a bucket whose answers take a while: bytes, requests, speed, and the first batch.

    python benchmarks/remote.py --delay 0.05

The bucket is an S3 server in this process, with a thread per connection and the objects in memory: emulators
answer fewer requests per second than 32 in flight make. Each measurement is a process of its own. Photos are
JPEG files of noise of about 29 KB, arrays have 784 bytes. Local files are in the page cache.
"""

from __future__ import annotations

import argparse
import bisect
import hashlib
import io
import itertools
import json
import mmap
import re
import socket
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit

import environments
import inputs
import measure
import numpy as np

TABLES = ("bytes", "caches", "speed")
EPOCHS, BATCH_SIZE = 5, 256
# Of the bytes of a split: the limits of caches.
SHARES = (0.1, 0.3, 0.5, 0.7)
# What S3 Standard in us-east-1 asks for 1,000 GET requests, in dollars.
PRICE = 0.0004
# The image whose JPEG file has about 29 KB.
SIDE = 304
DISTINCT = 64
BUCKET = "benchmark-bucket"
PACKAGES = ("tfshards", "tensorflow", "obstore", "numpy")
Tables = dict[str, dict[str, list[float]]]
_PAGE = 1000
_RANGE = re.compile(rb"(?i)^range: *bytes=(\d+)-(\d+)")
_DATE = "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
_NO_OBJECT = b"<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--delay", type=float, default=0.05, help="seconds before each answer")
    parser.add_argument("--photos", type=int, default=36_000, help="photos of 29 KB (default: 36,000)")
    parser.add_argument("--arrays", type=int, default=400_000, help="arrays of 784 bytes (default: 400,000)")
    parser.add_argument("--rounds", type=int, default=3, help="number of measured runs (default: 3)")
    parser.add_argument("--only", nargs="+", choices=TABLES, default=TABLES, help="tables to measure")
    measure.add_json(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfshards-remote-") as folder:
        work = Path(folder)
        folders = {"photos": work / "photos", "arrays": work / "arrays"}
        inputs.build(
            "images", write_photos(work / "source", options.photos), folders["photos"], "--check", "none"
        )
        inputs.build("arrays", *inputs.write_arrays(work / "values", options.arrays), folders["arrays"])
        objects = dict(itertools.chain(*(objects_of(each, name).items() for name, each in folders.items())))
        server = ObjectServer(objects, options.delay)
        tables: Tables = defaultdict(dict)
        if "bytes" in options.only:
            print(report_bytes(server, folders, tables), flush=True)
        if "caches" in options.only:
            print(report_caches(server, folders, work, tables), flush=True)
        if "speed" in options.only:
            print(report_speed(server, folders, options.rounds, tables), flush=True)
    print(measure.footnote(PACKAGES))
    measure.save(options.json, tables, PACKAGES)


def write_photos(folder: Path, count: int) -> Path:
    """Write JPEG files of noise, of which 64 are distinct."""
    from PIL import Image

    images = []
    for seed in range(DISTINCT):
        file = io.BytesIO()
        pixels = np.random.default_rng(seed).integers(0, 256, (SIDE // 8, SIDE // 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((SIDE, SIDE)).save(file, "JPEG", quality=90)
        images.append(file.getvalue())
    for number in range(count):
        path = folder / f"{number % 10}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(images[number % DISTINCT])
    return folder


# What a process measures


def read(source: str, decode: int = 0, epochs: int = 1, cache: str | None = None) -> dict[str, float]:
    """Read a dataset; return times as ``time.perf_counter`` counts, and the number of examples.

    Args:
        source: the folder, or the URL.
        decode: the side to which images are decoded; 0 if they are not.
        epochs: the epochs.
        cache: ``cache=`` of ``load``.
    """
    import tensorflow as tf  # noqa: F401 -- not measured

    from tfshards import loader

    begun = time.perf_counter()
    data = loader.load(
        source,
        batch_size=BATCH_SIZE,
        shuffle=loader.Shuffle(seed=0),
        epochs=epochs,
        cache=cache,
        image=loader.Image(size=(decode, decode)) if decode else None,
    )
    iterator = iter(data)
    opened = time.perf_counter()
    next(iterator)
    first = time.perf_counter()
    batches = 1 + sum(1 for _ in iterator)
    rate = batches * BATCH_SIZE / (time.perf_counter() - opened)
    return {
        "opened": opened,
        "first": first,
        "until_first": first - begun,
        "examples": batches * BATCH_SIZE,
        "rate": rate,
    }


def fetch(source: str) -> dict[str, float]:
    """Fetch all shards in ranges of 1 MiB, 32 at a time, and do nothing with them."""
    from tfshards.schemas import read_manifest
    from tfshards.schemas.storage import any_path, in_flight

    root = any_path(source)
    size = 1 << 20
    ranges = [
        (root / shard.path, start, min(start + size, shard.num_bytes))
        for shard in read_manifest(root).shards
        for start in range(0, shard.num_bytes, size)
    ]
    begun = time.perf_counter()
    num_bytes = sum(in_flight(lambda each: len(each[0].read_range(*each[1:])), ranges))
    return {"rate": num_bytes / measure.MB / (time.perf_counter() - begun)}


def measured(server: ObjectServer, function: str, **arguments: object) -> dict:
    """Call a function of this file in a process of its own, and return what it returns."""
    server.requests.clear()
    command = [sys.executable, __file__, function, json.dumps(arguments)]
    return environments.found(command, variables=server.environment())


def remote(name: str) -> str:
    return f"s3://{BUCKET}/{name}"


def totals(folder: Path) -> tuple[int, int]:
    """Return the number of examples of a dataset, and the bytes of its shards."""
    from tfshards.schemas import read_manifest

    shards = read_manifest(folder).shards
    return sum(shard.num_examples for shard in shards), sum(shard.num_bytes for shard in shards)


# Tables


def report_bytes(server: ObjectServer, folders: Mapping[str, Path], tables: Tables) -> str:
    head = ("", "examples", "MB used", "MB fetched", "fetched over used", "requests", "per GB", "$ per GB")
    rows = []
    for name, folder in folders.items():
        found = measured(server, "read", source=remote(name))
        count, size = totals(folder)
        used, fetched = size * found["examples"] / count, sum(each.num_bytes for each in server.requests)
        opening = sum(1 for each in server.requests if each.begun < found["opened"])
        requests = len(server.requests)
        tables["one epoch, fetched over used"][name] = [fetched / used]
        tables["one epoch, requests per GB"][name] = [requests / used * 1e9]
        rows.append(
            (
                name,
                f"{found['examples']:,}",
                f"{used / 1e6:,.1f}",
                f"{fetched / 1e6:,.1f}",
                f"{fetched / used:.3f}",
                f"{requests:,}, {opening} of them to open it",
                f"{requests / used * 1e9:,.0f}",
                f"{requests / used * 1e9 / 1000 * PRICE:.5f}",
            )
        )
    return f"\n### One shuffled epoch, without a cache\n\n{measure.table(head, rows)}"


def report_caches(server: ObjectServer, folders: Mapping[str, Path], work: Path, tables: Tables) -> str:
    head = ("", "cache", "GB fetched", "over those without a cache")
    rows = []
    for name, folder in folders.items():
        size, without = totals(folder)[1], 0
        for share in (0.0, *SHARES):
            near = work / f"cache-{name}-{share}"
            cache = f"disk:{near}, {int(share * size)}B" if share else None
            measured(server, "read", source=remote(name), epochs=EPOCHS, cache=cache)
            fetched = sum(each.num_bytes for each in server.requests)
            without = without or fetched
            tables["five epochs, fetched over those without a cache"][f"{name}, {share:.0%}"] = [
                fetched / without
            ]
            rows.append((name, f"{share:.0%}", f"{fetched / 1e9:.2f}", f"{fetched / without:.3f}"))
    return f"\n### {EPOCHS} shuffled epochs with a cache\n\n{measure.table(head, rows)}"


def report_speed(server: ObjectServer, folders: Mapping[str, Path], rounds: int, tables: Tables) -> str:
    cases = {
        "photos, undecoded": ("photos", 0),
        "photos, decoded to 224": ("photos", 224),
        "arrays of 784 bytes": ("arrays", 0),
    }
    rows = []
    for case, (name, decode) in cases.items():
        near, far, alone, asked = [], [], [], 0
        for number in range(rounds):
            near.append(measured(server, "read", source=str(folders[name]), decode=decode))
            far.append(measured(server, "read", source=remote(name), decode=decode))
            asked = sum(1 for each in server.requests if each.begun < far[-1]["first"])
            alone.append(measured(server, "fetch", source=remote(name))["rate"])
            print(f"round {number + 1}: {case}: {far[-1]['rate']:,.0f}/s", file=sys.stderr)
        count, size = totals(folders[name])
        rates = [[each["rate"] for each in rounds] for rounds in (near, far)]
        tables["local, examples/s"][case], tables["bucket, examples/s"][case] = rates
        rows.append(
            (
                case,
                measure.spread(rates[0], 0),
                measure.spread(rates[1], 0),
                measure.spread(measure.ratios(rates[1], rates[0]), 2),
                measure.spread([rate * size / count / measure.MB for rate in rates[1]], 0),
                measure.spread(alone, 0),
                measure.spread([each["until_first"] for each in near], 2),
                measure.spread([each["until_first"] for each in far], 2),
                f"{asked}",
            )
        )
    head = ("", "local, examples/s", "bucket, examples/s", "bucket over local", "bucket, MB/s")
    head += ("only fetched, MB/s", "first batch, local, s", "bucket, s", "requests before it")
    title = f"\n### Speed, {server.delay * 1000:.0f} ms before each answer\n\n"
    return title + measure.table(head, rows)


# The server


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


if __name__ == "__main__":
    functions = {"read": read, "fetch": fetch}
    if sys.argv[1:2] and sys.argv[1] in functions:
        print(json.dumps(functions[sys.argv[1]](**json.loads(sys.argv[2]))))
    else:
        main()
