"""Build from a bucket whose answers take a while, with 1, 2, 4, ... requests in flight.

    python benchmarks/remote.py --delay 0.05

The bucket is that of ``object_server.py``, which waits before each answer. Images per second are those of
whole builds X
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure
import numpy as np
from object_server import BUCKET, ObjectServer

IN_FLIGHT = (1, 2, 4, 8, 16, 32)
LEAST = 0.7


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
        count = options.per_request * in_flight
        server = ObjectServer({f"photos/{n % 10}/{n:07}.jpg": image for n in range(count)}, options.delay)
        environment = {**os.environ, **server.environment()}
        command = [sys.executable, __file__, "--build", str(in_flight)]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        rate = count / found["seconds"]
        first = first or rate
        rows.append((in_flight, count, found["seconds"], rate, rate / first, found["rss"] / measure.MB))
        assert server.most_in_flight <= in_flight
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

    from tfshards.schemas.storage import reader

    # before the modules that take it from there
    reader.NUM_REQUESTS = in_flight
    from tfshards import prep

    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        source = prep.ImageFolder(f"s3://{BUCKET}/photos", prep.ImageOptions(check="none"))
        prep.build(source, Path(folder) / "out", shards=4)
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def make_image(side: int, seed: int = 0) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((side, side)).save(file, "JPEG", quality=90)
    return file.getvalue()


if __name__ == "__main__":
    main()
