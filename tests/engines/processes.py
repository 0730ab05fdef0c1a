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
