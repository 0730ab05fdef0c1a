"""``loader.torch``: the order of ``load`` from PyTorch's DataLoader, with and without worker processes."""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys

import pytest

from tests.errors import raises
from tfshards import loader
from tfshards.loader import Part, Position, Records, Shuffle, Worker
from tfshards.schemas import OptionsError

from .framework_data import COUNT, run_together, write_data

torch = pytest.importorskip("torch")
pytest.importorskip("torchdata")
from torch.utils.data import DataLoader  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

pytestmark = [
    pytest.mark.processes,
    # The processes are forked from this one, in which TensorFlow has threads that they do not use.
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]


@pytest.fixture(scope="module")
def data(write_dataset, tmp_path_factory):
    return write_data(write_dataset, tmp_path_factory.mktemp("torch") / "data")


def numbers_of(batches):
    return [batch["number"].tolist() for batch in batches]


def loaded(dataset, num_workers, kind=DataLoader, **options):
    return kind(dataset, batch_size=None, num_workers=num_workers, **options)


RUNS = {
    "shuffled": {"shuffle": Shuffle(seed=3), "remainder": "pad"},
    "resumed": {"shuffle": Shuffle(seed=1), "epochs": 3, "start": Position(1, 3)},
    "a rank": {"shuffle": Shuffle(seed=1), "worker": Worker(1, 2)},
    "fewer steps than processes": {"take": 16},
}


@pytest.mark.parametrize("num_workers", [0, 3])
@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_the_order_is_that_of_load_for_any_number_of_processes(data, options, num_workers):
    options = {"batch_size": 8, **options}
    dataset = loader.torch.Batches(data, **options)
    expected = numbers_of(loader.batches(data, **options))
    assert numbers_of(loaded(dataset, num_workers)) == expected
    assert len(dataset) == len(expected)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_each_iteration_is_the_next_epoch_unless_an_epoch_is_set(data, num_workers):
    options = {"batch_size": 8, "shuffle": Shuffle(seed=4)}
    dataset = loader.torch.Batches(data, **options)
    whole = numbers_of(loader.batches(data, epochs=3, **options))
    batches = loaded(dataset, num_workers, persistent_workers=num_workers > 0)
    assert [batch for _ in range(3) for batch in numbers_of(batches)] == whole
    # Lightning makes iterators that it does not use
    for epoch in (1, 0, 2):
        dataset.set_epoch(epoch)
        for _ in range(2):
            iter(batches)
            assert numbers_of(batches) == whole[7 * epoch : 7 * epoch + 7]


def test_values_are_tensors_and_what_cannot_be_one_a_list(data):
    expected = next(iter(loader.batches(data, batch_size=8)))
    for num_workers in (0, 1):
        found = next(iter(loaded(loader.torch.Batches(data, batch_size=8), num_workers)))
        assert [*found] == [*expected]
        assert found["key"] == expected["key"].tolist()
        assert [each.tolist() for each in found["ids"]] == [each.tolist() for each in expected["ids"]]
        assert {each.dtype for each in found["ids"]} == {torch.int32}
        assert found["half"].dtype == torch.bfloat16
        assert found["half"][:, 0].tolist() == list(range(8))
        assert (found["pixels"].dtype, found["pixels"].shape) == (torch.uint8, (8, 4, 3))
    image, label = next(iter(loader.torch.Batches(data, batch_size=8, select=("pixels", "label"))))
    assert (image.shape, label.tolist()) == ((8, 4, 3), [0, 1, 2, 0, 1, 2, 0, 1])


@pytest.mark.parametrize("num_workers", [0, 3])
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_stateful_loader_is_resumed_exactly(data, num_workers, epochs):
    options = {"batch_size": 8, "shuffle": Shuffle(seed=4), "epochs": epochs}
    whole = numbers_of(loader.batches(data, **options | {"epochs": 3}))
    first = loaded(loader.torch.Batches(data, **options), num_workers, StatefulDataLoader)
    assert numbers_of(itertools.islice(first, 4)) == whole[:4]
    state = pickle.loads(pickle.dumps(first.state_dict()))
    del first
    again = loaded(loader.torch.Batches(data, **options), num_workers, StatefulDataLoader)
    again.load_state_dict(state)
    found = numbers_of(again)
    ended = again.state_dict()
    if epochs == 1:
        assert found == whole[4:7]
        found += numbers_of(again)
        another = loaded(loader.torch.Batches(data, **options), num_workers, StatefulDataLoader)
        another.load_state_dict(ended)
        assert numbers_of(another) == whole[7:14]
        found += numbers_of(again)
    assert found == whole[4:]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_sampler_gives_records_in_the_order_of_load(data, num_workers):
    options = {
        "batch_size": 8,
        "shuffle": Shuffle(seed=4),
        "remainder": "keep",
        "take": Part(0, 2, rest=True),
    }
    whole = numbers_of(loader.batches(data, epochs=3, **options))
    sampler = loader.torch.BatchSampler(data, "train", **options)
    assert sampler.steps_per_epoch == len(sampler) == len(whole) // 3
    records = Records(data, "train", select=("number", "label"))

    def make(kind=DataLoader):
        return kind(records, batch_sampler=sampler, num_workers=num_workers)

    assert [batch for _ in range(3) for batch in numbers_of(make())] == whole
    sampler.set_epoch(1)
    first = make(StatefulDataLoader)
    assert numbers_of(itertools.islice(first, 2)) == whole[len(sampler) :][:2]
    state = pickle.loads(pickle.dumps(first.state_dict()))
    sampler = loader.torch.BatchSampler(data, "train", **options)
    again = make(StatefulDataLoader)
    again.load_state_dict(state)
    assert numbers_of(again) == whole[len(sampler) + 2 :][: len(sampler) - 2]
    ended = again.state_dict()
    assert numbers_of(again) == whole[2 * len(sampler) :]
    again.load_state_dict(ended)
    assert numbers_of(again) == whole[2 * len(sampler) :]


def test_what_has_no_number_or_no_epoch_or_another_order_is_refused(data):
    options = {"batch_size": 8, "shuffle": Shuffle(seed=4)}
    batches = loader.torch.Batches(data, **options)
    state = batches.state_dict()
    with raises(OptionsError, "resume-order", what="Shuffle.seed"):
        loader.torch.Batches(data, batch_size=8, shuffle=Shuffle(seed=5)).load_state_dict(state)
    batches.load_state_dict({**state, "processes": 2})
    with raises(OptionsError, "state-processes", found=2, wanted=1):
        next(iter(batches))
    with raises(OptionsError, "not-a-choice", name="remainder", found="pad"):
        loader.torch.BatchSampler(data, batch_size=8, remainder="pad")
    with raises(OptionsError, "not-a-path"):
        loader.torch.BatchSampler(loader.Mix({data: 1}), batch_size=8)
    with raises(OptionsError, "set-epoch-of-run"):
        loader.torch.Batches(data, batch_size=8, epochs=3).set_epoch(1)


RANK = """
import json, sys
import torch, torch.distributed as dist
from torch.utils.data import DataLoader
from tfshards import loader
path, init, rank = sys.argv[1:]
dist.init_process_group("gloo", init_method=f"file://{init}", rank=int(rank), world_size=2)
options = dict(batch_size=4, shuffle=loader.Shuffle(seed=4))
dataset = loader.torch.Batches(path, **options)
own = [batch["number"] for batch in DataLoader(dataset, batch_size=None, num_workers=1)]
assert [each.tolist() for each in own] == list(loader.torch.BatchSampler(path, **options))
for each in own:
    both = [torch.zeros_like(each) for _ in range(2)]
    dist.all_gather(both, each)
    print(json.dumps(torch.cat(both).tolist()))
dist.destroy_process_group()
"""


def test_two_ranks_read_the_global_batch_of_load(data, tmp_path):
    printed = run_together(RANK, data, tmp_path / "init", count=2, GLOO_SOCKET_IFNAME="lo")
    expected = numbers_of(loader.batches(data, batch_size=8, shuffle=Shuffle(seed=4)))
    for out in printed:
        found = [json.loads(line) for line in out.splitlines()]
        assert [sorted(each) for each in found] == [sorted(each) for each in expected]
    assert len(expected) == COUNT // 8


def test_a_launcher_names_the_rank(data, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    options = {"batch_size": 4, "shuffle": Shuffle(seed=4)}
    expected = numbers_of(loader.batches(data, worker=Worker(1, 2), **options))
    assert numbers_of(loader.torch.Batches(data, **options)) == expected


def test_a_framework_is_imported_when_it_is_used_and_named_where_it_is_missing(data):
    code = """
import sys
from tfshards import loader
assert {"torch", "jax", "keras", "grain"} <= set(dir(loader))
assert not {"torch", "jax", "keras", "grain", "tensorflow"} & set(sys.modules)
for name in ("torch", "jax", "keras", "grain"):
    sys.modules[name] = None
    try:
        getattr(loader, name)
    except ModuleNotFoundError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    expected = [
        f"tfshards.loader needs {name}: pip install 'tfshards[{name}]'"
        for name in ("torch", "jax", "keras", "grain")
    ]
    assert (done.stdout.splitlines(), done.stderr) == (expected, "")
