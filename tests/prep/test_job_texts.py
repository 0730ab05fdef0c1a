"""What a job reports of itself before and while it runs."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.errors import raises
from tfshards.prep.engines.job import Job
from tfshards.prep.engines.local import Crew
from tfshards.prep.engines.pipeline import _Call
from tfshards.prep.engines.table import Work
from tfshards.prep.progress.lines import WorkProgress
from tfshards.prep.writing.area import BuildArea
from tfshards.schemas import BuildError
from tfshards.schemas.storage import any_path


def test_a_job_names_where_to_look(tmp_path):
    area = SimpleNamespace(job_path=tmp_path / "job")
    log_path = Path("workers.log")
    own = Job(SimpleNamespace(area=area), "host:1", log_path)
    assert own.where() == "the job has not started; see the job service host:1, and workers.log"
    own.start("6", lambda: None)
    assert not area.job_path.exists()
    job = Job(SimpleNamespace(area=area), "host:1")
    assert job.where() == "the job has not started; see the job service host:1"
    job.start("7", lambda: None)
    assert json.loads((tmp_path / "job").read_text()) == {"job_id": "7", "endpoint": "host:1"}
    assert job.where().startswith("the job 7 at host:1 waits for free slots, or its workers cannot start")


def test_a_failed_worker_ends_a_job_that_continues(monkeypatch):
    monkeypatch.setattr("tfshards.prep.engines.job._FAILURE_SECONDS", 0)
    area = SimpleNamespace(stop_reason=lambda: "why")
    with raises(BuildError, "worker-failed"):
        Job(SimpleNamespace(area=area)).measure()


def test_the_output_of_processes_is_in_the_build_area_or_a_temporary_file_if_that_is_remote(tmp_path):
    work = Work(print, [], WorkProgress("photos", 1), stop=print, area=BuildArea(tmp_path, "0123abcd"))
    assert work.log_path == tmp_path / ".build" / "0123abcd" / "workers.log"
    area = BuildArea(any_path("s3://photos/out"), "0123abcd", attempt="7")
    assert replace(work, area=area).log_path == Path(tempfile.gettempdir()) / "tfshards-0123abcd-7.log"


@pytest.mark.parametrize(("error", "num_reported"), [(BuildError("build-stopped"), 0), (OSError("disk"), 1)])
def test_a_task_that_was_stopped_is_not_reported_as_failed(error, num_reported, caplog):
    def fail(_: object) -> None:
        raise error

    call = _Call(None, (fail, SimpleNamespace(stop_reason=iter([None, "why"]).__next__)), None)
    call.setup()
    call.start_bundle()
    call.process("item")
    call.finish_bundle()
    assert len(caplog.records) == num_reported


def test_after_a_failure_a_crew_does_nothing_more():
    called, reasons = [], []

    def fail(item: int) -> None:
        called.append(item)
        raise BuildError("worker-lost")

    area = SimpleNamespace(stop=reasons.append, stop_reason=lambda: next(iter(reasons), None))
    call = _Call(None, (fail, area), Crew(0, 1))
    call.setup()
    call.start_bundle()
    for item in range(4):
        call.process(item)
    with raises(BuildError, "worker-lost"):
        call.finish_bundle()
    assert called == [0]
    assert len(reasons) == 1
