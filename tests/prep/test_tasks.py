"""Tasks on threads: all run, the first failure ends the others, and so does an interrupt."""

from __future__ import annotations

import _thread
import threading

import pytest

from tfshards.prep.copies.tasks import NUM_THREADS, run_tasks
from tfshards.prep.progress import Progress
from tfshards.schemas import BuildError


def test_every_task_runs_once():
    ran: list[int] = []
    run_tasks([lambda _, number=number: ran.append(number) for number in range(50)], Progress("x", 50))
    assert sorted(ran) == list(range(50))


def test_no_tasks_are_done_at_once():
    run_tasks([], Progress("x", 0))


def test_a_failure_ends_the_others_and_starts_no_more():
    started: list[int] = []

    def wait(stop: threading.Event) -> None:
        started.append(1)
        assert stop.wait(100)

    def fail(_: threading.Event) -> None:
        raise BuildError("gone")

    # the ones behind find no free thread before the failure
    with pytest.raises(BuildError, match=r"^gone$"):
        run_tasks([*[wait] * (NUM_THREADS - 1), fail, *[wait] * 50], Progress("x", 1))
    assert len(started) == NUM_THREADS - 1


def test_an_interrupt_ends_all():
    ended = threading.Event()

    def wait(stop: threading.Event) -> None:
        _thread.interrupt_main()
        assert stop.wait(100)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        run_tasks([wait], Progress("x", 1))
    assert ended.is_set()
