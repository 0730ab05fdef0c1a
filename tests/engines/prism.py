"""Prism, Beam's runner for one machine, written in Go."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .job_service import JobService
from .processes import free_port, listens, running, start
from .setup_engines import prism_path


@contextmanager
def prism(logs: Path) -> Iterator[JobService]:
    """Run Prism."""
    port = free_port()
    command = [prism_path(), f"-job_port={port}", "-serve_http=false"]
    with running(start("prism", command, logs), listens(port)) as service:
        yield JobService(service, port)
