"""Builds on Flink give the same bytes, undisturbed and after a worker was killed.

``make engines`` runs these tests. Each starts its engine, as processes of this machine, and ends it.
tests/verbs derives datasets on Flink.
"""

import os
import signal
from functools import partial

import pytest

from tests.prep.calls import fail, note, work_of
from tests.programs import until
from tfshards.prep.engines.table import find_run
from tfshards.schemas import BuildError

from .builds import BUILD_SECONDS, building, contents, finished, wait_for_some

pytestmark = pytest.mark.engines


@pytest.mark.flink
def test_an_undisturbed_build_gives_the_same_bytes(engine, source, expected, tmp_path):
    with building(source, tmp_path / "data", tmp_path, engine.options, with_rejects=True) as build:
        assert build.process.wait(BUILD_SECONDS) == 0, build.tail()
    assert contents(tmp_path / "data") == expected[True]


@pytest.mark.flink
def test_a_build_recovers_or_resumes_after_a_python_worker_was_killed(engine, source, expected, tmp_path):
    out = tmp_path / "data"
    with building(source, out, tmp_path, engine.options, with_rejects=False) as first:
        kept = wait_for_some(first, out)
        # one that dies while it connects lets Beam wait for minutes or for ever
        until(engine.pool.is_ready, "all Python workers are connected", 60)
        os.kill(engine.pool.workers()[0], signal.SIGKILL)
        status = first.process.wait(BUILD_SECONDS)
    if status != 0:
        print(first.tail())
        with building(source, out, tmp_path, engine.options, with_rejects=False) as second:
            assert second.process.wait(BUILD_SECONDS) == 0, second.tail()
    assert contents(out) == expected[False]
    # not written again
    assert kept.items() <= finished(out).items()


def test_the_error_of_a_worker_is_raised(engine, tmp_path):
    with pytest.raises(BuildError, match="changed after"):
        find_run(engine.options)(work_of(partial(fail, "input", note), tmp_path))
