"""Flink inside Beam's job server, with a worker pool for its Python workers, as processes of this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engines.processes import WorkerPool, worker_pool

from .processes import Service, free_port, java, listens, running, start
from .setup_engines import flink_job_server_jars

_JOB_SERVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"

# By default, a Flink without checkpoints never starts a failed job again. Flink cannot know that a build was
# interrupted: with more attempts, its job would keep its slots for longer.
_CONFIG = """\
taskmanager.numberOfTaskSlots: 2
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 3
restart-strategy.fixed-delay.delay: 2 s
"""


@dataclass(frozen=True)
class Flink:
    """A job server that runs.

    Attributes:
        service: its process.
        port: where jobs are submitted.
        pool: starts the Python workers.
    """

    service: Service
    port: int
    pool: WorkerPool

    @property
    def options(self) -> list[str]:
        """Return Beam's pipeline options for a build whose workers are the pool's."""
        return [*self._options, *self.pool.options]

    @property
    def loopback_options(self) -> list[str]:
        """Return Beam's pipeline options for a build whose workers are threads of the command."""
        return [*self._options, "--environment_type=LOOPBACK"]

    @property
    def _options(self) -> list[str]:
        return ["--runner=PortableRunner", f"--job_endpoint=localhost:{self.port}", "--parallelism=2"]


@contextmanager
def flink(logs: Path) -> Iterator[Flink]:
    """Run Flink; ``logs`` is a folder for logs and for what is handed to the workers, which must see it."""
    port = free_port()
    config = logs / "flink-job-server"
    config.mkdir(parents=True, exist_ok=True)
    (config / "flink-conf.yaml").write_text(_CONFIG)
    # fmt: off
    command = java(
        flink_job_server_jars(), _JOB_SERVER,
        "--flink-master=[local]", f"--flink-conf-dir={config}",
        "--job-host=localhost", f"--job-port={port}", "--artifact-port=0", "--expansion-port=0",
        f"--artifacts-dir={config / 'artifacts'}",
        options=["-Xmx768m"],
    )
    # fmt: on
    with (
        worker_pool(logs) as pool,
        running(start("flink-job-server", command, logs), listens(port)) as service,
    ):
        yield Flink(service, port, pool)
