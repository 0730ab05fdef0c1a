"""Real job services and worker pools of Beam on loopback."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..engines.processes import free_port, listens, start


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


@contextmanager
def worker_pool(folder: Path, customize: str = "", wrapper: str = "") -> Iterator[list[str]]:
    """Run a worker pool, and yield the pipeline options that name it.

    Args:
        folder: an empty folder.
        customize: code that every worker runs when its Python starts.
        wrapper: command, such as ``unshare``, that starts the Python of every worker.
    """
    folder.mkdir()
    # the pool starts the program python that it finds in PATH
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec {wrapper} {sys.executable} "$@"\n')
    program.chmod(0o755)
    (folder / "sitecustomize.py").write_text(customize)
    port = free_port()
    command = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}"]
    with service(command, port, folder, {"PATH": f"{folder}:{os.environ['PATH']}"}):
        yield ["--environment_type=EXTERNAL", f"--environment_config=localhost:{port}"]
