"""Work on Beam's portable runner: workers are threads of the command, or processes of a worker pool."""

import os
import sys
from functools import partial

import numpy as np
import pytest

from tests.engines.processes import worker_pool
from tfshards.prep import Arrays, reshard
from tfshards.prep.engines.table import find_run
from tfshards.schemas import BuildError

from ..engines.processes import free_port, listens, running, start
from .calls import NUM_ITEMS, fail, note, work_of

pytestmark = pytest.mark.processes

HIDE = "unshare --mount sh -c 'mount -t tmpfs none {folder} && exec \"$@\"' sh"
LACK = "import sys; sys.modules['tfshards'] = None"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    """Beam's job service in Python."""
    port, main = free_port(), "apache_beam.runners.portability.local_job_service_main"
    command = [sys.executable, "-m", main, "--port", port]
    with running(start("service", command, tmp_path_factory.mktemp("service")), listens(port)):
        yield f"localhost:{port}"


@pytest.fixture
def run(endpoint):
    """Return a function that does work on the job service, with further pipeline options."""

    def run(work, *options: str) -> None:
        find_run("beam", ["--runner=PortableRunner", f"--job_endpoint={endpoint}", *options])(work)

    return run


def test_processes_of_a_pool_process_every_item_and_return_errors(run, tmp_path):
    (tmp_path / "out").mkdir()
    with worker_pool(tmp_path / "pool") as pool:
        run(work_of(note, tmp_path / "out"), *pool.options)
        names = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
        assert sorted(map(int, names)) == list(range(NUM_ITEMS))
        assert str(os.getpid()) not in names.values()
        with pytest.raises(BuildError, match="changed after"):
            run(work_of(partial(fail, "input", note), tmp_path / "out"), *pool.options)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can hide a folder from a worker")
def test_a_worker_that_does_not_see_the_dataset_to_reshard_is_refused(endpoint, tmp_path, quiet_build):
    root, out = tmp_path / "data", tmp_path / "out"
    quiet_build(Arrays({"x": np.arange(4)}), root)
    with worker_pool(tmp_path / "pool", wrapper=HIDE.format(folder=root)) as pool:
        args = ["--runner=PortableRunner", f"--job_endpoint={endpoint}", *pool.options]
        with pytest.raises(BuildError, match="does not see") as failed:
            reshard(root, out, shards=2, beam_args=args)
    assert str(root) in str(failed.value)
    assert not [*out.rglob("*.tfrecord-*")]


def test_a_worker_without_tfshards_is_reported(run, tmp_path):
    (tmp_path / "out").mkdir()
    with (
        worker_pool(tmp_path / "pool", customize=LACK) as pool,
        pytest.raises(BuildError, match="Apache Beam ended") as failed,
    ):
        run(work_of(note, tmp_path / "out"), *pool.options)
    assert "ModuleNotFoundError" in str(failed.value)


def test_a_job_service_that_does_not_answer_is_reported(tmp_path):
    arguments = ["--runner=PortableRunner", f"--job_endpoint=localhost:{free_port()}"]
    with pytest.raises(BuildError, match="Apache Beam ended"):
        find_run("beam", [*arguments, "--job_server_timeout=1"])(work_of(note, tmp_path))
    assert not list(tmp_path.iterdir())
