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
from .engines import ENGINES, Engine
from .worker_pool import worker_pool

pytestmark = pytest.mark.engines
on_flink = pytest.mark.parametrize("engine", ["flink"], indirect=True)
on_a_cluster = pytest.mark.parametrize("engine", ["flink-cluster"], indirect=True)
on_each_engine = pytest.mark.parametrize("engine", ENGINES, indirect=True)
on_each_engine_and_flink_in_processes = pytest.mark.parametrize(
    "engine",
    [pytest.param(name, marks=[pytest.mark.flink] * (name == "flink")) for name in ENGINES],
    indirect=True,
)
# Flink starts the job of an interrupted build again, until no attempt is left.
END_SECONDS = 60


@dataclass
class Trial:
    """A build on an engine, which may be disturbed, and is repeated until it succeeds, at most once."""

    engine: Engine
    source: Path
    folder: Path
    expected: Mapping[bool, Mapping[str, bytes]]

    @property
    def out(self) -> Path:
        return self.folder / "data"

    def run(self, disturb=None, options=None, *, with_rejects=False, recovers=False, twice=0) -> None:
        """Build, call ``disturb`` when a few shards are finished, and repeat the command if it failed.

        Args:
            disturb: called with the build.
            options: pipeline options; by default those with the engine's worker pool.
            with_rejects: whether some of the inputs are rejected, so that shards are written again.
            recovers: whether the first command must succeed.
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
        if status != 0 and not recovers:
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
def trial(engine: Engine, source: Path, expected: Mapping[str, bytes], tmp_path: Path) -> Trial:
    return Trial(engine, source, tmp_path, expected)


@on_each_engine_and_flink_in_processes
def test_an_undisturbed_build_gives_the_same_bytes(trial):
    trial.run(with_rejects=True)


@on_flink
def test_a_build_whose_workers_are_threads_of_the_command_gives_the_same_bytes(trial):
    trial.run(options=trial.engine.loopback_options)


@on_each_engine_and_flink_in_processes
def test_a_build_recovers_or_resumes_after_a_python_worker_was_killed(trial):
    def kill_worker(build: Build) -> None:
        os.kill(trial.engine.busy_pool().workers()[0], signal.SIGKILL)

    trial.run(kill_worker)


@on_each_engine
def test_a_build_recovers_or_resumes_after_a_worker_pool_was_killed_and_started_again(trial):
    with ExitStack() as stack:

        def kill_pool(build: Build) -> None:
            pool = trial.engine.busy_pool()
            pool.service.kill()
            stack.enter_context(worker_pool(trial.folder / "logs", pool.port, pool.address))

        trial.run(kill_pool)


@on_each_engine
def test_an_interrupted_build_whose_job_ends_by_itself_resumes(trial):
    # the job may finish shards that the second command has begun
    trial.run(Build.interrupt, twice=NUM_SHARDS)


@on_each_engine
def test_the_error_of_a_worker_is_raised_with_its_class_and_code(engine, tmp_path):
    with raises(InputError, "changed-file"):
        find_run("beam", engine.options)(work_of(partial(fail, "input", note), tmp_path))


@on_a_cluster
def test_a_job_recovers_after_a_task_manager_was_killed_if_another_one_is_free(trial):
    def kill_task_manager(build: Build) -> None:
        trial.engine.cluster.busy_task_manager().kill()

    trial.run(kill_task_manager, recovers=True)


@on_a_cluster
def test_a_job_recovers_after_all_task_managers_were_killed_and_others_started(trial):
    def replace_task_managers(build: Build) -> None:
        for task_manager in trial.engine.cluster.task_managers:
            task_manager.kill()
        trial.engine.cluster.start_task_managers(2)

    trial.run(replace_task_managers, recovers=True)


@on_a_cluster
def test_a_build_resumes_after_the_job_manager_was_restarted(trial):
    def restart_job_manager(build: Build) -> None:
        trial.engine.cluster.job_manager.kill()
        trial.engine.cluster.start_job_manager()

    trial.run(restart_job_manager)
