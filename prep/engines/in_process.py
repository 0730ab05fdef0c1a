"""Run work on threads of this process: derived datasets, and small builds."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from tfshards.prep.engines.table import Work
from tfshards.prep.progress.threads import num_writers


def run(work: Work, num_threads: int | None = None) -> None:
    """Call the function with every item.

    Args:
        work: the work.
        num_threads: number of threads; by default as many as should write shards.

    Raises:
        Exception: the first failure; no call starts after it.
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
        raise failures[0]
