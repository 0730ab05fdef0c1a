"""Builds on real engines give the same bytes, undisturbed and after processes of the engine were killed.

``make engines`` runs these tests. Each starts its engine, as processes of this machine, and ends it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from .builds import Build, building, contents, until
from .engines import ENGINES, Engine
from .results import RESULTS, Result
from .worker_pool import worker_pool

pytestmark = pytest.mark.engines
on_each_engine = pytest.mark.parametrize("engine", ENGINES, indirect=True)
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

    def run(
        self,
        disturbance: str,
        disturb: Callable[[Build], None] | None = None,
        options: Sequence[str] | None = None,
        *,
        with_rejects: bool = False,
        recovers: bool = False,
    ) -> Result:
        """Build, call ``disturb`` when a few shards are finished, and repeat the command if it failed.

        Args:
            disturbance: what ``disturb`` does, for the table of results.
            disturb: called with the build.
            options: pipeline options; by default those with the engine's worker pool.
            with_rejects: whether some of the inputs are rejected.
            recovers: whether the first command must succeed.
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
        left_over = self.left_over()
        outcome = _outcome(status, "recovered" if disturb else "done")
        seconds, twice = f"{first.seconds:.0f}", first.num_written_twice()
        if status:
            print(f"{outcome}:\n{first.service.tail()}")
        if status != 0 and not recovers:
            with building(self.source, self.out, logs, options, with_rejects=with_rejects) as second:
                status = second.wait()
            outcome += f", {_outcome(status)}"
            seconds, twice = f"{seconds} + {second.seconds:.0f}", second.num_written_twice(first)
            if status:
                print(second.service.tail())
        is_same = status == 0 and contents(self.out) == self.expected[with_rejects]
        result = Result(self.engine.name, disturbance, outcome, is_same, twice, len(left_over), seconds)
        RESULTS.append(result)
        print(result)
        assert status == 0, result
        assert is_same, result
        assert twice == 0, result
        assert left_over == [], result
        return result

    def left_over(self) -> list[str]:
        """Return the jobs that still run a while after their command has ended."""
        try:
            until(lambda: not self.engine.running_jobs(), END_SECONDS, "no job is left over")
        except TimeoutError:
            return self.engine.running_jobs()
        return []


def _outcome(status: int | None, success: str = "resumed") -> str:
    return {0: success, 130: "stopped", None: "hung"}.get(status, "failed")


@pytest.fixture
def trial(engine: Engine, source: Path, expected: Mapping[str, bytes], tmp_path: Path) -> Trial:
    return Trial(engine, source, tmp_path, expected)


@on_each_engine
def test_an_undisturbed_build_gives_the_same_bytes(trial):
    trial.run("undisturbed", with_rejects=True)


@pytest.mark.parametrize("engine", ["prism", "flink", "spark"], indirect=True)
def test_a_build_whose_workers_are_threads_of_the_command_gives_the_same_bytes(trial):
    trial.run("undisturbed, LOOPBACK", options=trial.engine.loopback_options)


@on_each_engine
def test_a_build_recovers_or_resumes_after_a_python_worker_was_killed(trial):
    def kill_worker(build: Build) -> None:
        os.kill(trial.engine.busy_pool().workers()[0], signal.SIGKILL)

    trial.run("Python worker killed", kill_worker)


@on_each_engine
def test_a_build_recovers_or_resumes_after_a_worker_pool_was_killed_and_started_again(trial):
    with ExitStack() as stack:

        def kill_pool(build: Build) -> None:
            pool = trial.engine.busy_pool()
            pool.service.kill()
            stack.enter_context(worker_pool(trial.folder / "logs", pool.port, pool.address))

        trial.run("worker pool restarted", kill_pool)


@on_each_engine
def test_an_interrupted_build_leaves_no_job_and_resumes(trial):
    trial.run("interrupted", Build.interrupt, with_rejects=True)


@pytest.mark.parametrize("engine", ["flink-cluster"], indirect=True)
def test_a_job_recovers_after_a_task_manager_was_killed_if_another_one_is_free(trial):
    def kill_task_manager(build: Build) -> None:
        trial.engine.cluster.busy_task_manager().kill()

    trial.run("task manager killed, one is free", kill_task_manager, recovers=True)


@pytest.mark.parametrize("engine", ["flink-cluster"], indirect=True)
def test_a_job_recovers_after_all_task_managers_were_killed_and_others_started(trial):
    def replace_task_managers(build: Build) -> None:
        for task_manager in trial.engine.cluster.task_managers:
            task_manager.kill()
        trial.engine.cluster.start_task_managers(2)

    trial.run("all task managers replaced", replace_task_managers, recovers=True)


@pytest.mark.parametrize("engine", ["flink-cluster"], indirect=True)
def test_a_build_resumes_after_the_job_manager_was_restarted(trial):
    def restart_job_manager(build: Build) -> None:
        trial.engine.cluster.job_manager.kill()
        trial.engine.cluster.start_job_manager()

    trial.run("job manager restarted", restart_job_manager)


@pytest.mark.parametrize("engine", ["spark-cluster"], indirect=True)
def test_a_build_recovers_or_resumes_after_a_spark_worker_was_killed(trial):
    def kill_worker(build: Build) -> None:
        trial.engine.cluster.workers[0].kill()

    trial.run("worker of the cluster killed", kill_worker)
