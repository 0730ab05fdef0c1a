"""Runs Python programs in processes that need not import TensorFlow or Beam, which takes seconds.

A server imports them and forks: each program has a process of its own, with its own environment, working
directory and standard streams, and ends as ``python PROGRAM`` would.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]


class Program:
    """A running program, with the part of ``subprocess.Popen`` that the tests use."""

    def __init__(self, status: IO[bytes]) -> None:
        self._status = status
        self.returncode: int | None = None
        self.pid = int(status.readline())

    def poll(self) -> int | None:
        """Return the return code, negative for a signal, or None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, kill the program after ``timeout`` seconds, and return the return code."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                self.kill()
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def kill(self) -> None:
        """Kill the program if it runs."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Ended:
    """How a program ended, and its output."""

    returncode: int
    stdout: str
    stderr: str


class Programs:
    """Starts programs; the server is started with the first one."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules
        self._control: socket.socket | None = None

    def start(self, command, *, stdout, stderr, env=None, cwd=None) -> Program:
        """Start ``command``, a program's path or ``-c`` and its text, with arguments."""
        if self._control is None:
            self._control = self._serve()
        reading, writing = os.pipe()
        request = {
            "command": list(map(str, command)),
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or Path.cwd()),
        }
        with open(writing, "wb") as status:
            files = [stdout.fileno(), stderr.fileno(), status.fileno()]
            socket.send_fds(self._control, [json.dumps(request).encode()], files)
        return Program(open(reading, "rb", buffering=0))

    def run(self, command, *, env=None, cwd=None, timeout=600) -> Ended:
        """Run ``command`` to its end, and return its output; again, with a warning, after a crash.

        When Keras drops an iterator over several replicas, a thread of TensorFlow 2.21 (MultiDeviceIterator)
        may still use it: on a loaded machine, this is a segmentation fault now and then.
        """
        command = [*command]
        ended = self._run(command, env=env, cwd=cwd, timeout=timeout)
        if ended.returncode == -signal.SIGSEGV:
            warnings.warn(f"run again after a segmentation fault: {command}\n{ended.stderr}", stacklevel=2)
            ended = self._run(command, env=env, cwd=cwd, timeout=timeout)
        return ended

    def _run(self, command, *, env, cwd, timeout) -> Ended:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            returncode = self.start(command, stdout=out, stderr=err, env=env, cwd=cwd).wait(timeout)
            for file in (out, err):
                file.seek(0)
            return Ended(returncode, out.read().decode(), err.read().decode())

    def close(self) -> None:
        """End the server."""
        if self._control is not None:
            self._control.close()
            self._server.wait()

    def _serve(self) -> socket.socket:
        # a packet is a message
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            command = [sys.executable, __file__, str(there.fileno()), *self._modules]
            environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "1", "CUDA_VISIBLE_DEVICES": ""}
            self._server = subprocess.Popen(command, pass_fds=[there.fileno()], env=environment, cwd=ROOT)
        return here


def serve(control: socket.socket) -> None:
    """Fork a process for each request; return in the processes of the programs when they have ended."""
    while True:
        message, files, _, _ = socket.recv_fds(control, 1 << 20, 3)
        if not message:
            break
        if os.fork() == 0:
            control.close()
            keep(json.loads(message), *files)
            return
        for file in files:
            os.close(file)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
    with suppress(ChildProcessError):
        while os.wait():
            pass


def keep(request: Mapping[str, object], stdout: int, stderr: int, status: int) -> None:
    """Report the id of the process that runs the program, and how that ends."""
    child = os.fork()
    if child == 0:
        os.close(status)
        for descriptor, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, stdout), (2, stderr)):
            os.dup2(file, descriptor)
            os.close(file)
        run(request["command"], request["env"], request["cwd"])
        return
    for file in (stdout, stderr):
        os.close(file)
    os.write(status, f"{child}\n".encode())
    _, ended = os.waitpid(child, 0)
    os.write(status, f"{os.waitstatus_to_exitcode(ended)}\n".encode())
    os._exit(0)


def run(command: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
    """Run the program as ``python`` does."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    program, *arguments = command
    if program == "-c":
        code, *arguments = arguments
        sys.argv, sys.path[0] = ["-c", *arguments], ""
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = [program, *arguments], str(Path(program).parent)
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))


def until(condition: Callable[[], object], what: object = "", seconds: float = 180) -> None:
    """Wait until the condition holds, and fail after a timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)
