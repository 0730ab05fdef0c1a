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
def worker_pool(logs: Path, customize: str = "", wrapper: str = "") -> Iterator[WorkerPool]:
    """Run a worker pool.

    Args:
        logs: folder for its log, and for the program ``python`` that it finds in PATH.
        customize: code that every worker runs when its Python starts.
        wrapper: command, such as ``unshare``, that starts the Python of every worker.
    """
    folder, port, paths = logs / "worker-pool", free_port(), python_path()
    folder.mkdir(parents=True)
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec {wrapper} {sys.executable} "$@"\n')
    program.chmod(0o755)
    (folder / "sitecustomize.py").write_text(customize)
    main = ["-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}"]
    paths["PATH"] = f"{folder}:{paths['PATH']}"
    service = start("worker-pool", [sys.executable, *main], logs, paths)
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
