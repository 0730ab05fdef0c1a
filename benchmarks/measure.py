"""Measure whole processes: wall time, CPU time and memory of a command and everything that it starts.

Linux only: the process tree and its memory are read from /proc. Wall time and CPU time are those of the whole
command, including the start of the interpreter and all imports.

    python benchmarks/measure.py RESULTS TABLE PICTURE

draws a table of a file of results (``--json``) as bars, in SVG.
"""

from __future__ import annotations

import argparse
import ctypes
import html
import json
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

MB = 1_000_000
# What a benchmark found: table -> contestant -> the value of each round
Tables = Mapping[str, Mapping[str, Sequence[float]]]
# Seconds between samples of the memory; the process tree is listed again at every fifth sample.
INTERVAL = 0.02
HOW = (
    "Medians (min-max) of whole processes, including the start of the interpreter; CPU is user and system "
    f"time of all processes; RSS is the sum over all processes, sampled every {INTERVAL * 1000:.0f} ms."
)
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SUBREAPER = 36


@dataclass(frozen=True)
class Measurement:
    """The time and memory of one run of a command.

    Attributes:
        wall: seconds from start to end.
        cpu: user and system seconds of the process and all its descendants.
        rss: the highest sum of resident memory over all processes, bytes; a page that two share counts twice.
        output: what the command printed.
    """

    wall: float
    cpu: float
    rss: int
    output: str


def measure(command: Sequence[str], folder: Path) -> Measurement:
    """Run ``command`` in ``folder`` and return its time and memory.

    Raises:
        RuntimeError: the command failed; the message ends with the end of its output.
    """
    # Orphans become children of this process instead of init, so that their CPU time is counted, too.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryFile("w+") as log:
        before = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        watch = _Watch(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - before
        watch.stop()
        process.returncode = os.waitstatus_to_exitcode(status)
        cpu = usage.ru_utime + usage.ru_stime + _reap_orphans()
        log.seek(0)
        output = log.read()
    if process.returncode:
        raise RuntimeError(f"{shlex.join(command)}: exit status {process.returncode}\n{output[-2000:]}")
    return Measurement(wall, cpu, watch.rss, output)


class _Watch:
    """Record the highest memory of a process tree, in a thread."""

    def __init__(self, root: int) -> None:
        self.rss = 0
        self._root = root
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
        while not self._ended.wait(INTERVAL):
            if samples % 5 == 0:
                # Between fork and exec a child has its parent's memory: it counts from the second listing on.
                found = [self._root, *_descendants(self._root)]
                tree = [pid for pid in found if pid in known or pid == self._root]
                known = set(found)
            samples += 1
            self.rss = max(self.rss, sum(map(_rss, tree)))


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


def compared(taken: Mapping[str, Sequence[Measurement]], amount: float, unit: str) -> str:
    """Return the runs of all contestants as a table; the ratios are those to the first contestant, by round.

    Args:
        taken: what ``rounds`` returns.
        amount: how many ``unit`` each contestant does in a run.
        unit: their name, in the plural.
    """
    first = next(iter(taken))
    wall = {name: [result.wall for result in results] for name, results in taken.items()}
    cpu = {name: [result.cpu for result in results] for name, results in taken.items()}
    rows = [
        [
            name,
            spread(wall[name], 2),
            spread(cpu[name], 2),
            f"{amount / statistics.median(wall[name]):,.0f}",
            spread([result.rss / MB for result in results], 0),
            spread(ratios(wall[name], wall[first]), 2),
            spread(ratios(cpu[name], cpu[first]), 2),
        ]
        for name, results in taken.items()
    ]
    over = f"over {first!r}"
    return table(("", "wall, s", "CPU, s", f"{unit}/s", "peak RSS, MB", f"wall {over}", f"CPU {over}"), rows)


def footnote(packages: Sequence[str]) -> str:
    """Return on what machine and by which command a benchmark ran, as Markdown."""
    command = shlex.join(["python", *sys.orig_argv[1:]])
    return f"\n{machine(packages)}; load average {os.getloadavg()[0]:.1f}\n\n`{command}`"


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


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option for the file of the results."""
    parser.add_argument("--json", type=Path, help="also write the value of each round to this file")


def tables_of(taken: Mapping[str, Sequence[Measurement]]) -> Tables:
    """Return what ``rounds`` returned as tables."""
    return {
        "wall, s": {name: [each.wall for each in results] for name, results in taken.items()},
        "CPU, s": {name: [each.cpu for each in results] for name, results in taken.items()},
        "peak RSS, MB": {name: [each.rss / MB for each in results] for name, results in taken.items()},
    }


def save(path: Path | None, tables: Tables, packages: Sequence[str]) -> None:
    """Write the value of each round as JSON, with the machine, if there is a path."""
    if path:
        content = {"machine": machine(packages), "tables": tables}
        path.write_text(json.dumps(content, indent=1) + "\n")


# Sizes in a picture
_LINE, _NAMES, _BARS, _NUMBERS = 22, 330, 320, 100


def draw(tables: Tables, name: str) -> str:
    """Return a picture of a table: a bar to the median of each contestant, and a line from least to most."""
    rows = tables[name]
    most = max(max(values) for values in rows.values())
    width, height = _NAMES + _BARS + _NUMBERS, _LINE * (len(rows) + 1) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_NAMES}" y="16" font-weight="bold">{html.escape(name)}</text>',
    ]
    for number, (contestant, values) in enumerate(rows.items(), 1):
        top, middle = number * _LINE + 4, statistics.median(values)
        low, bar, high = (value / most * _BARS for value in (min(values), middle, max(values)))
        color = "#888888" if _is_other(contestant) else "#2563a8"
        lines += [
            f'<text x="{_NAMES - 8}" y="{top + 14}" text-anchor="end">{html.escape(contestant)}</text>',
            f'<rect x="{_NAMES}" y="{top + 2}" width="{bar:.1f}" height="{_LINE - 6}" fill="{color}"/>',
            f'<path d="M{_NAMES + low:.1f} {top + _LINE // 2 - 1}H{_NAMES + high:.1f}" stroke="black"/>',
            f'<text x="{_NAMES + high + 6:.1f}" y="{top + 14}">{middle:,.{0 if most > 99 else 2}f}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _is_other(contestant: str) -> bool:
    """Return whether a name is that of another tool."""
    return not contestant.removeprefix("`").startswith(("tfshards", "load", "batches", "Records", "verify"))


def main() -> None:
    """Draw a table."""
    results, name, picture = sys.argv[1:]
    Path(picture).write_text(draw(json.loads(Path(results).read_text())["tables"], name))


if __name__ == "__main__":
    main()
