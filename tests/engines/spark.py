"""Spark: Beam's job server with a Spark inside it, or in front of a master and workers of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .job_service import JobService
from .processes import OPENS, Service, free_port, get_json, java, listens, running, start
from .setup_engines import spark_jars
from .worker_pool import hosts_option

_JOB_SERVER = "org.apache.beam.runners.spark.SparkJobServerDriver"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


@contextmanager
def spark_job_server(logs: Path, master: str = "local[2]") -> Iterator[JobService]:
    """Run Beam's job server; it is the driver of every job.

    Args:
        logs: folder for the logs, and for what the job server hands to the workers (which must see it).
        master: URL of the master, or ``local[N]`` for a Spark with N threads inside the job server.
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
        spark_jars(), _JOB_SERVER, f"--spark-master-url={master}",
        "--job-host=localhost", f"--job-port={port}", "--artifact-port=0", "--expansion-port=0",
        f"--artifacts-dir={logs / 'spark-artifacts'}",
        options=["-Xmx768m", *(f"-D{name}={value}" for name, value in settings.items())],
    )
    # fmt: on
    with running(start("spark-job-server", command, logs), listens(port)) as service:
        yield JobService(service, port)


@dataclass
class SparkCluster:
    """A master and workers, each a process with an executor for each job."""

    logs: Path
    port: int = field(default_factory=free_port)
    web_port: int = field(default_factory=free_port)
    workers: list[Service] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def master(self) -> str:
        """Return the URL for the job server."""
        return f"spark://localhost:{self.port}"

    def start_master(self) -> Service:
        """Start the master."""
        # fmt: off
        command = java(
            spark_jars(), _MASTER,
            "--host", "localhost", "--port", str(self.port), "--webui-port", str(self.web_port),
            options=["-Xmx384m"],
        )
        # fmt: on
        service = start("spark-master", command, self.logs, self._environment())
        return self._stack.enter_context(running(service, lambda: bool(self._state())))

    def start_worker(self) -> Service:
        """Start another worker with one core, and wait until the master knows it."""
        known = self.num_workers()
        # fmt: off
        command = java(
            spark_jars(), _WORKER, self.master,
            "--host", "localhost", "--webui-port", str(free_port()),
            "--cores", "1", "--memory", "600m", "--work-dir", self.logs / "spark-work",
            options=["-Xmx384m"],
        )
        # fmt: on
        # the worker's executors inherit it
        hosts = {"JAVA_TOOL_OPTIONS": hosts_option(self.logs, len(self.workers))}
        service = start("spark-worker", command, self.logs, {**self._environment(), **hosts})
        self._stack.enter_context(running(service, lambda: self.num_workers() > known))
        self.workers.append(service)
        return service

    def num_workers(self) -> int:
        """Return the number of workers that the master knows, and that have not been lost."""
        return int(str(self._state().get("aliveworkers", 0)))

    def running_jobs(self) -> list[str]:
        """Return the applications that have not ended."""
        jobs = self._state().get("activeapps", [])
        assert isinstance(jobs, list)
        return [f"{job['id']} {job['state']}" for job in jobs]

    def _state(self) -> dict[str, object]:
        return get_json(f"http://localhost:{self.web_port}/json/")

    def _environment(self) -> dict[str, str]:
        """Return the environment in which a worker finds the jars for the executors that it starts."""
        home = self.logs / "spark-home"
        home.mkdir(parents=True, exist_ok=True)
        if not (home / "jars").exists():
            (home / "jars").symlink_to(spark_jars())
        return {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.12"}


@contextmanager
def spark_cluster(logs: Path, *, workers: int = 2) -> Iterator[SparkCluster]:
    """Run a master and workers with one core each."""
    cluster = SparkCluster(logs)
    with cluster._stack:
        cluster.start_master()
        for _ in range(workers):
            cluster.start_worker()
        yield cluster
