"""Write shards on all cores of this machine: the default engine.

This process writes shards itself. For every further core, a process helps it if there is enough to write:
threads alone would wait for the lock of the interpreter.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from tfshards.prep.engines import in_process
from tfshards.prep.engines.helper import Helper, pickled
from tfshards.prep.engines.table import Work
from tfshards.prep.planning.estimate import BYTES_PER_EXAMPLE
from tfshards.prep.progress.lines import Written
from tfshards.prep.progress.threads import num_jobs, num_writers
from tfshards.schemas import OptionsError

# A helper takes a third of a second to start, which is also the time to write about this much. Examples count
# as well as their bytes, for example where they are rows of small arrays.
_BYTES_PER_HELPER = 32 << 20


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise OptionsError if there are arguments, which only Apache Beam accepts."""
    if arguments:
        raise OptionsError("beam-args-useless", arguments=list(arguments))


def num_helpers(size: Written, num_shards: int, num_cores: int | None = None) -> int:
    """Return the number of processes that help to write this many examples and bytes."""
    paid = (size.num_bytes + size.num_examples * BYTES_PER_EXAMPLE) // _BYTES_PER_HELPER
    return max(0, min(num_cores or num_jobs(), num_shards, paid) - 1)


def run(work: Work, arguments: Sequence[str] = ()) -> None:
    """Call the function with every item, in this process and in helpers.

    Raises:
        Exception: the first failure; no call starts after it.
    """
    count = num_helpers(work.size, len(work.items))
    function = pickled(work.function) if count else None
    if function is None:
        in_process.run(work)
        return
    # a helper writes one shard at a time
    num_own = num_writers() if work.area and work.area.is_remote else 1
    with ExitStack() as helpers:
        calls: queue.SimpleQueue[Callable[[Any], None]] = queue.SimpleQueue()
        for _ in range(num_own):
            calls.put(work.function)
        for _ in range(count):
            calls.put(helpers.enter_context(Helper(function)))

        def call(item: object) -> None:
            free = calls.get()
            try:
                free(item)
            finally:
                calls.put(free)

        in_process.run(replace(work, function=call), count + num_own)
