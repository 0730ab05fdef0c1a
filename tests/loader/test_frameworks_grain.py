"""``loader.grain``: the order of ``load`` from Grain's iterators, whose state is saved and restored."""

from __future__ import annotations

import itertools
import json
import pickle

import pytest

from tests.errors import raises
from tfshards import loader
from tfshards.loader import Position, Records, Shuffle, Worker
from tfshards.schemas import OptionsError

from .framework_data import write_data

pytestmark = pytest.mark.processes

grain = pytest.importorskip("grain")

OPTIONS = {"batch_size": 8, "shuffle": Shuffle(seed=4), "epochs": 2}


@pytest.fixture(scope="module")
def data(write_dataset, tmp_path_factory):
    return write_data(write_dataset, tmp_path_factory.mktemp("grain") / "data")


def numbers_of(batches):
    return [batch["number"].tolist() for batch in batches]


def iterated(data, **options):
    return iter(grain.MapDataset.source(loader.grain.source(data, **OPTIONS | options)).to_iter_dataset())


RUNS = {
    "resumed": {"start": Position(1, 3)},
    "smaller last batches": {"remainder": "keep", "worker": Worker(1, 2)},
    "stored": {"shuffle": None, "epochs": 1},
}


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_the_order_is_that_of_load_by_batch_and_by_example(data, options):
    options = OPTIONS | options
    expected = numbers_of(loader.batches(data, **options))
    source = loader.grain.source(data, **options)
    assert len(source) == len(expected)
    # as processes of Grain get it
    assert pickle.loads(pickle.dumps(source))[1]["number"].tolist() == expected[1]
    assert numbers_of(grain.MapDataset.source(source).to_iter_dataset()) == expected
    sampler = loader.grain.Sampler(data, **options)
    records = Records(data, select=("number",))
    found = grain.DataLoader(
        data_source=records, sampler=sampler, shard_options=grain.sharding.NoSharding(), worker_count=0
    )
    assert [int(each["number"]) for each in found] == [*itertools.chain(*expected)]
    assert [sampler[index].index for index in range(3)] == [0, 1, 2]


def test_an_iterator_is_resumed_by_its_state_and_by_load(data):
    whole = numbers_of(loader.batches(data, **OPTIONS))
    first = iterated(data)
    assert numbers_of(itertools.islice(first, 9)) == whole[:9]
    state = json.loads(json.dumps(first.get_state()))
    again = iterated(data)
    again.set_state(state)
    assert numbers_of(again) == whole[9:]
    start = loader.grain.source(data, **OPTIONS).position(state["next_index"])
    rest = loader.load(data, **OPTIONS, start=start)
    assert [batch["number"].numpy().tolist() for batch in rest] == whole[9:]


def test_a_loader_of_examples_is_resumed_and_refuses_the_state_of_another_order(data):
    def make(seed):
        sampler = loader.grain.Sampler(data, **OPTIONS | {"shuffle": Shuffle(seed=seed)})
        loaded = grain.DataLoader(
            data_source=Records(data, select=("number",)),
            sampler=sampler,
            shard_options=grain.sharding.NoSharding(),
            operations=[grain.transforms.Batch(8)],
            worker_count=0,
        )
        return iter(loaded)

    whole = numbers_of(loader.batches(data, **OPTIONS))
    first = make(4)
    assert numbers_of(itertools.islice(first, 5)) == whole[:5]
    again = make(4)
    again.set_state(first.get_state())
    assert numbers_of(again) == whole[5:]
    with pytest.raises(ValueError, match="Sampler in checkpoint does not match"):
        make(5).set_state(first.get_state())


def test_indices_outside_the_run_and_runs_without_an_end_are_refused(data):
    source, sampler = loader.grain.source(data, **OPTIONS), loader.grain.Sampler(data, **OPTIONS)
    for index in (-1, 14):
        with pytest.raises(IndexError, match=f"batch {index} of 14"):
            source[index]
    for index in (-1, 112):
        with pytest.raises(IndexError, match=f"example {index} of 112"):
            sampler[index]
    for make in (loader.grain.source, loader.grain.Sampler):
        with raises(OptionsError, "grain-endless"):
            make(data, batch_size=8, epochs=None)
    with pytest.warns(UserWarning, match="leaves no steps"):
        assert len(loader.grain.Sampler(data, batch_size=100)) == 0
