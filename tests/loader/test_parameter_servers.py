"""``loader.distribute`` under ParameterServerStrategy: real processes for coordinator, workers and server."""

import json
import re

import pytest

from tests.loader.cluster import run_cluster
from tfshards import loader

pytestmark = pytest.mark.processes

COUNT = 23
TASKS = {"worker": 2, "ps": 1, "chief": 1}


@pytest.fixture(scope="module")
def path(numbered):
    # one shard for both workers
    return numbered([COUNT])


@pytest.fixture(scope="module")
def run(programs, path, tmp_path_factory):
    """Return what the coordinator found, and what all wrote to stderr."""
    folder = tmp_path_factory.mktemp("servers")
    ((stdout, stderr),) = run_cluster(
        programs, folder, "server_cluster.py", [path], TASKS, until="chief", timeout=600
    )
    workers = "".join(file.read_text() for file in folder.glob("worker-*.err"))
    return json.loads(stdout), stderr + workers


WAYS = {
    "padded": {},
    "shuffled": {"shuffle": loader.Shuffle(seed=2), "start": loader.Position(1), "epochs": 2},
}


@pytest.mark.parametrize(("way", "options"), WAYS.items(), ids=WAYS)
def test_each_worker_reads_its_own_part_and_all_together_each_example_once(run, path, way, options):
    for read in run[0][way]:
        assert sorted(read) == ["0", "1"]
        for index, rows in read.items():
            # the process of a worker reads the same as load() with that worker
            own = loader.load(
                path, batch_size=2, worker=loader.Worker(int(index), 2), remainder="pad", **options
            )
            wanted = [
                [number, int(weight)]
                for b in own.as_numpy_iterator()
                for number, weight in zip(b["number"].tolist(), b["sample_weight"].tolist(), strict=True)
            ]
            assert rows == wanted
            assert len(rows) == 2 * loader.steps_per_epoch(path, None, 4, "pad")
        assert sorted(n for rows in read.values() for n, weight in rows if weight) == list(range(COUNT))


REFUSED = {
    "shuffle": r"epochs=1 would give the same order for each iterator under P.*; use epochs=None for t",
    "crop": r"epochs=1 would give the same order .* start=loader\.Position\(epoch\) and epochs=epoch",
    "mix": "epochs=1 would give the same order for each iterator under ParameterServerStrategy",
    "progress": r"a Progress counts steps that all workers take together, .* use start=loader\.Position",
    "cache": "cache='disk:near' would copy the shards only to the coordinator's host; leave it out",
    "odd": "global_batch_size=5 cannot be split evenly over 2 replicas; use 6 or 4",
    "select": r"select=\('nope',\) has no feature for 'nope'; the features are 'number'",
    "load": r"scope of a ParameterServerStrategy, but load\(\) without worker= reads the whole split",
}


def test_options_that_parameter_servers_do_not_support_are_refused(run):
    found, stderr = run
    for what, message in REFUSED.items():
        assert re.search(message, found["refused"][what]), what
    assert not re.search("auto.?shard|sharding policy", stderr, re.IGNORECASE)
