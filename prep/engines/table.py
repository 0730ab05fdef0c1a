"""What an engine is given, the choice of an engine, and calls on threads of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from tfshards.prep.progress.lines import Amount, Meter
from tfshards.prep.progress.threads import STOPPED, num_writers
from tfshards.schemas import TfshardsError
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.any_path import in_store

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


def find_run(beam_args: Sequence[str]) -> Callable[[Work], None]:
    """Return the function that does work, and raises the first failure: Apache Beam's if there are options.

    Raises:
        OptionsError: Beam does not accept the options.
    """
    # imported when it is first used, since Beam takes a second
    if beam_args:
        found = import_module("tfshards.prep.engines.beam").find_run(beam_args)
    else:
        found = import_module("tfshards.prep.engines.local").run
    return cast("Callable[[Work], None]", found)


def run_on_threads(work: Work, num_threads: int | None = None) -> None:
    """Call the function with every item, on as many threads as should write shards by default.

    Raises:
        Exception: the first failure.
    """
    share(work, [work.function] * (num_threads or num_writers(waits=in_store(work.folder) is not None)))


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
