"""Engines: every item is processed, the first failure stops the others, all write the same bytes."""

import _thread
import subprocess
import sys
import threading

import numpy as np
import pytest

from tests.errors import raises
from tfshards.prep import Arrays
from tfshards.prep.engines.table import Work, run_on_threads
from tfshards.prep.progress.lines import WorkProgress
from tfshards.prep.progress.threads import num_writers
from tfshards.schemas import BuildError, OptionsError


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


def run_in_process(function, items, stop) -> None:
    run_on_threads(Work(function, items, WorkProgress("x", len(items)), lambda _: stop.set()))


def test_a_failure_is_raised_rather_than_that_another_call_was_stopped_because_of_it(stop):
    stopped = threading.Event()

    def call(item: str) -> None:
        # as a shard does, which ends the others before it has ended itself
        stop.set()
        if item == "stopped":
            stopped.set()
            raise BuildError("build-stopped")
        assert stopped.wait(100)
        raise BuildError("gone")

    work = Work(call, ["fail", "stopped"], WorkProgress("x", 2), lambda _: stop.set())
    with raises(BuildError, "gone"):
        run_on_threads(work, 2)
    with raises(BuildError, "build-stopped"):
        run_in_process(call, ["stopped"], stop)


def test_an_interrupt_stops_all_calls_and_starts_no_more(stop):
    called: list[int] = []

    def wait(number: int) -> None:
        if not number:
            _thread.interrupt_main()
        assert stop.wait(100)
        called.append(number)

    with pytest.raises(KeyboardInterrupt):
        run_in_process(wait, range(50), stop)
    assert 1 <= len(called) <= num_writers()


def test_engines_and_options_that_do_not_fit_are_refused(tmp_path, quiet_build):
    numbers = Arrays({"x": np.arange(4)})
    with raises(OptionsError, "engine-unknown", name="spark", known="'local' or 'beam'"):
        quiet_build(numbers, tmp_path / "out", engine="spark")
    with raises(OptionsError, "beam-args-useless"):
        quiet_build(numbers, tmp_path / "out", engine="local", beam_args=["--direct_num_workers=2"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("beam_args", [[], ["--runner=DirectRunner"]], ids=["local", "beam"])
def test_a_build_from_python_prints_no_messages_of_beam(beam_args, tmp_path):
    program = """
import logging, sys
import numpy as np
from tfshards.prep import Arrays, build
if __name__ == "__main__":
    build(Arrays({"x": np.arange(9)}), "out", shards=2, beam_args=sys.argv[1:])
    assert not logging.getLogger().handlers
"""
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py", *beam_args], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    # the first status line, and on a busy machine a line of progress
    first, *others = done.stderr.splitlines()
    assert first.startswith("starting build: ")
    assert all(line.startswith("out: ") for line in others), others
