"""Kill the conversions of one tool, in its own environment, and run them again; prints JSON.

Usage: python kill_writes.py WRITER SOURCE FOLDER --kills 30 --seed 0
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from peers.writers import WRITERS, Writer

LIMIT = 120
KILLED = "killed"
# Each record as its key and a digest of its image.
Records = Counter[str]


@dataclass(frozen=True)
class Result:
    """One conversion that was killed and run again.

    Attributes:
        between: what the tool's reader found after the kill: "nothing", "part", "all" or "wrong".
        again: what the same command did: "resumed", "started over", "refused", "nothing left to do", or
            "nothing was written yet".
        records: whether the records are those of the undisturbed conversion, as a multiset.
        bytes: whether all files are, byte for byte.
        error: the error of a refusal.
    """

    between: str
    again: str
    records: bool
    bytes: bool
    error: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("writer", choices=WRITERS)
    parser.add_argument("source", type=Path, help="folder of class folders with PNG files")
    parser.add_argument("folder", type=Path, help="where to write")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pick = random.Random(f"{options.writer} {options.seed}")
    print(
        json.dumps(kill_writes(WRITERS[options.writer], options.source, options.folder, options.kills, pick))
    )


def kill_writes(writer: Writer, source: Path, folder: Path, kills: int, pick: random.Random) -> dict:
    """Return counts of what happened in all killed conversions."""
    writer.load()
    # All conversions have the same path, since some tools store it.
    out = folder / "out"
    folder.mkdir(parents=True, exist_ok=True)
    seconds = [_timed(writer, source, out) for _ in range(2)]
    whole, files = in_a_process(lambda: read(writer, out)), digests(out)
    again = _timed(writer, source, out) and digests(out)
    if isinstance(whole, str):
        raise RuntimeError(f"cannot read the undisturbed dataset: {whole}")
    results = []
    while len(results) < kills:
        # Beyond its usual time, too: the commit comes last. A conversion that ended before is not counted.
        moment = pick.uniform(0, 1.2 * seconds[1])
        result = one_kill(writer, source, out, moment, whole, files)
        if result:
            results.append(result)
    return {
        "kills": kills,
        "between": Counter(each.between for each in results),
        "again": Counter(each.again for each in results),
        "same records": sum(each.records for each in results),
        "same bytes": sum(each.bytes for each in results),
        "wrong, without an error": sum(each.again != "refused" and not each.records for each in results),
        "undisturbed conversions have the same bytes": again == files,
        "seconds": round(seconds[1], 2),
        "errors": Counter(each.error for each in results if each.error),
    }


def one_kill(
    writer: Writer, source: Path, out: Path, moment: float, whole: Records, files: dict[str, str]
) -> Result | None:
    """Kill a conversion after ``moment`` seconds, run it again, return the result; None if it had ended."""
    shutil.rmtree(out, ignore_errors=True)
    if start(lambda: writer.convert(source, out), moment) != KILLED:
        return None
    found = in_a_process(lambda: read(writer, out))
    between = "nothing" if isinstance(found, str) or not found else "all" if found == whole else "wrong"
    if between == "wrong" and found <= whole:
        between = "part"
    before, written = _identities(out), any(path.is_file() for path in out.rglob("*"))
    error = start(lambda: writer.convert(source, out), None)
    kept, now = before & _identities(out), _identities(out)
    records = in_a_process(lambda: read(writer, out)) == whole
    if error:
        done = "refused"
    elif not written:
        done = "nothing was written yet"
    elif between == "all" and now == before:
        done = "nothing left to do"
    else:
        done = "resumed" if kept else "started over"
    return Result(between, done, records, digests(out) == files, error)


def read(writer: Writer, out: Path) -> Records:
    """Return the records that the tool's reader finds."""
    return Counter(f"{key} {hashlib.sha256(image).hexdigest()}" for key, image in writer.read(out))


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of each file, by path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _identities(folder: Path) -> set[tuple[int, int, int]]:
    """Return what identifies files of 10 KB or more that are not written again, even if renamed."""
    found = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return {(each.st_ino, each.st_mtime_ns, each.st_size) for each in found if each.st_size >= 10_000}


def _timed(writer: Writer, source: Path, out: Path) -> float:
    shutil.rmtree(out, ignore_errors=True)
    before = time.perf_counter()
    error = start(lambda: writer.convert(source, out), None)
    if error:
        raise RuntimeError(f"the undisturbed conversion failed: {error}")
    return time.perf_counter() - before


def start(work: Callable[[], object], moment: float | None) -> str:
    """Run ``work`` in processes of its own, killed after ``moment`` seconds; return its error or KILLED."""
    here, there = multiprocessing.Pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        here.close()
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        status = 0
        try:
            work()
            there.send("")
        except BaseException as error:
            there.send(f"{type(error).__name__}: {error}"[:200] or traceback.format_exc()[-200:])
            status = 1
        finally:
            os._exit(status)
    there.close()
    end = time.monotonic() + (LIMIT if moment is None else moment)
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() >= end:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return KILLED if moment is not None else "TimeoutError: the conversion hangs"
        time.sleep(0.001)
    # Processes that outlive the conversion must not write into the next one's output.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return here.recv() if here.poll() else "ended by a signal"


def in_a_process(work: Callable[[], Records]) -> Records | str:
    """Return the result of ``work`` in a process of its own, or its error as text."""
    here, there = multiprocessing.Pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            there.send(work())
        except BaseException as error:
            there.send(f"{type(error).__name__}: {error}")
        finally:
            os._exit(0)
    there.close()
    found = here.recv() if here.poll(LIMIT) else "TimeoutError: the reader hangs"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return found


if __name__ == "__main__":
    main()
