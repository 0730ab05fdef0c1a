"""Functions that engines call in tests, and a program that has an engine call one of them.

``python -m tests.prep.calls FUNCTION FOLDER [PIPELINE OPTIONS]`` calls it with 60 items.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from tfshards.prep.engines.work import Work, find_run
from tfshards.prep.progress.lines import Amount
from tfshards.prep.progress.threads import check_working, limited_jobs
from tfshards.schemas import InputError, TfshardsError
from tfshards.schemas.storage import LocalPath

NUM_ITEMS = 60
# of all items, so that helpers pay off
_LARGE = Amount(NUM_ITEMS, 1 << 40)
_Function = Callable[[Path, int], None]


def note(folder: Path, item: int) -> None:
    """Leave a file that names the process, after a while in which the others are busy."""
    (folder / str(item)).write_text(f"{os.getpid()}")
    time.sleep(0.05)
    check_working(folder)


def go_on(folder: Path, item: int) -> None:
    """Write files for a long time."""
    for number in range(2000):
        (folder / str(item)).write_text(f"{os.getpid()} {number}")
        time.sleep(0.05)
        check_working(folder)


class UnpicklableError(Exception):
    """An error that cannot be sent to another process."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def fail(name: str, others: _Function, folder: Path, item: int) -> None:
    """Raise an error at one item; call a function with the others."""
    print("to standard output", flush=True)
    if item == 1:
        raise ERRORS[name]
    others(folder, item)


ERRORS: dict[str, Exception] = {
    "input": InputError("changed after the build listed it: a\n[tfshards:e30=].png"),
    "system": OSError(28, "No space left on device", "/photos"),
    "unexpected": ValueError("odd"),
    "unpicklable": UnpicklableError("no", "class"),
}


def work_of(
    function: _Function,
    folder: Path,
    sources: Sequence[Path] = (),
    items: Sequence[object] = range(NUM_ITEMS),
) -> Work:
    """Return work that calls the function with the folder and each item."""
    return Work(
        function=partial(function, folder),
        items=items,
        label="calls",
        size=_LARGE,
        folder=LocalPath(folder),
        sources=tuple(map(LocalPath, sources)),
        measure=lambda: len(list(folder.glob("[0-9]*"))),
    )


def main(name: str, folder: str, *arguments: str) -> None:
    """Run the program."""
    function = partial(fail, name, go_on) if name in ERRORS else globals()[name]
    try:
        with limited_jobs(3):
            find_run(arguments)(work_of(function, Path(folder)))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        # threads that still work would go on
        time.sleep(1)
    except TfshardsError as error:
        print(error, flush=True)
        sys.exit(1)


if __name__ == "__main__":
    # another process can load the functions of a module only
    calls = import_module("tests.prep.calls")
    calls.main(*sys.argv[1:])
