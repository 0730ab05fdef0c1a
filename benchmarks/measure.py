"""Measure whole processes: wall time, CPU time and memory of a command and everything that it starts.

Linux only: the process tree and its memory are read from /proc. Wall time and CPU time are those of the whole
command, including the start of the interpreter and all imports.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

MB = 1_000_000
# Seconds between samples of the memory; the process tree is listed again at every fifth sample.
INTERVAL = 0.02
# smaps_rollup walks a process's page tables: about 30 ms for 600 MB, too slow for timed runs.
PSS_INTERVAL = 0.1
HOW = (
    "Medians (min-max) of whole processes, including the start of the interpreter; CPU is user and system "
    f"time of all processes; RSS is the sum over all processes, sampled every {INTERVAL * 1000:.0f} ms."
)
PSS_HOW = f" PSS counts shared pages once: one further run, sampled every {PSS_INTERVAL * 1000:.0f} ms."
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SUBREAPER = 36


@dataclass(frozen=True)
class Measurement:
    """The time and memory of one run of a command.

    Attributes:
        wall: seconds from start to end.
        cpu: user and system seconds of the process and all its descendants.
        rss: the highest sum of resident memory over all processes, bytes; a page that two share counts twice.
        pss: the same with shared pages divided among the processes that share them; 0 if it was not measured.
        output: what the command printed.
    """

    wall: float
    cpu: float
    rss: int
    pss: int
    output: str


def measure(command: Sequence[str], folder: Path, with_pss: bool = False) -> Measurement:
    """Run ``command`` in ``folder`` and return its time and memory.

    Raises:
        RuntimeError: the command failed; the message ends with the end of its output.
    """
    # Orphans become children of this process instead of init, so that their CPU time is counted, too.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryFile("w+") as log:
        before = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        watch = _Watch(process.pid, with_pss)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - before
        watch.stop()
        process.returncode = os.waitstatus_to_exitcode(status)
        cpu = usage.ru_utime + usage.ru_stime + _reap_orphans()
        log.seek(0)
        output = log.read()
    if process.returncode:
        raise RuntimeError(f"{shlex.join(command)}: exit status {process.returncode}\n{output[-2000:]}")
    return Measurement(wall, cpu, watch.rss, watch.pss, output)


class _Watch:
    """Record the highest memory of a process tree, in a thread."""

    def __init__(self, root: int, with_pss: bool) -> None:
        self.rss = self.pss = 0
        self._root, self._with_pss = root, with_pss
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        known: set[int] = set()
        tree: list[int] = []
        samples = 0
        while not self._ended.wait(PSS_INTERVAL if self._with_pss else INTERVAL):
            if samples % 5 == 0 or self._with_pss:
                # Between fork and exec a child has its parent's memory: it counts from the second listing on.
                found = [self._root, *_descendants(self._root)]
                tree = [pid for pid in found if pid in known or pid == self._root]
                known = set(found)
            samples += 1
            self.rss = max(self.rss, sum(map(_rss, tree)))
            if self._with_pss:
                self.pss = max(self.pss, sum(map(_pss, tree)))


def _descendants(pid: int) -> Iterable[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for thread in threads:
        for child in _read(f"/proc/{pid}/task/{thread}/children").split():
            yield int(child)
            yield from _descendants(int(child))


def _rss(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _pss(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        # the process ended after it was listed
        return ""


def _reap_orphans() -> float:
    """End the processes that the command left running, and return their CPU seconds."""
    seconds = 0.0
    for pid in list(_descendants(os.getpid())):
        try:
            os.kill(pid, signal.SIGKILL)
            _, _, usage = os.wait4(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue
        seconds += usage.ru_utime + usage.ru_stime
    return seconds


def rounds(
    contestants: Sequence[str], number: int, run: Callable[[str], Measurement]
) -> dict[str, list[Measurement]]:
    """Return ``number`` measurements of each contestant, taken in turns (A B C A B C ...)."""
    taken: dict[str, list[Measurement]] = {name: [] for name in contestants}
    print(f"load average before: {os.getloadavg()[0]:.1f}; other processes on the machine blur the results")
    for turn in range(number):
        for name in contestants:
            result = run(name)
            taken[name].append(result)
            shown = f"{result.wall:.2f} s wall, {result.cpu:.2f} s CPU, {result.rss / MB:.0f} MB"
            print(f"round {turn + 1} of {number}: {name}: {shown}", flush=True)
    return taken


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Return ``median (min-max)``."""
    low, middle, high = (f"{v:,.{digits}f}" for v in (min(values), statistics.median(values), max(values)))
    return middle if low == high else f"{middle} ({low}-{high})"


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Return the ratios of two contestants' values, paired by round."""
    return [a / b for a, b in zip(over, under, strict=True)]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table whose columns are right-aligned, except the first."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def goal(text: str, value: float, limit: float, at_least: bool = False) -> str:
    """Return a list item that states whether ``value`` reaches the goal ``limit``."""
    reached = value >= limit if at_least else value <= limit
    sign = "≥" if at_least else "≤"
    return f"- {text}: {value:.2f}, goal {sign} {limit:g}: {'reached' if reached else 'missed'}"


def machine(packages: Sequence[str]) -> str:
    """Return the cores and memory of the machine and the versions of the packages."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * _PAGE / 2**30
    names = [
        line.partition(":")[2].strip() for line in _read("/proc/cpuinfo").splitlines() if "model name" in line
    ]
    versions: Mapping[str, str] = {name: _version(name) for name in packages}
    listed = ", ".join(f"{name} {number}" for name, number in versions.items())
    return (
        f"{cores} cores ({names[0] if names else platform.machine()}), {memory:.0f} GiB, "
        f"Linux {platform.release().partition('-')[0]}, Python {platform.python_version()}, {listed}"
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"
