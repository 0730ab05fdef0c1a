"""The interface of an engine, the table of engines, and work on threads of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from typing import Any, Literal, TypeAlias, cast, get_args

from tfshards.prep.progress.lines import WorkProgress, Written
from tfshards.prep.progress.threads import num_writers
from tfshards.schemas import OptionsError
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.any_path import in_store

EngineName: TypeAlias = Literal["local", "beam"]

# Each module has ``find_run(arguments)``, which returns the function that does work with these arguments, or
# raises OptionsError. It is imported when it is first used.
_MODULES = {
    "local": "tfshards.prep.engines.local",
    "beam": "tfshards.prep.engines.beam",
}
# for the end of threads after Ctrl-C, of which one may wait for a job that continues elsewhere
_END_SECONDS = 3


@dataclass(frozen=True)
class Work:
    """A function and the items with which an engine calls it.

    An engine calls it in any order, in any process, perhaps more than once. After a failure, or Ctrl-C, no
    further call starts, and calls in this process end when they next report to the progress.

    Attributes:
        function: is picklable if the engine uses other processes, as are the items.
        items: what the function is called with.
        progress: what shows the progress; its reporter is part of the function.
        size: what the function writes for all items.
        folder: a folder of this build, which the workers of a distributed engine must see.
        sources: files and folders that they must see, too.
        measure: returns what was written by finished calls; workers elsewhere cannot report to the progress.
    """

    function: Callable[[Any], object]
    items: Sequence[object]
    progress: WorkProgress
    size: Written
    folder: AnyPath
    sources: tuple[AnyPath, ...] = ()
    measure: Callable[[], Written] = Written


def find_run(name: EngineName | None, arguments: Sequence[str]) -> Callable[[Work], None]:
    """Return the function of an engine that does work with these arguments, and raises the first failure.

    It is by default Apache Beam if there are arguments, which are pipeline options, or else the local one.

    Raises:
        OptionsError: no engine has this name, or it does not accept the arguments.
    """
    chosen = name or ("beam" if arguments else "local")
    if chosen not in _MODULES:
        known = " or ".join(map(repr, get_args(EngineName)))
        raise OptionsError("engine-unknown", name=name, known=known)
    found = import_module(_MODULES[chosen]).find_run(arguments)
    return cast("Callable[[Work], None]", found)


def is_distributed(name: EngineName | None, arguments: Sequence[str]) -> bool:
    """Return whether the workers of an engine may be on other machines."""
    return (name or ("beam" if arguments else "local")) != "local"


def run_on_threads(work: Work, num_threads: int | None = None) -> None:
    """Call the function with every item, on as many threads as should write shards by default.

    Raises:
        Exception: the first failure.
    """
    number = num_threads or num_writers(waits=in_store(work.folder) is not None)
    share(work, [work.function] * number)


def share(
    work: Work,
    callers: Sequence[Callable[[Any], object]],
    *,
    end: Callable[[], None] | None = None,
    measure: Callable[[], Written] | None = None,
) -> None:
    """Let callers call the function, each in a thread of its own, with the next item when it is free.

    Args:
        work: the work.
        callers: each calls the function with one item, in this process or in another one.
        end: ends the calls in other processes; it is called after a failure or Ctrl-C.
        measure: returns the progress, which is by default what the calls report.

    Raises:
        BaseException: the first failure.
    """
    items, lock = iter(work.items), threading.Lock()
    failures: list[BaseException] = []
    ended = count(1)

    def fail(error: BaseException) -> None:
        failures.append(error)
        work.progress.reporter.stop()
        if end is not None:
            end()

    def call_some(call: Callable[[Any], object]) -> None:
        try:
            while not failures:
                with lock:
                    item = next(items, items)
                if item is items:
                    break
                call(item)
        except BaseException as error:  # every failure must reach the main thread
            fail(error)
        finally:
            if next(ended) == len(callers):
                work.progress.end()

    # daemons, since one that waits for a device must not keep the process from ending
    threads = [threading.Thread(target=call_some, args=(call,), daemon=True) for call in callers]
    try:
        for thread in threads:
            thread.start()
        work.progress.follow(measure)
    except BaseException as error:  # Ctrl-C, or the system refuses a thread
        fail(error)
        deadline = time.monotonic() + _END_SECONDS
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
    if failures:
        raise failures[0]
