"""Run commands of tfshards in processes that can be killed, and inspect the files that they leave."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# Every command takes a few seconds at most; one that takes longer hangs.
TIMEOUT_SECONDS = 120


class Ended(NamedTuple):
    """How a command ended: its return code (negative for a signal), its output, and its duration."""

    status: int
    output: str
    seconds: float


def start_server(*modules: str) -> subprocess.Popen[str]:
    """Start ``server.py``, which ends when its standard input is closed."""
    command = [sys.executable, "-m", "tests.durability.server", *modules]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@dataclass
class Commands:
    """Runs commands in children of one process that has already imported their modules (``server.py``)."""

    folder: Path
    server: subprocess.Popen[str]

    def run(self, arguments, *, kill_after=None, limits=None, meanwhile=None) -> Ended:
        """Run a command to its end.

        Args:
            arguments: arguments of the command line.
            kill_after: seconds after which its process group is killed.
            limits: further fields of the request to ``server.py``.
            meanwhile: called with the process id while the command runs.
        """
        log = self.folder / "log"
        request = {"arguments": list(map(str, arguments)), "log": str(log), **(limits or {})}
        started = time.monotonic()
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        child = int(self.server.stdout.readline())
        if kill_after is not None:
            time.sleep(kill_after)
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        if meanwhile:
            meanwhile(child)
        if not select.select([self.server.stdout], [], [], TIMEOUT_SECONDS)[0]:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            raise AssertionError(f"hangs: {arguments}\n{log.read_text()}")
        status = int(self.server.stdout.readline())
        return Ended(status, log.read_text(), time.monotonic() - started)


def children(process: int) -> list[int]:
    """Return the child processes of a process, from /proc."""
    found = ""
    for thread in Path(f"/proc/{process}/task").iterdir():
        # a thread may end meanwhile
        with suppress(FileNotFoundError):
            found += (thread / "children").read_text()
    return [int(child) for child in found.split()]


def contents(root: Path) -> dict[str, bytes]:
    """Return the bytes of every file in a folder, hidden ones as well, and its empty folders, by path."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else b"a folder"
        for path in sorted(root.rglob("*"))
    }


def identity(path: Path) -> tuple[int, int]:
    """Return inode and time of a file, which change when it is written again."""
    return path.stat().st_ino, path.stat().st_mtime_ns
