"""Spark: Beam's job server with a Spark inside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .job_service import JobService
from .processes import OPENS, free_port, java, listens, running, start
from .setup_engines import spark_jars

_JOB_SERVER = "org.apache.beam.runners.spark.SparkJobServerDriver"


@contextmanager
def spark_job_server(logs: Path) -> Iterator[JobService]:
    """Run Beam's job server; it is the driver of every job.

    Args:
        logs: folder for the logs, and for what the job server hands to the workers (which must see it).
    """
    port = free_port()
    settings = {
        "spark.executor.extraJavaOptions": " ".join(OPENS),
        "spark.executor.memory": "512m",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    # fmt: off
    command = java(
        spark_jars(), _JOB_SERVER, "--spark-master-url=local[2]",
        "--job-host=localhost", f"--job-port={port}", "--artifact-port=0", "--expansion-port=0",
        f"--artifacts-dir={logs / 'spark-artifacts'}",
        options=["-Xmx768m", *(f"-D{name}={value}" for name, value in settings.items())],
    )
    # fmt: on
    with running(start("spark-job-server", command, logs), listens(port)) as service:
        yield JobService(service, port)
