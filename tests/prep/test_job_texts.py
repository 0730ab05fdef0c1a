"""What a job reports of itself before and while it runs."""

from types import SimpleNamespace

from tests.errors import raises
from tfshards.prep.engines.job import Job, JobNote
from tfshards.schemas import BuildError


def where(**fields: object) -> str:
    return Job.where(SimpleNamespace(**fields))


def test_a_job_names_where_to_look(tmp_path):
    work = SimpleNamespace(log_path="workers.log", area=None)
    assert where(is_local=True, work=work) == "the output of worker processes is in workers.log"
    assert where(is_local=True, work=SimpleNamespace(log_path=None)) == ""
    assert where(is_local=False, _note=None, endpoint="host:1", work=work) == (
        "the job has not started; see the job service at host:1, and workers.log"
    )
    note = JobNote("job", "host:1")
    assert where(is_local=False, _note=note, work=work) == f"see {note}, and the logs of its workers"
    area = SimpleNamespace(unfinished_path=lambda name: tmp_path / "attempt")
    waiting = where(is_local=False, _note=note, work=SimpleNamespace(area=area))
    assert waiting.startswith(f"{note} has no worker: it waits for free slots")


def test_a_failed_worker_ends_a_job_that_continues(monkeypatch):
    monkeypatch.setattr("tfshards.prep.engines.job._FAILURE_SECONDS", 0)
    area = SimpleNamespace(stop_reason=lambda: "why")
    with raises(BuildError, "worker-failed"):
        Job.measure(SimpleNamespace(work=SimpleNamespace(area=area), _failed_at=None))
