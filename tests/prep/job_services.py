"""Real job services of Beam on loopback, and builds that they run."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfshards.prep.writing.area import AREA_NAME

from ..engines.processes import listens, start

TIMEOUT_SECONDS = 180
COMMAND = [sys.executable, "-m", "tfshards", "build", "images"]


@contextmanager
def service(command, port, logs, environment=None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that listens at a port, and all processes that it starts."""
    started = start("service", list(map(str, command)), logs, environment)
    try:
        started.wait_until(listens(port))
        yield started.process
    finally:
        started.kill()


def local_job_service(port: int) -> list[object]:
    """Return the command of Beam's job service in Python."""
    return [sys.executable, "-m", "apache_beam.runners.portability.local_job_service_main", "--port", port]


def started(out: Path) -> bool:
    """Return whether a worker has begun to write a shard."""
    return any(out.glob(f"{AREA_NAME}/*/unfinished*/*.tfrecord-*"))
