"""Flink: Beam's job server with a Flink inside it, or in front of a cluster of processes of this machine."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .job_service import JobService
from .processes import Service, free_port, get_json, java, listens, running, start
from .setup_engines import flink_jars, flink_job_server_jars
from .worker_pool import hosts_option

_JOB_SERVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"
_JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"

# By default, a Flink without checkpoints never starts a failed job again. Flink cannot know that a build was
# interrupted: with more attempts, its job would keep its slots for longer.
_RESTART = """\
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 3
restart-strategy.fixed-delay.delay: 2 s
"""
# A lost task manager is noticed within seconds.
_CONFIG = """\
jobmanager.rpc.address: localhost
jobmanager.rpc.port: {rpc_port}
jobmanager.memory.process.size: 1000m
rest.address: localhost
rest.bind-address: localhost
rest.port: {rest_port}
taskmanager.host: localhost
taskmanager.bind-host: localhost
io.tmp.dirs: {folder}
heartbeat.interval: 1000
heartbeat.timeout: 8000
{restart}"""
_LOG4J = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss,SSS} %-5p %-40c{1} - %m%n
"""
# Flink's start scripts compute these; without them a task manager does not start.
_TASK_MANAGER_MEMORY = {
    "taskmanager.cpu.cores": "1.0",
    "taskmanager.numberOfTaskSlots": "1",
    "taskmanager.memory.task.heap.size": "256m",
    "taskmanager.memory.task.off-heap.size": "0m",
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "taskmanager.memory.managed.size": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
}


@contextmanager
def flink_job_server(logs: Path, master: str = "[local]", *, slots: int = 2) -> Iterator[JobService]:
    """Run Beam's job server.

    Args:
        logs: folder for the logs, and for what the job server hands to the workers (which must see it).
        master: REST address of a cluster, or ``[local]`` for a Flink inside the job server.
        slots: number of slots of the Flink inside the job server.
    """
    port = free_port()
    config = logs / "flink-job-server"
    config.mkdir(parents=True, exist_ok=True)
    (config / "flink-conf.yaml").write_text(f"taskmanager.numberOfTaskSlots: {slots}\n{_RESTART}")
    # fmt: off
    command = java(
        flink_job_server_jars(), _JOB_SERVER,
        f"--flink-master={master}", f"--flink-conf-dir={config}",
        "--job-host=localhost", f"--job-port={port}", "--artifact-port=0", "--expansion-port=0",
        f"--artifacts-dir={config / 'artifacts'}",
        options=["-Xmx768m"],
    )
    # fmt: on
    with running(start("flink-job-server", command, logs), listens(port)) as service:
        yield JobService(service, port)


@dataclass
class FlinkCluster:
    """A job manager and task managers, each a process; there is a worker pool for each machine."""

    logs: Path
    num_machines: int
    rpc_port: int = field(default_factory=free_port)
    rest_port: int = field(default_factory=free_port)
    job_manager: Service | None = None
    task_managers: list[Service] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def master(self) -> str:
        """Return the address for the job server."""
        return f"localhost:{self.rest_port}"

    def start_job_manager(self) -> Service:
        """Start the job manager; one that was killed comes back at the same address."""
        command = self._command(_JOB_MANAGER, java_options=["-Xmx512m"])
        service = start("flink-job-manager", command, self.logs)
        self.job_manager = self._stack.enter_context(running(service, listens(self.rest_port)))
        return self.job_manager

    def start_task_managers(self, number: int) -> None:
        """Start further task managers with one slot each, and wait until the job manager knows them."""
        first = len(self.task_managers)
        names = [f"number-{index}" for index in range(first, first + number)]
        for index, name in enumerate(names, first):
            settings = {**_TASK_MANAGER_MEMORY, "taskmanager.resource-id": name}
            options = [part for setting in settings.items() for part in ("-D", "=".join(setting))]
            hosts = hosts_option(self.logs, index % self.num_machines)
            command = self._command(_TASK_MANAGER, *options, java_options=["-Xmx384m", hosts])
            service = start("flink-task-manager", command, self.logs)
            self._stack.callback(service.end)
            self.task_managers.append(service)
        for name, service in zip(names, self.task_managers[first:], strict=True):
            service.wait_until(lambda name=name: name in self._free_slots())

    def busy_task_manager(self) -> Service:
        """Return a task manager whose slot a job has."""
        name = min(name for name, free in self._free_slots().items() if not free)
        return self.task_managers[int(name.removeprefix("number-"))]

    def _free_slots(self) -> dict[str, int]:
        """Return the number of free slots of each task manager that the job manager knows."""
        known = get_json(f"http://{self.master}/taskmanagers").get("taskmanagers", [])
        assert isinstance(known, list)
        return {one["id"]: one["freeSlots"] for one in known}

    def running_jobs(self) -> list[str]:
        """Return the jobs that have not ended, with their states."""
        jobs = get_json(f"http://{self.master}/jobs").get("jobs", [])
        assert isinstance(jobs, list)
        ended = ("FINISHED", "FAILED", "CANCELED")
        return [f"{job['id']} {job['status']}" for job in jobs if job["status"] not in ended]

    def _command(self, main: str, *arguments: str, java_options: list[str]) -> list[str | Path]:
        folder = self.logs / "flink-conf"
        folder.mkdir(parents=True, exist_ok=True)
        config = _CONFIG.format(
            rpc_port=self.rpc_port, rest_port=self.rest_port, folder=folder, restart=_RESTART
        )
        (folder / "flink-conf.yaml").write_text(config)
        (folder / "log4j.properties").write_text(_LOG4J)
        options = [*java_options, f"-Dlog4j.configurationFile={folder / 'log4j.properties'}"]
        return java(flink_jars(), main, "--configDir", str(folder), *arguments, options=options)


@contextmanager
def flink_cluster(logs: Path, *, task_managers: int = 3) -> Iterator[FlinkCluster]:
    """Run a job manager and task managers with one slot each."""
    cluster = FlinkCluster(logs, task_managers)
    with cluster._stack:
        cluster.start_job_manager()
        cluster.start_task_managers(task_managers)
        yield cluster
