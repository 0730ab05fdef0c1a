"""What a job reports of itself before and while it runs."""

import json
from types import SimpleNamespace

from tests.errors import raises
from tfshards.prep.engines.job import Job
from tfshards.schemas import BuildError


def test_a_job_names_where_to_look(tmp_path):
    area = SimpleNamespace(job_path=tmp_path / "job")
    assert Job(SimpleNamespace(), "", is_local=True).where() == ""
    job = Job(SimpleNamespace(area=area), "host:1", is_local=False)
    assert job.where() == "the job has not started; see the job service host:1"
    job.start("7", lambda: None)
    assert json.loads((tmp_path / "job").read_text()) == {"job_id": "7", "endpoint": "host:1"}
    assert job.where().startswith("the job 7 at host:1 waits for free slots, or its workers cannot start")


def test_a_failed_worker_ends_a_job_that_continues(monkeypatch):
    monkeypatch.setattr("tfshards.prep.engines.job._FAILURE_SECONDS", 0)
    area = SimpleNamespace(stop_reason=lambda: "why")
    with raises(BuildError, "worker-failed"):
        Job(SimpleNamespace(area=area), "", is_local=False).measure()
