"""A worker pool of Beam's Python SDK: it starts a Python worker for each request of an engine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .processes import Service, free_port, listens, python_path, running, start


@dataclass(frozen=True)
class WorkerPool:
    """A worker pool; ``options`` are Beam's options for a build that uses it."""

    service: Service
    port: int

    @property
    def options(self) -> list[str]:
        """Return Beam's pipeline options that name the pool."""
        return ["--environment_type=EXTERNAL", f"--environment_config=localhost:{self.port}"]

    def workers(self) -> list[int]:
        """Return the process ids of the pool's Python workers."""
        return _children(self.service.process.pid)

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
    # fmt: off
    command = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}"]
    # fmt: on
    with running(start("worker-pool", command, logs, python_path()), listens(port)) as service:
        yield WorkerPool(service, port)


@contextmanager
def worker_pools(logs: Path, number: int) -> Iterator[list[WorkerPool]]:
    """Run worker pools that share a port: gRPC lets the kernel distribute the connections among them.

    On several machines, each has one pool, at the same port.
    """
    port = free_port()
    with ExitStack() as stack:
        yield [stack.enter_context(worker_pool(logs, port)) for _ in range(number)]


def _children(parent: int) -> list[int]:
    """Return the ids of the processes that a process started and that have not ended."""
    found: list[int] = []
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        found += map(int, task.read_text().split())
    return sorted(found)


def _is_connected(process: int) -> bool:
    """Return whether a process has an open TCP connection."""
    with suppress(FileNotFoundError):
        files = {os.readlink(file) for file in Path(f"/proc/{process}/fd").iterdir()}
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
                state, inode = line.split()[3], line.split()[9]
                if state == "01" and f"socket:[{inode}]" in files:
                    return True
    return False
