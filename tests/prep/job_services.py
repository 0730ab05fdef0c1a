"""Real job services and worker pools of Beam on loopback, and builds that they run."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfshards.prep.writing.area import AREA_NAME

from ..engines.processes import free_port, listens, start
from ..engines.setup_engines import prism_path

TIMEOUT_SECONDS = 180
COMMAND = [sys.executable, "-m", "tfshards", "build", "images"]
# as make engines installs it
PRISM = prism_path()


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


def prism(port: int) -> list[object]:
    """Return the command of Prism."""
    return [PRISM, f"-job_port={port}", "-serve_http=false"]


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


def started(out: Path) -> bool:
    """Return whether a worker has begun to write a shard."""
    return any(out.glob(f"{AREA_NAME}/*/unfinished*/*.tfrecord-*"))


def jobs_running(endpoint: str) -> list[str]:
    """Return the ids of the jobs of a job service that have not ended."""
    import grpc
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    with grpc.insecure_channel(endpoint) as channel:
        jobs = beam_job_api_pb2_grpc.JobServiceStub(channel).GetJobs(beam_job_api_pb2.GetJobsRequest())
    ended = {"DONE", "FAILED", "CANCELLED"}
    return [
        job.job_id for job in jobs.job_info if beam_job_api_pb2.JobState.Enum.Name(job.state) not in ended
    ]
