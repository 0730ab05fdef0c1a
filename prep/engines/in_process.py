"""Run work on threads of this process: for derived datasets, tests, and small builds."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tfshards.prep.engines.table import Work
from tfshards.prep.progress.threads import NUM_WRITERS
from tfshards.schemas import OptionsError
from tfshards.schemas.argument_types import check_strings


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise OptionsError if there are arguments, which only Apache Beam accepts."""
    check_strings("beam_args", arguments)
    if arguments:
        raise OptionsError(
            f"beam_args={list(arguments)!r} has no effect with engine='in_process'; leave it out"
        )


def run(work: Work, arguments: Sequence[str] = ()) -> None:
    """Call the function with every item.

    Raises:
        Exception: the first failure; no call starts after it.
    """
    check_arguments(arguments)
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
        with ThreadPoolExecutor(NUM_WRITERS) as pool:
            list(pool.map(call, work.items))
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
        raise failures[0]
