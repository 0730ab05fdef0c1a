"""Start the processes of an engine on this machine, wait until they answer, and end them by their ids."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.durability.commands import children
from tests.engines.setup_engines import flink_job_server_jars

START_SECONDS = 90
_END_SECONDS = 15


class ServiceError(Exception):
    """A service ended, or does not answer."""


@dataclass(frozen=True)
class Service:
    """A process in a process group of its own, and the file that holds its output."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def tail(self) -> str:
        """Return the end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])

    def wait_until(self, ready: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Wait until the service is ready.

        Raises:
            ServiceError: it ended, or it was not ready in time; the message has the end of the log.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            status = self.process.poll()
            if status is not None:
                raise ServiceError(f"{self.name}: ended with status {status}; {self.log}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ServiceError(f"{self.name}: not ready after {seconds} s; {self.log}:\n{self.tail()}")
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill the process and all that it started, as if the machine had lost power."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """End the process and all that it started."""
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_SECONDS)
        self.kill()


def start(name, command, logs, environment=None) -> Service:
    """Start a process; its output goes to a file in the folder ``logs``."""
    logs.mkdir(parents=True, exist_ok=True)
    number = len(list(logs.glob(f"{name}-*.log")))
    log = logs / f"{name}-{number}.log"
    with log.open("wb") as file:
        # fmt: off
        process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})}, start_new_session=True,
        )
        # fmt: on
    return Service(name, process, log)


@contextmanager
def running(service: Service, ready: Callable[[], bool]) -> Iterator[Service]:
    """Wait until a service is ready, and end it at the end of the block."""
    try:
        service.wait_until(ready)
        yield service
    finally:
        service.end()


def free_port() -> int:
    """Return a port of the loopback interface on which nothing listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def listens(port: int) -> Callable[[], bool]:
    """Return a function that returns whether something listens on the port."""

    def is_open() -> bool:
        with socket.socket() as client:
            client.settimeout(1)
            return client.connect_ex(("127.0.0.1", port)) == 0

    return is_open


def java(jars: Path, main: str, *arguments: str | Path, options: Sequence[str] = ()) -> list[str | Path]:
    """Return the command that runs a class of the jars of a folder."""
    return ["java", *OPENS, *_SMALL, *options, "-cp", f"{jars}/*", main, *arguments]


# Several processes share the machine for a minute: a quick start matters more than the fastest code.
_SMALL = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

# Flink uses internals that Java 17 closes, and that its own scripts open.
# fmt: off
OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.text",
        "java.time", "java.util", "java.util.concurrent", "java.util.concurrent.atomic",
        "java.util.concurrent.locks", "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar",
    )
] + [
    f"--add-exports={package}=ALL-UNNAMED"
    for package in (
        "java.base/sun.net.util", "java.rmi/sun.rmi.registry", "java.security.jgss/sun.security.krb5",
    )
]
# fmt: on


def python_path() -> dict[str, str]:
    """Return the environment in which ``python`` is this interpreter, and finds this package."""
    folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    root = Path(__file__).parents[2]
    packages = [str(root / "src"), os.environ.get("PYTHONPATH", "")]
    return {"PATH": os.pathsep.join(folders), "PYTHONPATH": os.pathsep.join(filter(None, packages))}


# A worker pool of Beam's Python SDK: it starts a Python worker for each request of an engine


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


# Flink inside Beam's job server, with a worker pool for its Python workers, as processes of this machine


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
