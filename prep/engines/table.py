"""What an engine is given, the choice of an engine, and calls on threads of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeAlias, cast

from tfshards.prep.progress.lines import Amount, Meter
from tfshards.prep.progress.threads import STOPPED, num_writers
from tfshards.schemas import OptionsError, TfshardsError
from tfshards.schemas.storage import AnyPath

EngineName: TypeAlias = Literal["local", "beam"]

# for the end of threads after Ctrl-C, of which one may wait for a job that continues elsewhere
_END_SECONDS = 3
# between two measurements, which may take a fiftieth of the time at most
_MEASURE_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Work:
    """A function and the items with which an engine calls it.

    An engine calls it in any order, in any process, perhaps more than once. After a failure, or Ctrl-C, no
    further call starts, and calls in this process end when they next use ``check_working(folder)``.

    Attributes:
        function: is picklable if the engine uses other processes, as are the items.
        items: what the function is called with.
        label: what the progress is labeled with.
        size: what the function writes for all items.
        folder: a folder of this build, which the workers of a distributed engine must see.
        sources: files and folders that they must see, too.
        measure: returns how many examples finished calls have written.
    """

    function: Callable[[Any], object]
    items: Sequence[object]
    label: str
    size: Amount
    folder: AnyPath
    sources: tuple[AnyPath, ...] = ()
    measure: Callable[[], int]


def find_run(name: EngineName | None, arguments: Sequence[str]) -> Callable[[Work], None]:
    """Return the function of an engine that does work with these arguments, and raises the first failure.

    It is by default Apache Beam if there are arguments, which are pipeline options, or else the local one.

    Raises:
        OptionsError: no engine has this name, or it does not accept the arguments.
    """
    if name not in (None, "local", "beam"):
        raise OptionsError(f"engine={name!r} must be 'local' or 'beam'")
    # imported when it is first used, since Beam takes a second
    if is_distributed(name, arguments):
        found = import_module("tfshards.prep.engines.beam").find_run(arguments)
    elif arguments:
        raise OptionsError(
            f"engine='local' has no pipeline options: give engine='beam' beam_args={list(arguments)!r}, or "
            "leave them out"
        )
    else:
        found = import_module("tfshards.prep.engines.local").run
    return cast("Callable[[Work], None]", found)


def is_distributed(name: EngineName | None, arguments: Sequence[str]) -> bool:
    """Return whether the workers of an engine may be on other machines."""
    return (name or ("beam" if arguments else "local")) != "local"


def run_on_threads(work: Work, num_threads: int | None = None) -> None:
    """Call the function with every item, on as many threads as should write shards by default.

    Raises:
        Exception: the first failure.
    """
    share(work, [work.function] * (num_threads or num_writers(waits=work.folder.is_far)))


def share(
    work: Work, callers: Sequence[Callable[[Any], object]], *, end: Callable[[], object] = lambda: None
) -> None:
    """Let callers call the function, each in a thread of its own, with the next item when it is free.

    Args:
        work: the work.
        callers: each calls the function with one item, in this process or in another one.
        end: ends the calls in other processes; it is called after a failure or Ctrl-C.

    Raises:
        BaseException: the first failure.
    """
    items, lock = iter(work.items), threading.Lock()
    failures: list[BaseException] = []

    def fail(error: BaseException) -> None:
        failures.append(error)
        STOPPED.add(work.folder)
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

    STOPPED.discard(work.folder)
    # daemons, since one that waits for a device must not keep the process from ending
    threads = [threading.Thread(target=call_some, args=(call,), daemon=True) for call in callers]
    try:
        for thread in threads:
            thread.start()
        _follow(threads, work)
    except BaseException as error:  # Ctrl-C, or the system refuses a thread
        fail(error)
        deadline = time.monotonic() + _END_SECONDS
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
    if not any(thread.is_alive() for thread in threads):
        STOPPED.discard(work.folder)
    if failures:
        raise failures[0]


def _follow(threads: Sequence[threading.Thread], work: Work) -> None:
    """Show how much is done until the threads end."""
    pause = _MEASURE_SECONDS
    with Meter(work.label, work.size.num_examples, "examples") as meter:
        while threads:
            threads[0].join(pause)
            threads = [thread for thread in threads if thread.is_alive()]
            begun = time.monotonic()
            # a store may be out of reach for a while
            with suppress(OSError, TfshardsError):
                meter.reach(work.measure())
            pause = max(_MEASURE_SECONDS, 50 * (time.monotonic() - begun))
