"""Daemon threads for requests, shared by all pipelines of a process; the most urgent request goes first."""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable

NUM_THREADS = 32

_numbers = itertools.count()
_lock = threading.Lock()
_queues: dict[int, queue.PriorityQueue[tuple[int, int, Callable[[], None]]]] = {}


def start(urgency: int, call: Callable[[], None]) -> None:
    """Run ``call``, which raises nothing, in another thread; the lowest ``urgency`` is started first."""
    with _lock:
        # a process that was forked has none of the threads
        waiting = _queues.get(os.getpid())
        if waiting is None:
            waiting = _queues[os.getpid()] = queue.PriorityQueue()
            for index in range(NUM_THREADS):
                name = f"tfshards-fetching-{index}"
                threading.Thread(target=_work, args=(waiting,), name=name, daemon=True).start()
    waiting.put((urgency, next(_numbers), call))


def _work(waiting: queue.PriorityQueue[tuple[int, int, Callable[[], None]]]) -> None:
    while True:
        call = waiting.get()[2]
        call()
        # while it waits, a thread must not keep alive what the call refers to
        del call
