"""A worker pool of Beam's Python SDK: it starts a Python worker for each request of an engine."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.durability.commands import children

from .processes import Service, free_port, listens, python_path, running, start


@dataclass(frozen=True)
class WorkerPool:
    """A worker pool."""

    service: Service
    port: int

    @property
    def options(self) -> list[str]:
        """Return Beam's pipeline options for workers of the pool."""
        return ["--environment_type=EXTERNAL", f"--environment_config=localhost:{self.port}"]

    def workers(self) -> list[int]:
        """Return the process ids of the pool's Python workers."""
        return sorted(children(self.service.process.pid))

    def is_ready(self) -> bool:
        """Return whether all Python workers have found their engine."""
        return all(map(_is_connected, self.workers()))


@contextmanager
def worker_pool(logs: Path, port: int | None = None) -> Iterator[WorkerPool]:
    """Run a worker pool.

    A pool starts ``python``, which it searches in PATH: that one must have tfshards, not only the pool's own
    interpreter.
    """
    port = port or free_port()
    main = ["-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}"]
    service = start("worker-pool", [sys.executable, *main], logs, python_path())
    with running(service, listens(port)):
        yield WorkerPool(service, port)


def _is_connected(process: int) -> bool:
    """Return whether a process has an open TCP connection."""
    num_open = 0
    with suppress(FileNotFoundError):
        files = {os.readlink(file) for file in Path(f"/proc/{process}/fd").iterdir()}
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
                state, inode = line.split()[3], line.split()[9]
                num_open += state == "01" and f"socket:[{inode}]" in files
    return num_open > 0
