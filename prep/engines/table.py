"""The interface of an engine, the table of engines, and work on threads of this process."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, cast, get_args

from tfshards.prep.progress.lines import NOTHING, WorkProgress, Written
from tfshards.prep.progress.threads import num_writers
from tfshards.prep.writing.area import BuildArea
from tfshards.schemas import OptionsError
from tfshards.schemas.storage import AnyPath

EngineName: TypeAlias = Literal["local", "beam"]

# The module of each engine, which has the functions of ``Engine``. It is imported when it is first used.
_MODULES = {
    "local": "tfshards.prep.engines.local",
    "beam": "tfshards.prep.engines.beam",
}


@dataclass(frozen=True)
class Work:
    """A function and the items with which an engine calls it.

    It calls in any order, in any process, perhaps more than once. The function and the items must be
    picklable if the engine uses other processes.
    """

    function: Callable[[Any], object]
    items: Sequence[object]
    progress: WorkProgress
    # called with a reason when a call failed or was lost, or the user interrupted; makes calls end early
    stop: Callable[[str], None]
    # of all items, if known
    size: Written = NOTHING
    # where workers on other machines find their tasks and record what they have written, and what they read
    area: BuildArea | None = None
    sources: tuple[AnyPath, ...] = ()
    # returns what is written, from the build area
    measure: Callable[[], Written] = Written

    @property
    def log_path(self) -> Path:
        """The file for the output of processes that an engine starts, which cannot write into a store."""
        area = self.area
        if area is not None and isinstance(area.root, Path):
            return area.root.absolute() / "workers.log"
        name = f"{area.plan_id}-{area.attempt}" if area is not None else str(os.getpid())
        return Path(tempfile.gettempdir()) / f"tfshards-{name}.log"


class Engine(Protocol):
    """The functions of an engine's module."""

    def check_arguments(self, arguments: Sequence[str]) -> None:
        """Raise OptionsError if the engine does not know one of the arguments."""

    def run(self, work: Work, arguments: Sequence[str] = ()) -> None:
        """Call the function with every item; raise the first failure, after which calls were stopped."""


def cancel_lost_job(note: AnyPath) -> None:
    """Cancel the job of an earlier run that was killed, or could not cancel it, if there is a note of it.

    The build does not depend on it: the workers of an earlier attempt stop when the next one opens the area.
    """
    if note.exists():
        # only jobs of Beam outlive their command; it takes a second to import
        import_module(_MODULES["beam"]).cancel_lost_job(note)


def find_engine(name: EngineName | None, arguments: Sequence[str]) -> Engine:
    """Return the engine of this name: by default Apache Beam if it is given arguments, or else the local one.

    Raises:
        OptionsError: no engine has this name, or it does not know one of the arguments.
    """
    chosen = name or ("beam" if arguments else "local")
    if chosen not in _MODULES:
        known = " or ".join(map(repr, get_args(EngineName)))
        raise OptionsError("engine-unknown", name=name, known=known)
    # looking for garbage among all that Beam defines would take a fifth of its import
    collects = gc.isenabled()
    gc.disable()
    try:
        engine = cast("Engine", import_module(_MODULES[chosen]))
    finally:
        if collects:
            gc.enable()
    engine.check_arguments(arguments)
    return engine


def is_distributed(name: EngineName | None, arguments: Sequence[str]) -> bool:
    """Return whether the workers of an engine may be on other machines."""
    return (name or ("beam" if arguments else "local")) != "local"


def find_run(name: EngineName | None, arguments: Sequence[str]) -> Callable[[Work], None]:
    """Return the function of an engine that does work with these arguments; it raises as ``find_engine``."""
    return partial(find_engine(name, arguments).run, arguments=tuple(arguments))


def run_on_threads(work: Work, num_threads: int | None = None) -> None:
    """Call the function with every item, on as many threads as should write shards by default.

    Raises:
        Exception: the first failure that did not follow from another; no call starts after it.
    """
    if num_threads is None:
        num_threads = num_writers(is_remote=work.area is not None and work.area.is_remote)
    failures: list[BaseException] = []

    def call(item: object) -> None:
        if failures:
            return
        try:
            work.function(item)
        except BaseException as error:  # every failure must reach the main thread
            failures.append(error)
            work.stop(str(error))

    def call_all() -> None:
        try:
            with ThreadPoolExecutor(num_threads) as pool:
                list(pool.map(call, work.items))
        except BaseException as error:  # such as that the system refuses a thread
            failures.append(error)
        finally:
            work.progress.end()

    thread = threading.Thread(target=call_all, name="in_process", daemon=True)
    try:
        thread.start()
        work.progress.follow()
    except KeyboardInterrupt as interrupt:
        failures.append(interrupt)
        work.stop("interrupted")
        if thread.ident is not None:
            thread.join(timeout=10)
        raise
    if failures:
        # a call that was stopped can end before the one whose failure stopped it
        raise next((each for each in failures if getattr(each, "code", None) != "build-stopped"), failures[0])
