"""Count what TensorFlow's own ``gs://`` file system requests of shards: a usual pipeline, and runs at random.

``python benchmarks/remote_read.py --only gs`` runs it; the certificate is made by ``openssl``. The hosts of
``gs://`` are fixed in TensorFlow, but a proxy and a certificate can be set in the environment. The server
here is this proxy, and answers in the place of the hosts.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import measure
from object_server import BUCKET, ObjectServer, Request

HOSTS = ("storage.googleapis.com", "www.googleapis.com")
HEAD = ("", "settings", "MB used", "MB fetched", "fetched over used", "requests", "per GB", "seconds")
RUNS = 100
RUN_BYTES = 1 << 20
CYCLE = 16
BATCH = 256
SHUFFLE_BUFFER = 10_000
# Settings of gs:// that TensorFlow reads before the first access.
DEFAULT: Mapping[str, str] = {}
# Enough for a run in one request: the buffer of the reader of records ends up to 64 KiB after it.
READAHEAD = {"GCS_READAHEAD_BUFFER_SIZE_BYTES": str(RUN_BYTES + (1 << 17))}
CACHE = {"GCS_READ_CACHE_BLOCK_SIZE_MB": "1", "GCS_READ_CACHE_MAX_SIZE_MB": "1024"}
_OBJECTS = f"/storage/v1/b/{BUCKET}/o/"


class GoogleServer(ObjectServer):
    """An HTTPS proxy that answers as the hosts of ``gs://``: ranges of objects, and their metadata."""

    def __init__(self, objects: Mapping[str, bytes | mmap.mmap], delay: float, work: Path) -> None:
        """Serve the objects; the certificate is written to the folder ``work``."""
        self._certificate, key = work / "hosts.pem", work / "hosts.key"
        names = ",".join(f"DNS:{host}" for host in HOSTS)
        # fmt: off
        command = [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
            "-addext", f"subjectAltName={names}", "-keyout", str(key), "-out", str(self._certificate),
        ]
        # fmt: on
        subprocess.run(command, check=True, capture_output=True)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(self._certificate, key)
        super().__init__(objects, delay)

    def environment(self) -> dict[str, str]:
        """Return the variables with which TensorFlow in other processes finds the server."""
        proxy = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        return {
            "https_proxy": proxy,
            "HTTPS_PROXY": proxy,
            "no_proxy": "",
            "NO_PROXY": "",
            "CURL_CA_BUNDLE": str(self._certificate),
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",
            "NO_GCE_CHECK": "true",
        }

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            # CONNECT and its header; the client waits for the answer
            while lines.readline().strip():
                pass
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            super()._serve(self._tls.wrap_socket(connection, server_side=True))

    def _answer(
        self, connection: socket.socket, method: str, target: str, wanted: tuple[int, int] | None
    ) -> None:
        path = urlsplit(target).path
        if not path.startswith("/storage/"):
            super()._answer(connection, method, target, wanted)
            return
        begun = time.perf_counter()
        time.sleep(self.delay)
        key = unquote(path.removeprefix(_OBJECTS))
        status, body = "404 Not Found", b"{}"
        if key in self._objects:
            size = len(self._objects[key])
            found = {"size": str(size), "generation": "1", "updated": "2026-01-01T00:00:00.000Z"}
            status, body = "200 OK", json.dumps(found).encode()
        self.requests.append(Request(begun, method, target, len(body)))
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)


def report(server: GoogleServer, folders: Mapping[str, Path]) -> str:
    """Return the table of the datasets in the folders, which the bucket has under the same names."""
    rows = []
    for name, folder in folders.items():
        runs = random_runs(folder, name)
        shards = [f"gs://{BUCKET}/{name}/{shard}" for shard, _ in shards_of(folder)]
        rows.append(measured(server, f"{name}, interleave and shuffle", DEFAULT, {"shards": shards}))
        for settings in (DEFAULT, READAHEAD, CACHE):
            rows.append(measured(server, f"{name}, {len(runs)} runs at random", settings, {"runs": runs}))
    return "\n".join(["\n### TensorFlow's own reader of gs://\n", measure.table(HEAD, rows)])


def measured(
    server: GoogleServer, what: str, settings: Mapping[str, str], reading: Mapping[str, object]
) -> Sequence[str]:
    server.requests.clear()
    environment = {**os.environ, **server.environment(), **settings}
    done = subprocess.run(
        [sys.executable, __file__], input=json.dumps(reading), env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])
    found = json.loads(done.stdout.splitlines()[-1])
    used, fetched = found["num_bytes"], sum(each.num_bytes for each in server.requests)
    requests = len(server.requests)
    return (
        what,
        ", ".join(f"`{name}={value}`" for name, value in settings.items()) or "default",
        f"{used / 1e6:,.1f}",
        f"{fetched / 1e6:,.1f}",
        f"{fetched / used:.3f}",
        f"{requests:,}",
        f"{requests / used * 1e9:,.0f}",
        f"{found['seconds']:.0f}",
    )


def shards_of(folder: Path) -> list[tuple[str, Path]]:
    """Return the path of each shard in the dataset, and that of its index."""
    from tfshards.schemas import read_manifest
    from tfshards.schemas.index import index_path

    return [(shard.path, folder / index_path(shard.path)) for shard in read_manifest(folder).shards]


def random_runs(folder: Path, name: str) -> list[tuple[str, int, int]]:
    """Return URL, offset and number of records of different runs of about ``RUN_BYTES``."""
    from tfshards.schemas.index import parse_index

    runs = []
    for shard, path in shards_of(folder):
        index = parse_index(path.read_bytes(), str(path))
        count = max(1, int(RUN_BYTES / index.lengths.mean()))
        offsets = index.offsets[: len(index.lengths) // count * count : count]
        runs += [(f"gs://{BUCKET}/{name}/{shard}", offset, count) for offset in offsets.tolist()]
    if not runs:
        raise SystemExit(f"{name}: no shard has a run of {RUN_BYTES:,} bytes; measure more examples")
    return random.Random(0).sample(runs, min(RUNS, len(runs)))


# What a process measures


def read(reading: Mapping[str, list]) -> dict[str, float]:
    """Read all records of ``shards``, or those of ``runs``; return the bytes of their frames and the time."""
    import tensorflow as tf

    from tfshards.loader.graph.raw_ops import tfrecord_dataset
    from tfshards.loader.records.shards import BUFFER_BYTES
    from tfshards.schemas.index import FRAME_OVERHEAD

    begun = time.perf_counter()
    if "shards" in reading:
        shards = tf.data.Dataset.from_tensor_slices(reading["shards"]).shuffle(len(reading["shards"]))
        records = shards.interleave(
            tf.data.TFRecordDataset, cycle_length=CYCLE, num_parallel_calls=tf.data.AUTOTUNE
        )
        records = records.shuffle(SHUFFLE_BUFFER)
    else:
        # opened at its offset, as the loader opens a local file
        runs = tuple(map(list, zip(*reading["runs"], strict=True)))
        records = tf.data.Dataset.from_tensor_slices(runs).flat_map(
            lambda url, offset, count: tfrecord_dataset(
                url, "", BUFFER_BYTES, tf.cast(offset, tf.int64)
            ).take(tf.cast(count, tf.int64))
        )
    num_bytes = 0
    for batch in records.batch(BATCH):
        num_bytes += int(tf.reduce_sum(tf.strings.length(batch))) + FRAME_OVERHEAD * len(batch)
    return {"num_bytes": num_bytes, "seconds": time.perf_counter() - begun}


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    print(json.dumps(read(json.load(sys.stdin))))
