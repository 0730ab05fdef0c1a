"""A worker pool of Beam's Python SDK: it starts a Python worker for each request of an engine."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .processes import Service, free_port, listens, python_path, running, start

# The name by which the engines of a cluster find the pool of their machine.
HOST_NAME = "worker-pool"


@dataclass(frozen=True)
class WorkerPool:
    """A worker pool."""

    service: Service
    port: int
    address: str | None = None

    @property
    def options(self) -> list[str]:
        """Return Beam's pipeline options, the same for all pools of a cluster."""
        host = HOST_NAME if self.address else "localhost"
        return ["--environment_type=EXTERNAL", f"--environment_config={host}:{self.port}"]

    def workers(self) -> list[int]:
        """Return the process ids of the pool's Python workers."""
        return _children(self.service.process.pid)

    def is_ready(self) -> bool:
        """Return whether all Python workers have found their engine."""
        return all(map(_is_connected, self.workers()))


@contextmanager
def worker_pool(logs: Path, port: int | None = None, address: str | None = None) -> Iterator[WorkerPool]:
    """Run a worker pool, at one address of the loopback network if there are several.

    A pool starts ``python``, which it searches in PATH: that one must have tfshards, not only the pool's own
    interpreter.
    """
    port = port or free_port()
    main = ["-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}"]
    if address:
        main = [str(Path(__file__).with_name("pool_at_address.py")), address, str(port)]
    service = start("worker-pool", [sys.executable, *main], logs, python_path())
    with running(service, listens(port, address or "127.0.0.1")):
        yield WorkerPool(service, port, address)


@contextmanager
def worker_pools(logs: Path, number: int) -> Iterator[list[WorkerPool]]:
    """Run worker pools at the same port of several addresses, as if each were on a machine of its own.

    Two processes of an engine must not share a pool: both name their workers 1-1, 2-1 and so on, and when one
    of them stops its worker, the pool ends that of the other, whose engine then waits for it for ever.
    """
    port = free_port()
    with ExitStack() as stack:
        yield [stack.enter_context(worker_pool(logs, port, _address(index))) for index in range(number)]


def hosts_option(logs: Path, index: int) -> str:
    """Return the option with which a Java process finds the pool of a cluster's machine by ``HOST_NAME``."""
    hosts = logs / f"hosts-{index}"
    names = f"localhost {socket.gethostname()}"
    hosts.write_text(f"127.0.0.1 {names}\n{_address(index)} {HOST_NAME}\n")
    return f"-Djdk.net.hosts.file={hosts}"


def _address(index: int) -> str:
    return f"127.0.0.{index + 2}"


def _children(parent: int) -> list[int]:
    """Return the ids of the processes that a process started and that have not ended."""
    found: list[int] = []
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        found += map(int, task.read_text().split())
    return sorted(found)


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
