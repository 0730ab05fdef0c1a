"""Run the job server of a runner, such as Prism, as a process that ends with this one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tfshards.schemas import BuildError

_END_SECONDS = 10
# The shell ends the server when its standard input is closed, which happens even if this process is killed.
_UNTIL_CLOSED = 'exec 3<&0; "$@" </dev/null & server=$!; { read -r _ <&3; kill $server; } & wait $server'


@contextmanager
def running(command: Sequence[str], endpoint: str, log_path: Path, seconds: float) -> Iterator[None]:
    """Run a server, and end it afterwards.

    Args:
        command: program and arguments.
        endpoint: host and port at which the server answers when it is ready.
        log_path: file to which its output is appended.
        seconds: how long to wait until it is ready.

    Raises:
        BuildError: the server ended, or does not answer.
    """
    with log_path.open("ab") as log:
        # In a session of its own, Ctrl-C does not end the server, which is still needed to cancel the job.
        process = subprocess.Popen(
            ["sh", "-c", _UNTIL_CLOSED, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        _wait_until_ready(process, command[0], endpoint, log_path, seconds)
        yield
    finally:
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until_ready(
    process: subprocess.Popen[bytes], name: str, endpoint: str, log_path: Path, seconds: float
) -> None:
    host, _, port = endpoint.rpartition(":")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise BuildError("job-server-ended", name=name, returncode=process.returncode, log_path=log_path)
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.05)
    raise BuildError("job-server-silent", name=name, endpoint=endpoint, log_path=log_path)
