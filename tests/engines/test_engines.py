"""Builds on Flink give the same bytes, undisturbed and after processes of the engine were killed.

``make engines`` runs these tests. Each starts its engine, as processes of this machine, and ends it.
"""

import os
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.errors import raises
from tests.prep.calls import fail, note, work_of
from tests.programs import until
from tfshards.prep.engines.table import find_run
from tfshards.schemas import InputError

from .builds import NUM_SHARDS, Build, building, contents
from .flink import Flink
from .worker_pool import worker_pool

pytestmark = pytest.mark.engines
# Flink starts the job of an interrupted build again, until no attempt is left.
END_SECONDS = 60


@dataclass
class Trial:
    """A build on Flink, which may be disturbed, and is repeated until it succeeds, at most once."""

    engine: Flink
    source: Path
    folder: Path
    expected: Mapping[bool, Mapping[str, bytes]]

    @property
    def out(self) -> Path:
        return self.folder / "data"

    def run(self, disturb=None, options=None, *, with_rejects=False, twice=0) -> None:
        """Build, call ``disturb`` when a few shards are finished, and repeat the command if it failed.

        Args:
            disturb: called with the build.
            options: pipeline options; by default those with the worker pool.
            with_rejects: whether some of the inputs are rejected, so that shards are written again.
            twice: how many finished shards may be written again.
        """
        options = self.engine.options if options is None else options
        logs = self.folder / "logs"
        with building(self.source, self.out, logs, options, with_rejects=with_rejects) as first:
            if disturb:
                first.wait_for_finished(4)
                disturb(first)
            status = first.wait()
            if status is None:
                first.interrupt()
        left_over, again = self.left_over(), first.num_written_twice()
        print(f"first attempt: status {status} after {first.seconds:.0f} s\n{first.service.tail()}")
        if status != 0:
            with building(self.source, self.out, logs, options, with_rejects=with_rejects) as second:
                status = second.wait()
            again = second.num_written_twice(first)
            print(f"second attempt: status {status} after {second.seconds:.0f} s\n{second.service.tail()}")
        assert status == 0
        assert contents(self.out) == self.expected[with_rejects]
        assert with_rejects or again <= twice
        assert left_over == []

    def left_over(self) -> list[str]:
        """Return the jobs that still run a while after their command has ended."""
        try:
            until(lambda: not self.engine.running_jobs(), "no job is left over", END_SECONDS)
        except AssertionError:
            return self.engine.running_jobs()
        return []


@pytest.fixture
def trial(engine: Flink, source: Path, expected: Mapping[str, bytes], tmp_path: Path) -> Trial:
    return Trial(engine, source, tmp_path, expected)


@pytest.mark.flink
def test_an_undisturbed_build_gives_the_same_bytes(trial):
    trial.run(with_rejects=True)


def test_a_build_whose_workers_are_threads_of_the_command_gives_the_same_bytes(trial):
    trial.run(options=trial.engine.loopback_options)


@pytest.mark.flink
def test_a_build_recovers_or_resumes_after_a_python_worker_was_killed(trial):
    def kill_worker(build: Build) -> None:
        os.kill(trial.engine.busy_pool().workers()[0], signal.SIGKILL)

    trial.run(kill_worker)


def test_a_build_recovers_or_resumes_after_a_worker_pool_was_killed_and_started_again(trial):
    with ExitStack() as stack:

        def kill_pool(build: Build) -> None:
            pool = trial.engine.busy_pool()
            pool.service.kill()
            stack.enter_context(worker_pool(trial.folder / "logs", pool.port))

        trial.run(kill_pool)


def test_an_interrupted_build_whose_job_ends_by_itself_resumes(trial):
    # the job may finish shards that the second command has begun
    trial.run(Build.interrupt, twice=NUM_SHARDS)


def test_the_error_of_a_worker_is_raised_with_its_class_and_code(engine, tmp_path):
    with raises(InputError, "changed-file"):
        find_run("beam", engine.options)(work_of(partial(fail, "input", note), tmp_path))
