"""``Worker.from_environment``: the variables that TensorFlow clusters and launchers set."""

import json
import os
import pickle
import sys
import types

import pytest

from tfshards import loader
from tfshards.schemas import OptionsError

NAMES = ("TF_CONFIG", "HOROVOD", "OMPI_COMM_WORLD", "PMI", "SLURM", "RANK", "WORLD_SIZE")


def cluster(kind, index, **sizes):
    hosts = {name: [f"localhost:{port}" for port in range(size)] for name, size in sizes.items()}
    return {"TF_CONFIG": json.dumps({"cluster": hosts, "task": {"type": kind, "index": index}})}


def openmpi(rank, size):
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(size)}


def slurm(rank, size):
    return {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(size), "SLURM_NTASKS": "9"}


@pytest.fixture
def environment(monkeypatch):
    """Return a function that sets only the given variables of launchers."""

    def leave(variables):
        for name in [name for name in os.environ if name.startswith(NAMES)]:
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return leave


@pytest.mark.parametrize(
    ("variables", "worker", "reason"),
    [
        ({}, (0, 1), "no launcher"),
        ({"TF_CONFIG": ""}, (0, 1), "an empty variable is ignored"),
        (cluster("worker", "1", worker=3), (1, 3), "an index written as text, as some tools do"),
        (cluster("chief", 0, chief=1, worker=2), (0, 3), "the chief is the first worker"),
        (cluster("worker", 0, chief=1, worker=2), (1, 3), "the workers follow the chief"),
        (cluster("worker", 1, master=1, worker=2), (2, 3), "its name in old clusters"),
        (cluster("evaluator", 0, chief=1, worker=2), (0, 1), "the evaluator reads for itself"),
        (openmpi(2, 4), (2, 4), "mpirun"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, 2), "MPICH, Intel MPI"),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}, (1, 2), "horovodrun"),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8), "torchrun"),
        (slurm(5, 6), (5, 6), "srun"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (0, 1), "started by hand in an allocation"),
        ({"RANK": "1"}, (0, 1), "half of a pair says nothing"),
        (slurm(0, 2) | openmpi(3, 4), (3, 4), "mpirun in an allocation of Slurm: its own ranks count"),
        (openmpi(1, 2) | {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}, (1, 2), "two that agree"),
        (openmpi(1, 2) | cluster("worker", 1, worker=2), (1, 2), "a cluster whose processes mpirun starts"),
    ],
)
def test_a_worker_is_read_from_the_variables(environment, variables, worker, reason):
    environment(variables)
    assert loader.Worker.from_environment() == loader.Worker(*worker), reason


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (openmpi(4, 4), "OMPI_COMM_WORLD_RANK=4 and OMPI_COMM_WORLD_SIZE=4 must be an index"),
        (openmpi("a", 4), "OMPI_COMM_WORLD_RANK=a "),
        (
            openmpi(1, 2) | {"PMI_RANK": "0", "PMI_SIZE": "2"},
            "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE: 1 of 2, PMI_RANK and PMI_SIZE: 0 of 2",
        ),
        (openmpi(0, 2) | cluster("worker", 0, worker=3), "TF_CONFIG: 0 of 3, OMPI.*: 0 of 2"),
        (cluster("ps", 0, worker=2, ps=1), "TF_CONFIG names parameter servers"),
        (cluster("worker", 2, worker=2), "must be a JSON object with a cluster"),
        (cluster("chief", 0, worker=2), "must be a JSON object with a cluster"),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}, "must be a JSON object"),
        ({"TF_CONFIG": "worker 0"}, "TF_CONFIG='worker 0' must be a JSON object"),
    ],
)
def test_contradictory_or_incomplete_variables_are_named(environment, variables, message):
    environment(variables)
    with pytest.raises(OptionsError, match=message):
        loader.Worker.from_environment()


def test_variables_alone_are_a_warning_and_a_process_group_decides(environment, numbered, monkeypatch):
    environment(slurm(1, 2))
    path = numbered([8])
    with pytest.warns(UserWarning, match=r"SLURM_STEP_NUM_TASKS names 2 workers, but batches\(\) without"):
        assert len(loader.batches(path, batch_size=4)) == 2
    group = types.SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 1, get_world_size=lambda: 2
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    assert "part 1 of 2, 1 steps" in repr(loader.batches(path, batch_size=4))


def test_paths_stay_where_they_were_given(numbered, monkeypatch, tmp_path):
    path = numbered([8])
    monkeypatch.chdir(path.parent)
    run, records = loader.batches(path.name, batch_size=8), loader.Records(path.name)
    copies = pickle.dumps(run), pickle.dumps(records)
    monkeypatch.chdir(tmp_path)
    for read in (run, pickle.loads(copies[0])):
        assert next(iter(read))["number"].tolist() == [*range(8)]
    assert [found[3]["number"] for found in (records, pickle.loads(copies[1]))] == [3, 3]
