"""Seed each fault of tests/faults into a copy of the product, and report which test finds it.

    python tests/seeded_faults.py                   all faults, each judged by the test that its row names
    python tests/seeded_faults.py --all verbs       the faults of one table, judged by all tests from outside
    python tests/seeded_faults.py --only 'label*'   the faults whose names match

Exit status 0 if at most one fault in twenty is missed.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
# what a copy needs, so that its tests import its own package
COPIED = ("src", "prep", "loader", "schemas", "tests", "docs", "examples", "pyproject.toml", "README.md")
# ends of a process that a fault has crashed; SIGKILL may be lack of memory for other reasons
CRASHES = (-signal.SIGABRT, -signal.SIGSEGV)
# folders whose tests judge from outside
OUTSIDE = ("conformance", "verbs", "order", "crash", "pixels", "surface")
TIMEOUT = 1200


class Fault(NamedTuple):
    """One change of the product that a user would suffer from."""

    name: str
    file: str
    """Path of the changed file from the project's root."""
    old: str
    """Text that occurs once in the file."""
    new: str
    test: str
    """Test that finds the fault, as pytest takes it from the project's root."""


def faults(table: str | None = None) -> list[Fault]:
    """Return the faults of a table in tests/faults, or of all."""
    names = sorted(path.stem for path in (ROOT / "tests" / "faults").glob("[a-z]*.py"))
    assert table is None or table in names, f"{table}: not one of {', '.join(names)}"
    chosen = names if table is None else [table]
    return [Fault(*row) for name in chosen for row in import_module(f"tests.faults.{name}").FAULTS]


def changed(fault: Fault) -> str:
    """Return the text of a fault's file with the fault in it.

    Raises:
        ValueError: The old text does not occur exactly once, or the fault changes nothing.
    """
    text = (ROOT / fault.file).read_text()
    if (count := text.count(fault.old)) != 1 or fault.old == fault.new:
        raise ValueError(f"{fault.name}: {fault.old!r} occurs {count} times in {fault.file}")
    return text.replace(fault.old, fault.new)


def seeded(fault: Fault, copy: Path, tests: list[str]) -> str | None:
    """Run tests in a copy with the fault in it; return the first test that fails, or None."""
    path = copy / fault.file
    before = path.read_text()
    path.write_text(changed(fault))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not engines", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    # a campaign would draw other cases, and more of them
    environment.pop("SCALE", None)
    try:
        done = subprocess.run(
            [*command, *tests], cwd=copy, env=environment, capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return f"{' '.join(tests)} (no end after {TIMEOUT} s)"
    finally:
        path.write_text(before)
    if done.returncode in CRASHES:
        return f"{' '.join(tests)} ({signal.Signals(-done.returncode).name})"
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{fault.name}: pytest ended with {done.returncode}\n{done.stdout}{done.stderr}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    return failed and failed[1]


def main() -> int:
    """Seed the faults that the command line chooses; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("table", nargs="?", help="a table of tests/faults (default: all)")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="faults whose names match")
    parser.add_argument("--all", action="store_true", help="run all tests from outside, not the named one")
    options = parser.parse_args()
    outside = [f"tests/{name}" for name in OUTSIDE if (ROOT / "tests" / name).is_dir()]
    chosen = [fault for fault in faults(options.table) if fnmatch.fnmatch(fault.name, options.only)]
    missed = []
    with tempfile.TemporaryDirectory(prefix="tfshards-faults-") as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, symlinks=True)
            else:
                shutil.copyfile(source, copy / name)
        for fault in chosen:
            started = time.monotonic()
            finder = seeded(fault, copy, outside if options.all else [fault.test])
            if finder is None:
                missed.append(fault)
            seconds = time.monotonic() - started
            print(f"{fault.name} | {fault.file} | {finder or 'MISSED'} | {seconds:.0f} s", flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} faults found")
    return int(20 * len(missed) > len(chosen))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
