"""Run commands of tfshards in processes that can be killed, and inspect the files that they leave."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.permissions import obey_permissions
from tests.pictures import STAMP, image_file, write
from tests.programs import Programs
from tfshards.command import VERBS
from tfshards.prep.cli import main as cli

ROOT = Path(__file__).parents[2]
# Every command takes a few seconds at most; one that takes longer hangs.
TIMEOUT_SECONDS = 120


class Ended(NamedTuple):
    """How a command ended: its return code (negative for a signal), its output, and its duration."""

    status: int
    output: str
    seconds: float


@dataclass
class Commands:
    """Runs commands in processes that ``programs`` forks, whose output goes to a file of ``folder``."""

    folder: Path
    programs: Programs

    def run(self, arguments, *, kill_after=None, limits=None, meanwhile=None) -> Ended:
        """Run a command to its end.

        Args:
            arguments: arguments of the command line.
            kill_after: seconds after which its process group is killed.
            limits: those of ``main``.
            meanwhile: called with the process id while the command runs.
        """
        log = self.folder / "log"
        command = ["-c", "from tests.durability.commands import main; main()", json.dumps(limits or {})]
        started = time.monotonic()
        with log.open("wb") as output:
            child = self.programs.start([*command, *arguments], stdout=output, stderr=output, cwd=ROOT)
        if kill_after is not None:
            time.sleep(kill_after)
            _kill_group(child.pid)
        if meanwhile:
            meanwhile(child.pid)
        try:
            status = child.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            _kill_group(child.pid)
            raise AssertionError(f"hangs: {arguments}\n{log.read_text()}") from None
        return Ended(status, log.read_text(), time.monotonic() - started)


def _kill_group(process: int) -> None:
    """Kill a process and those that it started, unless they have ended."""
    try:
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
        # it does not lead its group yet, or it has ended
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


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


# Small inputs of each kind


BAD = (3, 11, 17)


def write_inputs(folder: Path) -> None:
    """Write an image folder with a few files that are rejected, and an array."""
    for number in range(24):
        write(folder / "photos" / ("cat", "dog")[number % 2] / f"{number:02}.bmp", image(number))
    for number in BAD:
        write(folder / "photos" / "cat" / f"bad-{number:02}.bmp", b"no image")
    np.save(folder / "x.npy", np.arange(6_000).reshape(60, 100))
    os.utime(folder / "x.npy", ns=(STAMP, STAMP))


def image(number: int, side: int = 40) -> bytes:
    """Return a BMP, which a build has to re-encode."""
    pixels = np.random.default_rng(number).integers(0, 256, (side, side + number, 3), dtype=np.uint8)
    return image_file(pixels, "BMP")


def main() -> None:
    """Run the command of the arguments ``LIMITS ARGUMENT ...``, with which this process ends.

    It leads a process group. LIMITS is a JSON object: with ``file_size`` no file may grow larger, with
    ``obeys`` the command obeys permissions even as root.
    """
    os.setsid()
    limits = json.loads(sys.argv.pop(1))
    if "file_size" in limits:
        # the limit of a user, who may not raise it again
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits["file_size"],) * 2)
    if limits.get("obeys"):
        obey_permissions()
    cli.entry(VERBS)
