"""Work on a few threads of this process, with progress, and an end as soon as one of them fails."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from tfshards.prep.progress import Progress

# One more than there are cores only makes them wait for each other.
NUM_THREADS = max(2, min(4, os.cpu_count() or 1))

# Does one piece of the work; ends early, in whatever state, once the event is set.
Task: TypeAlias = Callable[[threading.Event], None]


def run_tasks(tasks: Sequence[Task], progress: Progress) -> None:
    """Run the tasks to their end.

    Raises:
        Exception: the first one that a task has raised; the others end early then.
    """
    stop = threading.Event()
    failures: list[Exception] = []

    def run(task: Task) -> None:
        try:
            if not stop.is_set():
                task(stop)
        except Exception as error:  # everything must reach the main thread
            failures.append(error)
            stop.set()

    def run_all() -> None:
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            list(pool.map(run, tasks))

    thread = threading.Thread(target=run_all, name="tasks", daemon=True)
    try:
        thread.start()
        progress.follow(thread)
    except KeyboardInterrupt:
        stop.set()
        if thread.ident is not None:
            thread.join(timeout=10)
        raise
    if failures:
        raise failures[0]
