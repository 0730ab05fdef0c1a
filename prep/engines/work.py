"""What an engine is given, the choice of an engine, and calls on threads of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias, TypeVar, cast

from tfshards.prep.progress.lines import Amount, Meter
from tfshards.prep.progress.threads import STOPPED, check_working, num_jobs, num_writers
from tfshards.schemas import TfshardsError
from tfshards.schemas.storage import AnyPath

Item = TypeVar("Item")
Result = TypeVar("Result")

# Called with the number of bytes that were processed since the last call.
Tick: TypeAlias = Callable[[int], object]

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

    def follow(self, threads: Sequence[threading.Thread]) -> None:
        """Show how much is done until threads end."""
        pause = _MEASURE_SECONDS
        with Meter(self.label, self.size.num_examples, "examples") as meter:
            while threads:
                threads[0].join(pause)
                threads = [thread for thread in threads if thread.is_alive()]
                begun = time.monotonic()
                # a store may be out of reach for a while
                with suppress(OSError, TfshardsError):
                    meter.reach(self.measure())
                pause = max(_MEASURE_SECONDS, 50 * (time.monotonic() - begun))


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


def run_on_threads(work: Work) -> None:
    """Call the function with every item, on as many threads as should write shards by default.

    Raises:
        Exception: the first failure.
    """
    share(work.items, [work.function] * num_writers(waits=work.folder.is_far), work.folder, work.follow)


def in_threads(work: Callable[[Item, Tick], Result], items: Sequence[Item], tick: Tick) -> list[Result]:
    """Return the result of ``work`` for each item, or raise the first error.

    ``work`` reports progress with a function that also ends it after an error in another thread, so it calls
    that often, with 0 if need be.
    """
    name, results = object(), {}

    def tick_on(num_bytes: int) -> None:
        check_working(name)
        tick(num_bytes)

    def call(index: int) -> None:
        results[index] = work(items[index], tick_on)

    def follow(threads: Iterable[threading.Thread]) -> None:
        for thread in threads:
            thread.join()

    share(range(len(items)), [call] * min(num_jobs(), len(items)), name, follow)
    return [results[index] for index in range(len(items))]


def share(
    items: Iterable[object],
    callers: Sequence[Callable[[Any], object]],
    name: object,
    follow: Callable[[Sequence[threading.Thread]], object],
    end: Callable[[], object] = lambda: None,
) -> None:
    """Let callers take items, each in a thread of its own, and raise the first failure.

    Args:
        items: the items.
        callers: each calls a function with one item, in this process or in another one.
        name: what the calls in this process give to ``check_working``, which ends them after a failure.
        follow: waits for the threads.
        end: ends the calls in other processes; it is called after a failure or Ctrl-C.
    """
    rest, lock = iter(items), threading.Lock()
    failures: list[BaseException] = []

    def fail(error: BaseException) -> None:
        failures.append(error)
        STOPPED.add(name)
        end()

    def call_some(call: Callable[[Any], object]) -> None:
        try:
            while not failures:
                with lock:
                    item = next(rest, rest)
                if item is rest:
                    break
                call(item)
        except BaseException as error:  # every failure must reach the main thread
            fail(error)

    STOPPED.discard(name)
    # daemons, since one that waits for a device must not keep the process from ending
    threads = [threading.Thread(target=call_some, args=(call,), daemon=True) for call in callers]
    try:
        for thread in threads:
            thread.start()
        follow(threads)
    except BaseException as error:  # Ctrl-C, or the system refuses a thread
        fail(error)
        deadline = time.monotonic() + _END_SECONDS
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
    if not any(thread.is_alive() for thread in threads):
        STOPPED.discard(name)
    if failures:
        raise failures[0]
