"""Builds on Flink give the same bytes, undisturbed and after a worker was killed.

``make engines`` runs these tests. Each starts its engine, as processes of this machine, and ends it.
tests/verbs derives datasets on Flink.
"""

import os
import signal
from functools import partial

import pytest

from tests.prep.calls import fail, note, work_of
from tfshards.prep.engines.table import find_run
from tfshards.schemas import BuildError

from .builds import building, contents

pytestmark = pytest.mark.engines


@pytest.mark.flink
def test_an_undisturbed_build_gives_the_same_bytes(engine, source, expected, tmp_path):
    with building(source, tmp_path / "data", tmp_path, engine.options, with_rejects=True) as build:
        assert build.wait() == 0, build.service.tail()
    assert contents(tmp_path / "data") == expected[True]


@pytest.mark.flink
def test_a_build_recovers_or_resumes_after_a_python_worker_was_killed(engine, source, expected, tmp_path):
    out = tmp_path / "data"
    with building(source, out, tmp_path, engine.options, with_rejects=False) as first:
        first.wait_for_finished(4)
        os.kill(engine.busy_pool().workers()[0], signal.SIGKILL)
        status = first.wait()
    again = first.num_written_twice()
    if status != 0:
        print(first.service.tail())
        with building(source, out, tmp_path, engine.options, with_rejects=False) as second:
            assert second.wait() == 0, second.service.tail()
        again = second.num_written_twice(first)
    assert contents(out) == expected[False]
    assert again == 0


def test_the_error_of_a_worker_is_raised(engine, tmp_path):
    with pytest.raises(BuildError, match="changed after"):
        find_run("beam", engine.options)(work_of(partial(fail, "input", note), tmp_path))
